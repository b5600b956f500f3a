//! What an attempt asks, before the transaction that makes a request of it. It travels from a worker process to its host as JSON.

use holdpoint_state::clock::UnixMillis;
use holdpoint_workflows::definition::Waiting;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Deadline;
use crate::model::{
    Answerers, Choices, Draft, Invalid, OnTimeout, Presentation, Request, from_iso, to_iso,
};

/// Everything that is asked but for who asks and when.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) audience: String,
    pub(super) title: String,
    pub(super) presentation: Presentation,
    pub(super) choices: Choices,
    pub(super) subject: Value,
    pub(super) deadline: Deadline,
    /// Always of the definition: it does not travel.
    pub(super) answerers: Answerers,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    audience: String,
    title: String,
    presentation: Value,
    choices: Value,
    subject: Value,
    #[serde(default)]
    on_timeout: Option<OnTimeoutDocument>,
    #[serde(default)]
    expires_at: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OnTimeoutDocument {
    after_ms: f64,
    response: Value,
}

impl Plan {
    pub(super) fn document(&self) -> Value {
        let mut document = json!({
            "audience": self.audience,
            "title": self.title,
            "presentation": self.presentation,
            "choices": self.choices,
            "subject": self.subject,
        });
        if let Some(members) = document.as_object_mut() {
            members.extend(deadline_members(&self.deadline));
        }
        document
    }

    pub(super) fn read(document: &Value) -> Result<Self, Invalid> {
        let shape = |at: &str, problem: &'static str| Invalid::Shape {
            at: at.to_owned(),
            problem,
        };
        let document: Document = serde_json::from_value(document.clone())
            .ok()
            .ok_or_else(|| shape("plan", "it is not what a decision parks with"))?;
        let expires_at = document
            .expires_at
            .map(|at| from_iso(&at).ok_or_else(|| shape("expiresAt", "an instant is expected")))
            .transpose()?;
        Ok(Self {
            audience: document.audience,
            title: document.title,
            presentation: Presentation::read(&document.presentation)?,
            choices: Choices::read(&document.choices)?,
            subject: document.subject,
            deadline: match (document.on_timeout, expires_at) {
                (Some(_), Some(_)) => return Err(Invalid::TwoDeadlines),
                (Some(policy), None) => Deadline::OnTimeout(OnTimeout {
                    after_ms: policy.after_ms,
                    response: policy.response,
                }),
                (None, Some(at)) => Deadline::ExpiresAt(at),
                (None, None) => Deadline::None,
            },
            answerers: Answerers::Anyone,
        })
    }

    /// Everything that can be wrong with it, wherever and whenever it is asked. Whether a fixed deadline is still to come only the
    /// transaction knows.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let anywhere = ("run", "workflow", "node", "attempt");
        let begin = match self.deadline {
            Deadline::ExpiresAt(at) => at.plus(-1),
            Deadline::None | Deadline::OnTimeout(_) => UnixMillis(0),
        };
        self.of(anywhere, begin).map(drop)
    }

    /// Everything that can be wrong with it when it is asked at this instant.
    pub(super) fn check_at(&self, now: UnixMillis) -> Result<(), Invalid> {
        self.of(("run", "workflow", "node", "attempt"), now)
            .map(drop)
    }

    /// The request of an attempt that waits.
    pub(super) fn request(&self, waiting: &Waiting<'_>) -> Result<Request, Invalid> {
        let whose = (
            waiting.run_id.as_str(),
            waiting.workflow,
            waiting.node_id.as_str(),
            waiting.attempt_id.as_str(),
        );
        self.of(whose, waiting.now)
    }

    fn of(
        &self,
        (run, workflow, node, attempt): (&str, &str, &str, &str),
        created_at: UnixMillis,
    ) -> Result<Request, Invalid> {
        let (on_timeout, expires_at) = match &self.deadline {
            Deadline::None => (None, None),
            Deadline::OnTimeout(policy) => (Some(policy.clone()), None),
            Deadline::ExpiresAt(at) => (None, Some(*at)),
        };
        let draft = Draft {
            run_id: run.to_owned(),
            workflow_name: workflow.to_owned(),
            node_id: node.to_owned(),
            attempt_id: attempt.to_owned(),
            audience: self.audience.clone(),
            title: self.title.clone(),
            choices: self.choices.clone(),
            subject: self.subject.clone(),
            presentation: self.presentation.clone(),
            revision: 1,
            on_timeout,
            expires_at,
            created_at,
        };
        Request::answered_by(self.answerers, draft)
    }
}

pub(super) fn deadline_members(deadline: &Deadline) -> Map<String, Value> {
    let mut members = Map::new();
    match deadline {
        Deadline::None => {}
        Deadline::OnTimeout(policy) => {
            let policy = json!({ "afterMs": policy.after_ms, "response": policy.response });
            members.insert("onTimeout".to_owned(), policy);
        }
        Deadline::ExpiresAt(at) => {
            members.insert("expiresAt".to_owned(), to_iso(*at).into());
        }
    }
    members
}
