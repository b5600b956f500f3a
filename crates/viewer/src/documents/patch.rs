//! Patches: how a view of one revision becomes that of the next.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The part of a view that a patch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetType {
    /// What the run is at.
    Summary,
    /// The graph.
    Graph,
    /// The steps.
    Replay,
    /// The trace; with a key that begins with `session:`, the events of the sessions.
    Timeline,
    /// The sessions; the key says which part.
    Conversation,
    /// What is published, set and queued beside the run.
    Inspector,
}

impl TargetType {
    const ALL: [Self; 6] = [
        Self::Summary,
        Self::Graph,
        Self::Replay,
        Self::Timeline,
        Self::Conversation,
        Self::Inspector,
    ];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Graph => "graph",
            Self::Replay => "replay",
            Self::Timeline => "timeline",
            Self::Conversation => "conversation",
            Self::Inspector => "inspector",
        }
    }

    /// The target of that word.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.as_str() == text)
    }
}

/// What changes in one part of a view.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delta {
    /// The part.
    pub target_type: TargetType,
    /// Which one, where a part has several.
    pub target_key: String,
    /// What changes, in order.
    pub patch: Vec<Op>,
}

/// One change at a JSON Pointer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Sets a member, or inserts an element.
    Add {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Replaces what is there.
    Replace {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Removes what is there.
    Remove {
        /// Where.
        path: String,
    },
    /// Extends the array that is there.
    Append {
        /// Where.
        path: String,
        /// With these.
        value: Vec<Value>,
    },
}

/// A patch that does not fit its document: take a fresh view.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is nothing at {path:?} that the patch could change")]
pub struct Misfit {
    /// Where.
    pub path: String,
}

impl Delta {
    /// Where in a view its paths begin.
    pub fn root(&self) -> &'static str {
        match self.target_type {
            TargetType::Summary
            | TargetType::Graph
            | TargetType::Replay
            | TargetType::Inspector => "",
            TargetType::Timeline if self.target_key.starts_with("session:") => "/session/eventPage",
            TargetType::Timeline => "/tracePage",
            TargetType::Conversation if self.target_key.starts_with("entries:") => {
                "/session/entryPage"
            }
            TargetType::Conversation if self.target_key.starts_with("events:") => {
                "/session/eventPage"
            }
            TargetType::Conversation => "/session",
        }
    }

    /// Applies it to a view.
    ///
    /// # Errors
    ///
    /// [`Misfit`]; the view is then half changed and worth nothing.
    pub fn apply(&self, view: &mut Value) -> Result<(), Misfit> {
        let root = self.root();
        for op in &self.patch {
            let path = match op {
                Op::Add { path, .. }
                | Op::Replace { path, .. }
                | Op::Remove { path }
                | Op::Append { path, .. } => path,
            };
            let misfit = || Misfit {
                path: format!("{root}{path}"),
            };
            let document = view.pointer_mut(root).ok_or_else(misfit)?;
            apply(document, path, op).ok_or_else(misfit)?;
        }
        Ok(())
    }
}

fn apply(document: &mut Value, path: &str, op: &Op) -> Option<()> {
    if let Op::Append { value, .. } = op {
        document
            .pointer_mut(path)?
            .as_array_mut()?
            .extend(value.iter().cloned());
        return Some(());
    }
    let (parent, name) = path.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    match (document.pointer_mut(parent)?, op) {
        (Value::Object(members), Op::Add { value, .. }) => {
            members.insert(name, value.clone());
        }
        (Value::Object(members), Op::Replace { value, .. }) => {
            *members.get_mut(&name)? = value.clone();
        }
        (Value::Object(members), Op::Remove { .. }) => {
            members.remove(&name)?;
        }
        (Value::Array(items), Op::Add { value, .. }) => {
            let at = name.parse().ok().filter(|at| *at <= items.len())?;
            items.insert(at, value.clone());
        }
        (Value::Array(items), Op::Replace { value, .. }) => {
            *items.get_mut(name.parse::<usize>().ok()?)? = value.clone();
        }
        (Value::Array(items), Op::Remove { .. }) => {
            let at = name.parse().ok().filter(|at| *at < items.len())?;
            items.remove(at);
        }
        _ => return None,
    }
    Some(())
}
