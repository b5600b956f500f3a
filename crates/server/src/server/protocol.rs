//! Envelopes of the client protocol: what a request says, strictly, and what answers and events look like.
//!
//! A frame that is no request ends its connection. A request that asks for something else than there is, is answered `rejected`.
//! Not here: doing anything.

use holdpoint_viewer::documents::PageKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The protocol.
pub(super) const SCHEMA: &str = "pi-workflows.client.v1";
/// The client whose version the server presents. Each release of it takes its own only.
pub(super) const CLIENT_VERSION: &str = "0.16.6";
/// The longest id, in bytes.
const ID_BYTES: usize = 256;
/// The longest path of a content, in bytes.
const PATH_BYTES: usize = 1_024;

/// A request as it arrives.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Envelope {
    schema: String,
    r#type: String,
    request_id: String,
    client_id: String,
    operation: String,
    idempotency_key: String,
    #[serde(default)]
    run_id: Option<String>,
    #[serde(default)]
    expected_revision: Option<u64>,
    payload: Map<String, Value>,
}

/// A request that can be answered.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    /// Its id, for the answer.
    pub(super) id: String,
    /// What is asked for; otherwise why it is rejected.
    pub(super) asks: Result<Ask, &'static str>,
}

/// What can be asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Ask {
    WatchRuns {
        subscription: String,
        limit: Option<u64>,
    },
    RunsPage {
        revision: String,
        cursor: u64,
    },
    WatchRun {
        subscription: String,
        run: String,
    },
    UnwatchRun {
        subscription: String,
    },
    Page {
        run: String,
        kind: PageKind,
        cursor: u64,
    },
    Content {
        run: String,
        path: String,
        offset: u64,
    },
    /// How the server is.
    Status,
    /// That it ends.
    Stop,
}

/// Reads a request. Nothing when the frame is none, and its connection ends.
pub(super) fn request(frame: Value) -> Option<Request> {
    let envelope: Envelope = serde_json::from_value(frame).ok()?;
    let ids = [
        &envelope.request_id,
        &envelope.client_id,
        &envelope.idempotency_key,
    ];
    let is_request = envelope.schema == SCHEMA
        && envelope.r#type == "request"
        && ids.into_iter().chain(&envelope.run_id).all(|id| is_id(id));
    if !is_request {
        return None;
    }
    let id = envelope.request_id.clone();
    Some(Request {
        id,
        asks: ask(envelope),
    })
}

fn is_id(text: &str) -> bool {
    (1..=ID_BYTES).contains(&text.len())
}

fn ask(envelope: Envelope) -> Result<Ask, &'static str> {
    let wrong = Err("the payload is not what this operation takes");
    if envelope.expected_revision.is_some() {
        return Err("this operation takes no expected revision");
    }
    let mut members = Members(envelope.payload);
    let asks = match (envelope.operation.as_str(), envelope.run_id) {
        ("view.runs.watch", None) => members.id("subscriptionId").and_then(|subscription| {
            let limit = members.optional_number("limit").ok()?;
            Some(Ask::WatchRuns {
                subscription,
                limit,
            })
        }),
        ("view.runs.page", None) => members
            .id("revision")
            .zip(members.number("cursor"))
            .map(|(revision, cursor)| Ask::RunsPage { revision, cursor }),
        ("view.run.watch", Some(run)) => members
            .id("subscriptionId")
            .map(|subscription| Ask::WatchRun { subscription, run }),
        ("view.run.unwatch", Some(_)) => members
            .id("subscriptionId")
            .map(|subscription| Ask::UnwatchRun { subscription }),
        ("view.page", Some(run)) => members
            .text("kind", ID_BYTES)
            .and_then(|kind| PageKind::from_text(&kind))
            .zip(members.number("cursor"))
            .map(|(kind, cursor)| Ask::Page { run, kind, cursor }),
        ("view.content", Some(run)) => members
            .text("path", PATH_BYTES)
            .zip(members.number("offset"))
            .map(|(path, offset)| Ask::Content { run, path, offset }),
        ("server.status", None) => Some(Ask::Status),
        ("server.stop", None) => Some(Ask::Stop),
        (
            "view.runs.watch" | "view.runs.page" | "view.run.watch" | "view.run.unwatch"
            | "view.page" | "view.content" | "server.status" | "server.stop",
            _,
        ) => return Err("this operation is about one run, or about none: see runId"),
        _ => return Err("this server does not have that operation"),
    };
    match asks {
        Some(asks) if members.0.is_empty() => Ok(asks),
        _ => wrong,
    }
}

/// The members of a payload, each taken once.
struct Members(Map<String, Value>);

impl Members {
    fn text(&mut self, name: &str, limit: usize) -> Option<String> {
        match self.0.remove(name) {
            Some(Value::String(text)) if (1..=limit).contains(&text.len()) => Some(text),
            _ => None,
        }
    }

    fn id(&mut self, name: &str) -> Option<String> {
        self.text(name, ID_BYTES)
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        self.0.remove(name).as_ref().and_then(Value::as_u64)
    }

