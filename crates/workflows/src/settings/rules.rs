//! Path rules: which kinds of actor may do what at which place.
//!
//! The longest rule that covers a place **alone** decides: a shorter one is not asked, whatever it allows. Where no rule covers a
//! place, nothing is allowed. Not here: which permissions an operation of a patch needs (`patch`).

use std::collections::BTreeMap;
use std::fmt;

use holdpoint_state::ActorKind;
use serde_json::{Map, Value};

use super::declaration::SettingsError;
use super::pointer::Pointer;

/// What somebody may do with a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Look at the value: `test`, and the source of `copy` and `move`.
    Read,
    /// Put a new member into an object, or an item into an array.
    Add,
    /// Take the value away.
    Remove,
    /// Put another value in the place of the one that is there.
    Replace,
}

impl Permission {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Read, Self::Add, Self::Remove, Self::Replace];

    /// The word of declarations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Replace => "replace",
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Who may do what with one place and all that lies beneath it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// The place, a JSON Pointer.
    pub path: String,
    /// The kinds of actor that have each permission.
    pub permissions: BTreeMap<Permission, Vec<ActorKind>>,
    /// What the place is for. Display only.
    pub description: Option<String>,
}

impl PathRule {
    /// A rule that allows nothing yet.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            permissions: BTreeMap::new(),
            description: None,
        }
    }

    /// Says who may look.
    #[must_use]
    pub fn may_read(self, actors: &[ActorKind]) -> Self {
        self.allow(Permission::Read, actors)
    }

    /// Says who may put something new there.
    #[must_use]
    pub fn may_add(self, actors: &[ActorKind]) -> Self {
        self.allow(Permission::Add, actors)
    }

    /// Says who may take something away.
    #[must_use]
    pub fn may_remove(self, actors: &[ActorKind]) -> Self {
        self.allow(Permission::Remove, actors)
    }

    /// Says who may put another value there.
    #[must_use]
    pub fn may_replace(self, actors: &[ActorKind]) -> Self {
        self.allow(Permission::Replace, actors)
    }

    /// Says what the place is for.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    fn allow(mut self, permission: Permission, actors: &[ActorKind]) -> Self {
        self.permissions.insert(permission, actors.to_vec());
        self
    }
}

/// The checked rules of one declaration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    rules: BTreeMap<Pointer, Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    permissions: BTreeMap<Permission, Vec<ActorKind>>,
    description: Option<String>,
}

impl Rules {
    /// Checks declared rules.
    ///
    /// # Errors
    ///
    /// The first mistake, in the order of the author.
    pub fn check(declared: &[PathRule]) -> Result<Self, SettingsError> {
        let mut rules: BTreeMap<Pointer, Rule> = BTreeMap::new();
        for rule in declared {
            let path = || rule.path.clone();
            let pointer = Pointer::parse(&rule.path)?;
            if rule.permissions.is_empty() {
                return Err(SettingsError::NoPermissions { path: path() });
            }
            let mut permissions = BTreeMap::new();
            for (permission, actors) in &rule.permissions {
                if actors.is_empty() {
                    return Err(SettingsError::NoActors {
                        path: path(),
                        permission: *permission,
                    });
                }
                // The order in which an author names actors means nothing.
                let mut actors = actors.clone();
                actors.sort_unstable();
                actors.dedup();
                permissions.insert(*permission, actors);
            }
            if is_blank(rule.description.as_deref()) {
                return Err(SettingsError::BlankDescription { path: Some(path()) });
            }
            let checked = Rule {
                permissions,
                description: rule.description.clone(),
            };
            match rules.get(&pointer) {
                Some(earlier) if earlier.permissions != checked.permissions => {
                    return Err(SettingsError::TwoRules { path: path() });
                }
                Some(_) => {}
                None => drop(rules.insert(pointer, checked)),
            }
        }
        Ok(Self { rules })
    }

    /// Whether an actor of this kind may do this at this place.
    pub fn allows(&self, actor: ActorKind, permission: Permission, place: &Pointer) -> bool {
        self.rules
            .iter()
            .filter(|(prefix, _)| place.starts_with(prefix))
            .max_by_key(|(prefix, _)| prefix.tokens().len())
            .and_then(|(_, rule)| rule.permissions.get(&permission))
            .is_some_and(|actors| actors.contains(&actor))
    }

    /// The rules as the snapshot of a definition has them, sorted by place.
    pub(crate) fn snapshot(&self) -> Value {
        self.rules
            .iter()
            .map(|(path, rule)| {
                let mut entry = Map::new();
                entry.insert("path".to_owned(), path.to_string().into());
                for (permission, actors) in &rule.permissions {
                    let actors: Value = actors.iter().map(|actor| actor.as_str()).collect();
                    entry.insert(permission.as_str().to_owned(), actors);
                }
                if let Some(description) = &rule.description {
                    entry.insert("description".to_owned(), description.as_str().into());
                }
                Value::Object(entry)
            })
            .collect()
    }
}

/// Whether a description is there and says nothing.
pub(super) fn is_blank(description: Option<&str>) -> bool {
    description.is_some_and(|description| description.trim().is_empty())
}
