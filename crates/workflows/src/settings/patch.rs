//! JSON Patch (RFC 6902), stricter than the RFC: an operation has exactly the members of its kind, nothing is unbounded, and each
//! operation is authorised before it is applied.
//!
//! Not here: who may what (`rules`), what a workflow says to the result (`declaration`).

use holdpoint_state::json::{self, JsonError};
use serde_json::{Map, Value};

use super::pointer::{Pointer, PointerError};
use super::rules::Permission;
use crate::definition::value;

/// How many operations a patch may have. None at all is fine.
pub const OPERATIONS_MAX: usize = 256;
/// The largest patch, in bytes of its canonical form.
pub const PATCH_BYTES_MAX: usize = 64 * 1024;
/// The largest settings, in bytes of their canonical form.
pub const VALUE_BYTES_MAX: usize = 256 * 1024;
/// The largest document between two operations. Without copies no patch that ends in bounds can pass it; copies of copies grow
/// without an end.
const BETWEEN_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX;

/// Why a patch can't be read or applied. Nothing of it is done then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is not an array.
    #[error("a patch is an array of operations")]
    NotAnArray,
    /// It does not survive JSON.
    #[error("the patch does not survive JSON")]
    Json(#[from] JsonError),
    /// It has more operations than [`OPERATIONS_MAX`].
    #[error("a patch has at most {OPERATIONS_MAX} operations, and this one has {count}")]
    TooMany {
        /// How many it has.
        count: usize,
    },
    /// It is larger than [`PATCH_BYTES_MAX`].
    #[error("a patch has at most {PATCH_BYTES_MAX} bytes, and this one has {bytes}")]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// The document after it is larger than [`VALUE_BYTES_MAX`].
    #[error(
        "settings have at most {VALUE_BYTES_MAX} bytes, and with this patch they would have {bytes}"
    )]
    ValueTooLarge {
        /// How large the document is.
        bytes: usize,
    },
    /// One of its operations is wrong.
    #[error("operation {index} of the patch: {problem}")]
    Operation {
        /// The place of the operation in the patch, from 0.
        index: usize,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with one operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is not an object.
    #[error("it is not an object")]
    NotAnObject,
    /// Its `op` is none of the six.
    #[error("\"op\" is add, remove, replace, move, copy or test, not {op}")]
    UnknownOp {
        /// What it is.
        op: String,
    },
    /// A member that its kind needs is missing.
    #[error("{field:?} is missing")]
    Missing {
        /// The member.
        field: &'static str,
    },
    /// A member that its kind does not have.
    #[error("{field:?} does not belong to it")]
    Extra {
        /// The member.
        field: String,
    },
    /// A pointer that is no text.
    #[error("{field:?} is not a text")]
    NotAText {
        /// The member.
        field: &'static str,
    },
    /// A pointer that is none.
    #[error(transparent)]
    Pointer(#[from] PointerError),
    /// There is nothing at the place.
    #[error("there is nothing at {pointer:?}")]
    NoValue {
        /// The place.
        pointer: Pointer,
    },
    /// What should hold the place is missing, or neither an object nor an array.
    #[error("nothing can be put at {pointer:?}, since there is no object or array to hold it")]
    NoParent {
        /// The place.
        pointer: Pointer,
    },
    /// The last part of the pointer is no index of an array.
    #[error("{pointer:?} names an item of an array by something that is no index")]
    Index {
        /// The place.
        pointer: Pointer,
    },
    /// The index lies past the end of the array.
    #[error("{pointer:?} lies past the end of the array")]
    PastEnd {
        /// The place.
        pointer: Pointer,
    },
    /// The whole document can't be taken away.
    #[error("the whole document can't be removed; replace it")]
    RemoveRoot,
    /// A value can't be moved into itself.
    #[error("a value can't be moved into itself")]
    IntoItself,
    /// The value is another one than `test` says.
    #[error("the value at {pointer:?} is another one")]
    TestFailed {
        /// The place.
        pointer: Pointer,
    },
    /// The actor may not do it.
    #[error("{actor} may not {permission} {pointer:?}")]
    Denied {
        /// The kind of actor.
        actor: holdpoint_state::ActorKind,
        /// What it may not do.
        permission: Permission,
        /// Where.
        pointer: Pointer,
    },
    /// The document after it would be larger or deeper than a document between two operations may be.
    #[error("the document grows out of its bounds")]
    Grows,
}

/// One operation of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchOperation {
    /// Puts a value at a place.
    Add {
        /// The place.
        path: Pointer,
        /// The value.
        value: Value,
    },
    /// Takes the value at a place away.
    Remove {
        /// The place.
        path: Pointer,
    },
    /// Puts another value in the place of one.
    Replace {
        /// The place.
        path: Pointer,
        /// The value.
        value: Value,
    },
    /// Takes a value from one place and puts it at another.
    Move {
        /// Where it is.
        from: Pointer,
        /// Where it goes.
        path: Pointer,
    },
    /// Puts the value of one place at another too.
    Copy {
        /// Where it is.
        from: Pointer,
        /// Where it goes.
        path: Pointer,
    },
    /// Lets the patch fail unless the place has this value.
    Test {
        /// The place.
        path: Pointer,
        /// The value.
        value: Value,
    },
}

