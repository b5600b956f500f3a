//! The controller of the soak, whose acts are lines in a journal.

use std::path::PathBuf;

use holdpoint_controllers::model::EffectRequest;
use holdpoint_controllers::{
    Acted, Action, Controller, EffectCall, ExternalEffect, Observed, Pass, PassError, finalizer,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{length, read};
use crate::host::note;

/// One line in the journal.
struct Line {
    home: PathBuf,
    key: String,
    text: String,
    /// Only looks whether it is there, and writes it no more.
    gives_up: bool,
}

impl ExternalEffect for Line {
    fn kind(&self) -> &'static str {
        "soak.line"
    }

    fn key(&self) -> String {
        self.key.clone()
    }

    fn request(&self) -> Value {
        json!({ "line": self.text })
    }

    fn observe(&self, _: &EffectCall<'_>) -> Result<Observed, PassError> {
        let is_there = read(&self.home, "journal")
            .lines()
            .any(|line| line == self.text);
        Ok(if is_there {
            Observed::applied()
        } else {
            Observed::NotApplied
        })
    }

    fn apply(&self, _: &EffectCall<'_>) -> Result<Acted, PassError> {
        if self.gives_up {
            return Ok(Acted::rejected("the resource goes"));
        }
        note(&self.home, "journal", &self.text)?;
        Ok(Acted::applied())
    }
}

/// What a pass says of its resource.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Status {
    /// The generation whose act is settled.
    pub(super) acted: u64,
    /// How much was told by the time of the pass.
    pub(super) told: u64,
}

/// Writes each spec into the journal once, and a last line for each resource that goes.
pub(super) struct Soaked {
    pub(super) home: PathBuf,
}

impl Controller for Soaked {
    type Spec = String;
    type Status = Status;

    fn name(&self) -> &'static str {
        "soaked"
    }

    fn initial_status(&self, _: &String) -> Status {
        Status::default()
    }

    fn effect(&self, request: &EffectRequest) -> Option<Box<dyn ExternalEffect>> {
        Some(Box::new(Line {
            home: self.home.clone(),
            key: request.key.to_string(),
            text: request.request.get("line")?.as_str()?.to_owned(),
            gives_up: true,
        }))
    }

    fn reconcile(&self, pass: &mut Pass<'_, String, Status>) -> Result<Action, PassError> {
        let uid = pass.metadata().uid.to_string();
        let told = length(&self.home.join("told").join(pass.metadata().key.as_str()));
        note(&self.home, "passes", &uid)?;
        finalizer::with(pass, "example.com/soaked", |pass, event| {
            let acted = pass.generation();
            let line = |key: String, text: String, gives_up| Line {
                home: self.home.clone(),
                key,
                text,
                gives_up,
            };
            let set = |gives_up| {
                let text = format!("set {uid} {acted} {}", pass.spec());
                line(format!("set-{acted}"), text, gives_up)
            };
            match event {
                finalizer::Event::Apply => {
                    pass.ensure(&set(false))?;
                    pass.set_status(Status { acted, told });
                }
                // A host may have died in the middle of this generation's act, and nobody else would ask what became of it.
                finalizer::Event::Cleanup if pass.status().acted != acted => {
                    pass.ensure(&set(true))?;
                    pass.set_status(Status { acted, told });
                    return Ok(Action::requeue());
                }
                finalizer::Event::Cleanup => {
                    pass.ensure(&line("remove".to_owned(), format!("remove {uid}"), false))?;
                }
            }
            Ok(Action::settled())
        })
    }
}
