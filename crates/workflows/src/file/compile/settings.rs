//! The live settings of a workflow file.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdpoint_state::ActorKind;
use serde_json::{Value, json};

use super::input::check_fields;
use super::{Compiler, Prepared, Result};
use crate::definition::NodeError;
use crate::file::expression::Environment;
use crate::file::format::{ActorWord, PathDocument, SettingsDocument};
use crate::settings::{
    ChangeValidator, PathRule, Permission, SettingsError, SettingsParser, SettingsSpec,
};

impl Compiler<'_> {
    pub(super) fn settings(&self, document: SettingsDocument) -> Result<SettingsSpec> {
        let declared = self.declared_settings();
        let fields = document.fields;
        if let Some(fields) = &fields {
            self.check_defaults("settings", "V7", fields)?;
        }
        let parse: SettingsParser = Arc::new(move |value| match &fields {
            None => Ok(value.clone()),
            Some(fields) => check_fields(
                ("the settings", "setting", "SettingsError"),
                fields,
                value.clone(),
            ),
        });
        let validate_change = document
            .validate_change
            .map(|template| self.prepare(template))
            .transpose()?
            .map(validator);
        Ok(SettingsSpec {
            initial: document.initial,
            description: document.description,
            parse,
            paths: document.paths.into_iter().map(rule).collect(),
            validate_change,
            declared: Some(declared),
        })
    }

    /// What of `settings` decides behaviour, and is not in the rules that every snapshot has.
    fn declared_settings(&self) -> Value {
        let index = self
            .tree
            .root()
            .and_then(|root| self.tree.child(root, "settings"));
        let mut declared = index.map_or(Value::Null, |index| self.tree.value(index));
        if let Some(members) = declared.as_object_mut() {
            members.remove("description");
            members.remove("paths");
        }
        super::input::remove_descriptions(&mut declared);
        declared
    }
}

/// The member of the block that a mistake is in.
pub(super) fn member_of(error: &SettingsError) -> &'static str {
    match error {
        SettingsError::Initial(_) | SettingsError::Json(_) | SettingsError::TooLarge { .. } => {
            "initial"
        }
        SettingsError::BlankDescription { path: None } => "description",
        SettingsError::BlankDescription { path: Some(_) }
        | SettingsError::Path(_)
        | SettingsError::NoPermissions { .. }
        | SettingsError::NoActors { .. }
        | SettingsError::TwoRules { .. } => "paths",
    }
}

fn rule(document: PathDocument) -> PathRule {
    let permissions = [
        (Permission::Read, document.read),
        (Permission::Add, document.add),
        (Permission::Remove, document.remove),
        (Permission::Replace, document.replace),
    ];
    let permissions: BTreeMap<_, _> = permissions
        .into_iter()
        .filter_map(|(permission, actors)| {
            Some((permission, actors?.into_iter().map(kind).collect()))
        })
        .collect();
    PathRule {
        path: document.path,
        permissions,
        description: document.description,
    }
}

const fn kind(word: ActorWord) -> ActorKind {
    match word {
        ActorWord::Session => ActorKind::Session,
        ActorWord::Host => ActorKind::Host,
        ActorWord::Controller => ActorKind::Controller,
        ActorWord::Channel => ActorKind::Channel,
        ActorWord::Human => ActorKind::Human,
        ActorWord::Policy => ActorKind::Policy,
        ActorWord::Control => ActorKind::Control,
        ActorWord::System => ActorKind::System,
    }
}

fn validator(prepared: Prepared) -> ChangeValidator {
    Arc::new(move |before, after, actor| {
        let environment = || Environment {
            dot: json!({ "before": before, "after": after, "actor": actor.kind().as_str() }),
            settings: after.clone(),
            ..Environment::default()
        };
        let refuse = |reason: String| Err(NodeError::named("SettingsError", reason));
        match prepared.value(&environment)? {
            Value::Bool(true) => Ok(()),
            Value::Bool(false) => refuse("validateChange gives false".to_owned()),
            Value::String(reason) => refuse(reason),
            other => refuse(format!(
                "validateChange must give true, false or a text, not {other}"
            )),
        }
    })
}