/// A patch that is well formed and within its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    operations: Vec<PatchOperation>,
    json: Value,
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    ///
    /// The first [`PatchError`] that can be seen without a document.
    pub fn parse(patch: &Value) -> Result<Self, PatchError> {
        let Value::Array(entries) = patch else {
            return Err(PatchError::NotAnArray);
        };
        if entries.len() > OPERATIONS_MAX {
            return Err(PatchError::TooMany {
                count: entries.len(),
            });
        }
        let canonical = json::canonical(patch)?;
        if canonical.len() > PATCH_BYTES_MAX {
            return Err(PatchError::TooLarge {
                bytes: canonical.len(),
            });
        }
        // What is stored is what is applied: `-0` is 0 and `1.0` is 1 in both.
        let json = json::parse(&canonical)?;
        let operations = json
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, entry)| {
                operation(entry).map_err(|problem| PatchError::Operation { index, problem })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { operations, json })
    }

    /// Its operations, in order.
    pub fn operations(&self) -> &[PatchOperation] {
        &self.operations
    }

    /// The patch as JSON, as it is stored.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Applies all operations, or none. `allows` decides before each of them, against the document that it meets.
    ///
    /// # Errors
    ///
    /// The first operation that fails, or [`PatchError::ValueTooLarge`].
    pub fn apply(
        &self,
        document: &Value,
        mut allows: impl FnMut(Permission, &Pointer) -> Result<(), Problem>,
    ) -> Result<Value, PatchError> {
        let mut document = document.clone();
        for (index, operation) in self.operations.iter().enumerate() {
            operation
                .apply(&mut document, &mut allows)
                .map_err(|problem| PatchError::Operation { index, problem })?;
        }
        let bytes = json::canonical(&document)?.len();
        if bytes > VALUE_BYTES_MAX {
            return Err(PatchError::ValueTooLarge { bytes });
        }
        Ok(document)
    }
}

type Allows<'a> = dyn FnMut(Permission, &Pointer) -> Result<(), Problem> + 'a;

