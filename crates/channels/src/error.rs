//! What can go wrong, one variant for each thing that a caller does differently.

use holdpoint_decisions::DecisionError;
use holdpoint_state::StateError;

use crate::config::ConfigError;
use crate::protocol::ProtocolError;

/// An error of the domain. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The profile can't have that name.
    #[error(
        "a profile is named by letters, digits, dot, underscore and dash, at most 200, the first a letter or digit"
    )]
    Name,
    /// The private configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A line of the protocol breaks a rule.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// No attempt of that name waits for a person.
    #[error(
        "no delivery or settlement waits for a person under the id {0}; see `holdpoint channels status`"
    )]
    NotAmbiguous(String),
    /// Rows that this program wrote can't be understood: the file is damaged. Restore a backup.
    #[error("the rows of {what} are damaged; restore a backup")]
    Corrupt {
        /// What they are of.
        what: String,
    },
    /// The decisions domain refused its part.
    #[error(transparent)]
    Decision(#[from] DecisionError),
    /// The command failed in the state layer, which says what to do.
    #[error(transparent)]
    State(#[from] StateError),
}
