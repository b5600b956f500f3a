//! Durable workflows: definitions, engine, runs, queue and attempts.