impl PatchOperation {
    fn apply(&self, document: &mut Value, allows: &mut Allows<'_>) -> Result<(), Problem> {
        match self {
            Self::Add { path, value } => put(document, path, value.clone(), allows),
            Self::Remove { path } => {
                allows(Permission::Remove, path)?;
                take(document, path).map(drop)
            }
            Self::Replace { path, value } => {
                allows(Permission::Replace, path)?;
                *find_mut(document, path)? = value.clone();
                Ok(())
            }
            Self::Move { from, path } if from == path => {
                // Nothing moves, and it still takes what moving takes.
                allows(Permission::Read, from)?;
                allows(Permission::Remove, from)?;
                find(document, from)?;
                let (permission, place) = destination(document, path)?;
                allows(permission, &place)
            }
            Self::Move { from, path } => {
                allows(Permission::Read, from)?;
                allows(Permission::Remove, from)?;
                if path.starts_with(from) {
                    return Err(Problem::IntoItself);
                }
                // As the RFC says: removed first, then added to what that leaves. So where it goes is judged in a document in
                // which the items behind it have closed up.
                let value = take(document, from)?;
                put(document, path, value, allows)
            }
            Self::Copy { from, path } => {
                allows(Permission::Read, from)?;
                let value = find(document, from)?.clone();
                put(document, path, value, allows)?;
                match json::canonical(document) {
                    Ok(bytes) if bytes.len() <= BETWEEN_BYTES_MAX => Ok(()),
                    Ok(_) | Err(_) => Err(Problem::Grows),
                }
            }
            Self::Test { path, value } => {
                allows(Permission::Read, path)?;
                if find(document, path)? == value {
                    Ok(())
                } else {
                    Err(Problem::TestFailed {
                        pointer: path.clone(),
                    })
                }
            }
        }
    }
}

fn operation(entry: &Value) -> Result<PatchOperation, Problem> {
    let Value::Object(members) = entry else {
        return Err(Problem::NotAnObject);
    };
    let op = match members.get("op") {
        None => return Err(Problem::Missing { field: "op" }),
        Some(Value::String(op)) => op.as_str(),
        Some(other) => {
            return Err(Problem::UnknownOp {
                op: other.to_string(),
            });
        }
    };
    let path = || pointer(members, "path");
    let from = || pointer(members, "from");
    let given = || {
        members
            .get("value")
            .cloned()
            .ok_or(Problem::Missing { field: "value" })
    };
    let (operation, fields): (_, &[&str]) = match op {
        "add" => (
            PatchOperation::Add {
                path: path()?,
                value: given()?,
            },
            &["op", "path", "value"],
        ),
        "remove" => (PatchOperation::Remove { path: path()? }, &["op", "path"]),
        "replace" => (
            PatchOperation::Replace {
                path: path()?,
                value: given()?,
            },
            &["op", "path", "value"],
        ),
        "move" => (
            PatchOperation::Move {
                from: from()?,
                path: path()?,
            },
            &["op", "from", "path"],
        ),
        "copy" => (
            PatchOperation::Copy {
                from: from()?,
                path: path()?,
            },
            &["op", "from", "path"],
        ),
        "test" => (
            PatchOperation::Test {
                path: path()?,
                value: given()?,
            },
            &["op", "path", "value"],
        ),
        other => {
            return Err(Problem::UnknownOp {
                op: format!("{other:?}"),
            });
        }
    };
    match members
        .keys()
        .find(|member| !fields.contains(&member.as_str()))
    {
        Some(extra) => Err(Problem::Extra {
            field: extra.clone(),
        }),
        None => Ok(operation),
    }
}

fn pointer(members: &Map<String, Value>, field: &'static str) -> Result<Pointer, Problem> {
    match members.get(field) {
        None => Err(Problem::Missing { field }),
        Some(Value::String(text)) => Ok(Pointer::parse(text)?),
        Some(_) => Err(Problem::NotAText { field }),
    }
}

/// What stands at a place that must have something.
fn find<'v>(document: &'v Value, place: &Pointer) -> Result<&'v Value, Problem> {
    let mut value = document;
    for token in place.tokens() {
        value = match value {
            Value::Object(members) => members.get(token),
            Value::Array(items) => items.get(index(token, place)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
        .ok_or_else(|| no_value(place))?;
    }
    Ok(value)
}

fn find_mut<'v>(document: &'v mut Value, place: &Pointer) -> Result<&'v mut Value, Problem> {
    let mut value = document;
    for token in place.tokens() {
        value = step(value, token, place)?.ok_or_else(|| no_value(place))?;
    }
    Ok(value)
}

