//! The outbox: intents, attempts, receipts, and what is left when a process dies between act and receipt.
//!
//! The numbered tests are the edge cases of the effects reference, section 14. Cases about runs, nodes and queues themselves belong
//! to the domains above; what this floor promises them is here.

mod crash;
mod hosted;

mod operator;
mod owner;
mod probe;
mod provider;
mod recovery;
mod source;
mod take_over;
mod worker;