    /// A positive number, if it is there; an error when something else is.
    fn optional_number(&mut self, name: &str) -> Result<Option<u64>, ()> {
        if !self.0.contains_key(name) {
            return Ok(None);
        }
        match self.number(name) {
            Some(number) if 0 < number => Ok(Some(number)),
            _ => Err(()),
        }
    }
}

/// The words for how a request ended, as far as this server uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Outcome {
    Accepted,
    Rejected,
    Conflict,
    NotFound,
    Unavailable,
}

/// How a request ended.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    pub(super) receipt: Option<Value>,
    pub(super) error: Option<String>,
}

impl Answer {
    pub(super) fn accepted(receipt: Value) -> Self {
        Self {
            outcome: Outcome::Accepted,
            receipt: Some(receipt),
            error: None,
        }
    }

    pub(super) fn refused(outcome: Outcome, error: impl Into<String>) -> Self {
        Self {
            outcome,
            receipt: None,
            error: Some(error.into()),
        }
    }

    /// The message to the request of that id.
    pub(super) fn to(&self, request: &str) -> Value {
        let mut message = json!({ "schema": SCHEMA, "type": "response", "requestId": request, "outcome": self.outcome });
        if let Some(members) = message.as_object_mut() {
            if let Some(receipt) = &self.receipt {
                members.insert("receipt".to_owned(), receipt.clone());
            }
            if let Some(error) = &self.error {
                members.insert("error".to_owned(), error.as_str().into());
            }
        }
        message
    }
}

/// The first message of a connection.
pub(super) fn hello(connection: &str) -> Value {
    json!({ "schema": SCHEMA, "type": "hello", "connectionId": connection, "packageVersion": CLIENT_VERSION })
}

/// A message to a subscription.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the words of the protocol")]
pub(super) struct Event<'a, T> {
    pub(super) schema: &'static str,
    pub(super) r#type: &'static str,
    pub(super) subscription_id: &'a str,
    pub(super) event: &'static str,
    pub(super) revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run_id: Option<&'a str>,
    pub(super) payload: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(operation: &str, run: Option<&str>, payload: &Value) -> Value {
        let mut request = json!({ "schema": SCHEMA, "type": "request", "requestId": "piw-1-1", "clientId": "piw-1",
            "operation": operation, "idempotencyKey": "piw-1-1", "payload": payload });
        if let Some(run) = run {
            request["runId"] = run.into();
        }
        request
    }

    #[test]
    fn each_operation_takes_its_members_and_no_other() {
        let watch = json!({ "subscriptionId": "s" });
        let operations = [
            ("view.runs.watch", None, watch.clone()),
            (
                "view.runs.page",
                None,
                json!({ "revision": "1:2", "cursor": 3 }),
            ),
            ("view.run.watch", Some("r"), watch.clone()),
            ("view.run.unwatch", Some("r"), watch),
            (
                "view.page",
                Some("r"),
                json!({ "kind": "trace_at_step", "cursor": 0 }),
            ),
            (
                "view.content",
                Some("r"),
                json!({ "path": "p", "offset": 0 }),
            ),
            ("server.status", None, json!({})),
            ("server.stop", None, json!({})),
        ];
        for (operation, run, payload) in operations {
            let asks =
                |run, payload: Value| request(envelope(operation, run, &payload)).unwrap().asks;
            assert!(asks(run, payload.clone()).is_ok(), "{operation}");
            let other = if run.is_some() { None } else { Some("r") };
            assert!(asks(other, payload.clone()).is_err(), "{operation}");
            let mut more = payload.clone();
            more["other"] = 1.into();
            assert!(asks(run, more).is_err(), "{operation}");
            for name in payload.as_object().unwrap().keys() {
                for wrong in [Value::Null, json!(-1), json!(""), json!([])] {
                    let mut changed = payload.clone();
                    changed[name] = wrong;
                    assert!(asks(run, changed).is_err(), "{operation} {name}");
                }
            }
        }
        let unknown = request(envelope("run.pause", Some("r"), &json!({}))).unwrap();
        assert_eq!(
            unknown.asks,
            Err("this server does not have that operation")
        );
    }

    #[test]
    fn what_is_no_request_is_not_answered() {
        let good = envelope(
            "view.runs.watch",
            None,
            &json!({ "subscriptionId": "runs" }),
        );
        assert!(request(good.clone()).is_some());
        for (name, wrong) in [
            ("schema", json!("pi-workflows.client.v2")),
            ("type", json!("response")),
            ("requestId", json!("")),
            ("clientId", json!("x".repeat(257))),
            ("idempotencyKey", json!(1)),
            ("payload", json!([])),
            ("runId", json!("")),
            ("more", json!(1)),
        ] {
            let mut changed = good.clone();
            changed[name] = wrong;
            assert_eq!(request(changed), None, "{name}");
        }
        for frame in [json!([]), json!(1), json!({})] {
            assert_eq!(request(frame), None);
        }
    }
}