fn step<'v>(
    value: &'v mut Value,
    token: &str,
    place: &Pointer,
) -> Result<Option<&'v mut Value>, Problem> {
    Ok(match value {
        Value::Object(members) => members.get_mut(token),
        Value::Array(items) => items.get_mut(index(token, place)?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn no_value(place: &Pointer) -> Problem {
    Problem::NoValue {
        pointer: place.clone(),
    }
}

/// What holds the place, and the place's name in it. Only a place that is not the root has that.
fn holder<'v, 'p>(
    document: &'v mut Value,
    place: &'p Pointer,
) -> Result<Option<(&'v mut Value, &'p str)>, Problem> {
    let Some((last, above)) = place.tokens().split_last() else {
        return Ok(None);
    };
    let no_parent = || Problem::NoParent {
        pointer: place.clone(),
    };
    let mut value = document;
    for token in above {
        value = step(value, token, place)?.ok_or_else(no_parent)?;
    }
    match value {
        Value::Object(_) | Value::Array(_) => Ok(Some((value, last))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(no_parent()),
    }
}

/// Takes what stands at a place.
fn take(document: &mut Value, place: &Pointer) -> Result<Value, Problem> {
    match holder(document, place)? {
        None => Err(Problem::RemoveRoot),
        Some((Value::Object(members), name)) => members.remove(name).ok_or_else(|| no_value(place)),
        Some((Value::Array(items), name)) => {
            let index = index(name, place)?;
            if index < items.len() {
                Ok(items.remove(index))
            } else {
                Err(Problem::PastEnd {
                    pointer: place.clone(),
                })
            }
        }
        Some(_) => Err(no_value(place)),
    }
}

/// What putting something at a place takes, and the place by its own name: `-` is the index that the item would get.
fn destination(document: &mut Value, place: &Pointer) -> Result<(Permission, Pointer), Problem> {
    match holder(document, place)? {
        None => Ok((Permission::Replace, place.clone())),
        Some((Value::Array(items), "-")) => {
            Ok((Permission::Add, place.with_last(items.len().to_string())))
        }
        Some((Value::Array(items), name)) => {
            if index(name, place)? <= items.len() {
                Ok((Permission::Add, place.clone()))
            } else {
                Err(Problem::PastEnd {
                    pointer: place.clone(),
                })
            }
        }
        Some((Value::Object(members), name)) if members.contains_key(name) => {
            Ok((Permission::Replace, place.clone()))
        }
        Some(_) => Ok((Permission::Add, place.clone())),
    }
}

/// Puts a value at a place, when that is allowed.
fn put(
    document: &mut Value,
    place: &Pointer,
    value: Value,
    allows: &mut Allows<'_>,
) -> Result<(), Problem> {
    let (permission, place) = destination(document, place)?;
    allows(permission, &place)?;
    match holder(document, &place)? {
        None => *document = value,
        Some((Value::Object(members), name)) => drop(members.insert(name.to_owned(), value)),
        Some((Value::Array(items), name)) => {
            let index = index(name, &place)?.min(items.len());
            items.insert(index, value);
        }
        Some(_) => return Err(Problem::NoParent { pointer: place }),
    }
    Ok(())
}

/// The index that a part of a pointer names: `0`, or digits that do not begin with 0.
fn index(token: &str, place: &Pointer) -> Result<usize, Problem> {
    let is_index = token == "0"
        || (!token.is_empty()
            && !token.starts_with('0')
            && token.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_index {
        return Err(Problem::Index {
            pointer: place.clone(),
        });
    }
    // More digits than an index can have lie past every end.
    Ok(token.parse().unwrap_or(usize::MAX))
}

/// A document as it is stored: numbers in their one form.
pub(super) fn normal(document: &Value) -> Result<Value, PatchError> {
    Ok(value::normal(document)?)
}
