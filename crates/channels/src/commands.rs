//! The public verbs. Each checks its input, builds a command and calls the store, in one transaction, and can be sent twice.
//!
//! Not here: SQL (`store`), other I/O (a handler of an effect).

use std::collections::BTreeMap;

use holdpoint_state::{Actor, Command, Database, NewEffect, Outcome, OwnerScope, Payload, Receipt};

use crate::error::ChannelError;
use crate::model::Name;
use crate::{ANNOUNCE, operations, store};

/// Makes one channel and reserves its announcement. Repeating it adopts the earlier one.
///
/// # Errors
///
/// Those of the state layer; nothing was written.
pub fn create(db: &Database, name: &Name, by: Actor) -> Result<Receipt<()>, ChannelError> {
    let request = Payload::json(&BTreeMap::from([("name", name.as_str())]))?;
    let announcement = NewEffect::new(ANNOUNCE, "created", OwnerScope::System, request.clone());
    let command = Command::new(&operations::CREATE, name.resource())
        .by(by)
        .creating()
        .recording(request);
    db.commit(command, move |change| {
        if !change.is_new() {
            return Ok(Outcome::Adopted(()));
        }
        store::insert(change)?;
        change.reserve_effect(&announcement)?;
        Ok(Outcome::Accepted(()))
    })
}
