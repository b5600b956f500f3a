//! Owns `accounts` and `ledger`.
