//! What a workflow says about its settings, checked once and then shared.
//!
//! Not here: where settings are stored, who asks for a change (`commands::settings`).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use holdpoint_state::Actor;
use holdpoint_state::json::JsonError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::patch::{self, Patch, PatchError, Problem, VALUE_BYTES_MAX};
use super::pointer::PointerError;
use super::rules::{PathRule, Permission, Rules, is_blank};
use crate::definition::NodeError;
use crate::definition::value::to_value;

/// Reads settings, and gives them back as they are to be stored.
pub type SettingsParser = Arc<dyn Fn(&Value) -> Result<Value, NodeError> + Send + Sync>;

/// Says whether a change from one document to another by an actor makes sense.
pub type ChangeValidator =
    Arc<dyn Fn(&Value, &Value, &Actor) -> Result<(), NodeError> + Send + Sync>;

/// Why a declaration of settings is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The path of a rule is no pointer.
    #[error("the path of a rule: {0}")]
    Path(#[from] PointerError),
    /// A rule allows nothing.
    #[error(
        "the rule for {path:?} names no permission; leave it out, or name one of read, add, remove, replace"
    )]
    NoPermissions {
        /// The path of the rule.
        path: String,
    },
    /// A permission that nobody has.
    #[error("the rule for {path:?} names nobody who may {permission}")]
    NoActors {
        /// The path of the rule.
        path: String,
        /// The permission.
        permission: Permission,
    },
    /// Two rules for one place.
    #[error("two rules for {path:?} allow different things")]
    TwoRules {
        /// The path of the rules.
        path: String,
    },
    /// A description without a word.
    #[error("{} is blank", match path {
        Some(path) => format!("the description of the rule for {path:?}"),
        None => "the description of the settings".to_owned(),
    })]
    BlankDescription {
        /// The path of the rule; without one it is the description of the settings.
        path: Option<String>,
    },
    /// The workflow's own `parse` does not take the initial value.
    #[error("the initial value is refused: {0}")]
    Initial(NodeError),
    /// The initial value does not survive JSON.
    #[error("the initial value does not survive JSON: {0}")]
    Json(#[from] JsonError),
    /// The initial value is too large.
    #[error("the initial value has {bytes} bytes, and {VALUE_BYTES_MAX} are allowed")]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
}

/// Why a change is refused. Nothing of it is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The patch does not apply, or the actor may not do what it does.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// The workflow's own `parse` does not take the new document.
    #[error("the workflow does not take these settings: {0}")]
    Parse(NodeError),
    /// The workflow's own `parse` takes the new document for another one.
    #[error("the workflow would read these settings as others: {0}")]
    Altered(Value),
    /// The workflow's own `validate_change` says no.
    #[error("the workflow refuses this change: {0}")]
    Refused(NodeError),
}

/// Typed settings of a workflow in Rust.
///
/// The initial value and every change must read as `S` and write back as the same document, so a default that serde would fill in
/// must be written out: what is stored is what nodes see.
pub struct Settings<S> {
    initial: S,
    description: Option<String>,
    paths: Vec<PathRule>,
    parse: Option<SettingsParser>,
    validate_change: Option<ChangeValidator>,
}

impl<S: Serialize + DeserializeOwned + 'static> Settings<S> {
    /// Settings that begin with this value, and that nobody may change yet.
    pub fn new(initial: S) -> Self {
        Self {
            initial,
            description: None,
            paths: Vec::new(),
            parse: None,
            validate_change: None,
        }
    }

    /// Says what the settings are for.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Says who may do what at a place.
    #[must_use]
    pub fn path(mut self, rule: PathRule) -> Self {
        self.paths.push(rule);
        self
    }

    /// Reads settings by a function that checks more than the shape of `S`.
    #[must_use]
    pub fn parse_with(
        mut self,
        parse: impl Fn(&Value) -> Result<S, NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.parse = Some(Arc::new(move |value| Ok(to_value(&parse(value)?)?)));
        self
    }

    /// Asks a function about each change, after the rules allowed it.
    #[must_use]
    pub fn validate_change(
        mut self,
        validate: impl Fn(&S, &S, &Actor) -> Result<(), NodeError> + Send + Sync + 'static,
    ) -> Self {
        self.validate_change = Some(Arc::new(move |before, after, actor| {
            validate(&read(before)?, &read(after)?, actor)
        }));
        self
    }

    /// Hides the type.
    ///
    /// # Errors
    ///
    /// The initial value does not survive JSON.
    pub fn into_spec(self) -> Result<SettingsSpec, JsonError> {
        Ok(SettingsSpec {
            initial: to_value(&self.initial)?,
            description: self.description,
            parse: self
                .parse
                .unwrap_or_else(|| Arc::new(|value| Ok(to_value(&read::<S>(value)?)?))),
            paths: self.paths,
            validate_change: self.validate_change,
            declared: None,
        })
    }
}

