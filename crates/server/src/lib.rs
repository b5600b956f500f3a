//! The holdpoint command and, later, the workflow server.
