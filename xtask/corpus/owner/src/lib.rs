//! Owns `accounts` and `ledger`.
pub const DOMAIN: Domain = Domain::named("owner");

/// Opens an account.
pub const OPEN: Operation = Operation { name: "account.open", ..Operation::PLAIN };

pub fn open(db: &Database) {
    db.commit(Command::new(&OPEN))
}