impl<S> fmt::Debug for Settings<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Settings")
            .field("type", &PhantomData::<S>)
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

fn read<S: DeserializeOwned>(
    value: &Value,
) -> Result<S, serde_path_to_error::Error<serde_json::Error>> {
    crate::definition::value::read(value.clone())
}

/// The parts of a declaration before any check.
#[derive(Clone)]
pub struct SettingsSpec {
    /// What a new scope begins with, before `parse`.
    pub initial: Value,
    /// What the settings are for. Display only.
    pub description: Option<String>,
    /// Reads a document. Every document is stored as this returns it, and a change that it would alter is refused.
    pub parse: SettingsParser,
    /// Who may do what, and where.
    pub paths: Vec<PathRule>,
    /// Asked about each change that everything else allows.
    pub validate_change: Option<ChangeValidator>,
    /// The declared form, for a workflow file: it is part of the digest.
    pub declared: Option<Value>,
}

impl SettingsSpec {
    /// Checks the rules and the initial value.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn check(self) -> Result<SettingsDefinition, SettingsError> {
        let rules = Rules::check(&self.paths)?;
        if is_blank(self.description.as_deref()) {
            return Err(SettingsError::BlankDescription { path: None });
        }
        let mut checked = SettingsDefinition {
            initial: Value::Null,
            rules,
            spec: Arc::new(self),
        };
        let given = checked.spec.initial.clone();
        checked.initial = checked.begin(&given)?;
        Ok(checked)
    }
}

impl fmt::Debug for SettingsSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SettingsSpec")
            .field("initial", &self.initial)
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

/// Checked settings of one workflow. Clones share it.
#[derive(Debug, Clone)]
pub struct SettingsDefinition {
    initial: Value,
    rules: Rules,
    spec: Arc<SettingsSpec>,
}

impl SettingsDefinition {
    /// What a new scope begins with.
    pub fn initial(&self) -> &Value {
        &self.initial
    }

    /// Who may do what.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What the settings are for.
    pub fn description(&self) -> Option<&str> {
        self.spec.description.as_deref()
    }

    /// What a scope begins with whose workflow was entered with settings of its parent.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Initial`], [`SettingsError::Json`] or [`SettingsError::TooLarge`].
    pub fn begin(&self, given: &Value) -> Result<Value, SettingsError> {
        let parsed = (self.spec.parse)(&to_value(given)?).map_err(SettingsError::Initial)?;
        let canonical = holdpoint_state::json::canonical(&parsed)?;
        if canonical.len() > VALUE_BYTES_MAX {
            return Err(SettingsError::TooLarge {
                bytes: canonical.len(),
            });
        }
        Ok(holdpoint_state::json::parse(&canonical)?)
    }

    /// The document that a patch by this actor makes of `before`.
    ///
    /// # Errors
    ///
    /// [`ChangeError`]: the patch, the rules or the workflow's own functions refuse it.
    pub fn change(
        &self,
        before: &Value,
        patch: &Patch,
        actor: &Actor,
    ) -> Result<Value, ChangeError> {
        let after = patch.apply(before, |permission, pointer| {
            if self.rules.allows(actor.kind(), permission, pointer) {
                Ok(())
            } else {
                Err(Problem::Denied {
                    actor: actor.kind(),
                    permission,
                    pointer: pointer.clone(),
                })
            }
        })?;
        let read = (self.spec.parse)(&after).map_err(ChangeError::Parse)?;
        let read = patch::normal(&read)?;
        if read != after {
            return Err(ChangeError::Altered(read));
        }
        if let Some(validate) = &self.spec.validate_change {
            validate(before, &after, actor).map_err(ChangeError::Refused)?;
        }
        Ok(after)
    }

    /// The part of a definition's snapshot: what readers may know of it, and what a file declared.
    pub(crate) fn snapshot(&self) -> Value {
        let mut snapshot = Map::new();
        if let Some(description) = self.description() {
            snapshot.insert("description".to_owned(), description.into());
        }
        snapshot.insert("paths".to_owned(), self.rules.snapshot());
        if let Some(declared) = &self.spec.declared {
            snapshot.insert("declared".to_owned(), declared.clone());
        }
        Value::Object(snapshot)
    }
}
