//! Workers that do wrong: they speak the protocol by hand, as docs/WORKERS.md writes it down.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use holdpoint_state::json;
use holdpoint_workflows::definition::CancellationSignal;
use serde_json::{Value, json};

/// A worker that was launched and has read its launch.
struct Raw {
    stream: UnixStream,
    header: Value,
    launch: Value,
    next: u64,
}

impl Raw {
    fn open() -> Self {
        let stream = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        let mut raw = Self {
            stream: UnixStream::from(stream),
            header: Value::Null,
            launch: Value::Null,
            next: 1,
        };
        loop {
            let (header, body) = raw.read();
            match header["kind"].as_str().unwrap() {
                "launch" => {
                    raw.header = header;
                    raw.launch = body;
                }
                "step" => {}
                _ => return raw,
            }
        }
    }

    fn read(&mut self) -> (Value, Value) {
        let mut lengths = [0_u8; 8];
        self.stream.read_exact(&mut lengths).unwrap();
        let length = |at: usize| {
            let bytes: [u8; 4] = lengths[at..at + 4].try_into().unwrap();
            usize::try_from(u32::from_be_bytes(bytes)).unwrap()
        };
        let (mut header, mut body) = (vec![0; length(0)], vec![0; length(4)]);
        self.stream.read_exact(&mut header).unwrap();
        self.stream.read_exact(&mut body).unwrap();
        (
            serde_json::from_slice(&header).unwrap(),
            serde_json::from_slice(&body).unwrap(),
        )
    }

    fn header(&self, kind: &str, id: u64) -> Value {
        let mut header = self.header.clone();
        header["kind"] = json!(kind);
        header["id"] = json!(id);
        header
    }

    fn write(&mut self, header: &Value, body: &[u8]) {
        let header = json::to_canonical(header).unwrap();
        let mut bytes = Vec::new();
        for part in [header.as_slice(), body] {
            bytes.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
        }
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(body);
        drop(self.stream.write_all(&bytes));
    }

    /// Sends a message and gives the answer; the process ends when there is none.
    fn say(&mut self, kind: &str, body: &Value) -> Value {
        let header = self.header(kind, self.next);
        self.next += 1;
        self.write(&header, &json::to_canonical(body).unwrap());
        self.answer()
    }

    fn answer(&mut self) -> Value {
        let (header, body) = self.read();
        self.header["expected"] = header["expected"].clone();
        body
    }

    fn ready(&mut self) {
        let answer = self.say("ready", &json!({ "protocol": 1 }));
        assert_eq!(answer["outcome"], "accepted", "{answer}");
    }

    /// Begins the run at its first node, as an honest worker of [`every`](crate::support::every) would.
    fn begin(&mut self) -> Value {
        self.ready();
        let next = start("count", 1);
        self.say(
            "begin",
            &json!({ "plan": "first", "title": "raw", "next": next }),
        )
    }

    /// The end of the first node.
    fn counted(begun: &Value) -> Value {
        let at = begun["startedAt"].as_i64().unwrap();
        json!({ "result": {
            "attemptId": attempt("count", 1), "nodeId": "count", "nodeType": "compute", "outcome": "ok",
            "startedAt": at, "finishedAt": at + 1, "durationMs": 1, "output": 7,
        }})
    }

    /// Goes on to the action, which may act then.
    fn acting(&mut self) -> Value {
        let begun = self.begin();
        let finished = Self::counted(&begun);
        let mut next = start("act", 1);
        next["request"] =
            json!({ "input": self.launch["run"]["input"], "outputs": { "count": 7 } });
        self.say("advance", &json!({ "finished": finished, "next": next }))
    }

    /// The end of the action.
    fn acted(begun: &Value, output: &Value) -> Value {
        let at = begun["startedAt"].as_i64().unwrap();
        json!({
            "result": {
                "attemptId": attempt("act", 1), "nodeId": "act", "nodeType": "action", "outcome": "ok",
                "startedAt": at, "finishedAt": at, "durationMs": 0, "output": output,
            },
            "receipt": { "actionType": "function" },
            "settlement": { "state": "applied" },
        })
    }
}

fn attempt(node: &str, visit: u32) -> String {
    format!("attempt-{}-{node}-{visit}", std::process::id())
}

fn start(node: &str, visit: u32) -> Value {
    json!({
        "move": "start", "attemptId": attempt(node, visit), "nodeId": node, "visit": visit,
        "timeout": { "millis": 30_000 },
    })
}

fn wait_for_ever() {
    CancellationSignal::never().wait(Duration::from_mins(10));
}

/// Does wrong in the way of its mode, then waits to be ended.
pub(crate) fn misbehave(mode: &str) {
    match mode {
        // Before anything is said.
        "mute" => wait_for_ever(),
        "deaf-to-signals" => {
            let child = std::process::Command::new("sh")
                .args(["-c", "trap '' TERM; while true; do sleep 1; done"])
                .spawn();
            // The host keeps it as the diagnostic.
            let said = format!("child {}\n", child.unwrap().id());
            drop(std::io::stderr().write_all(said.as_bytes()));
            wait_for_ever();
        }
        "garbage" => {
            let mut raw = Raw::open();
            drop(raw.stream.write_all(&[0xff; 4096]));
        }
        "text" => {
            let mut raw = Raw::open();
            drop(
                raw.stream
                    .write_all(b"Hello, I am a worker and I print where I should not.\n"),
            );
        }
        "half" => {
            let mut raw = Raw::open();
            raw.ready();
            drop(raw.stream.write_all(&[0, 0, 0, 60, 0, 0]));
            return;
        }
        "unready" => {
            let mut raw = Raw::open();
            raw.say(
                "begin",
                &json!({ "plan": "first", "next": start("count", 1) }),
            );
        }
        "empty-handed" => {
            Raw::open().ready();
            return;
        }
        "silent" => Raw::open().ready(),
        "leaves" => {
            Raw::open().begin();
            return;
        }
        _ => return after_ready(mode),
    }
    wait_for_ever();
}

fn after_ready(mode: &str) {
    let mut raw = Raw::open();
    match mode {
        "flood" => {
            raw.begin();
            let header = raw.header("heartbeat", 0);
            for _ in 0..100_000 {
                raw.write(&header, b"{}");
            }
        }
        "hungry" => {
            raw.begin();
            let hoard = vec![1_u8; 3 << 30];
            assert!(!hoard.is_empty());
        }
        "oversized" => {
            raw.ready();
            let body = json::to_canonical(&json!("x".repeat(2 * 1024 * 1024))).unwrap();
            let header = raw.header("begin", raw.next);
            raw.write(&header, &body);
        }
        "not-canonical" => {
            raw.ready();
            let header = raw.header("begin", raw.next);
            raw.write(&header, br#"{ "plan": "again" }"#);
        }
        "unknown-member" => {
            raw.ready();
            raw.say(
                "begin",
                &json!({ "plan": "first", "next": start("count", 1), "more": 1 }),
            );
        }
        "unknown-kind" => {
            raw.begin();
            raw.say("dropTables", &json!({}));
        }
        "another-run" | "another-epoch" => {
            raw.ready();
            let member = if mode == "another-run" {
                "run"
            } else {
                "epoch"
            };
            raw.header[member] = json!("20260101t000000000z-other-0123abcd");
            raw.say(
                "begin",
                &json!({ "plan": "first", "next": start("count", 1) }),
            );
        }
        // The generation is judged before the body, which is nothing at all here.
        "old-generation" => {
            raw.ready();
            let mut header = raw.header("begin", raw.next);
            header["generation"] = json!(0);
            raw.write(&header, b"\xff\x00 this is no JSON");
        }
        "future-revision" | "old-revision" => {
            raw.begin();
            let expected = raw.header["expected"].as_u64().unwrap();
            raw.header["expected"] = json!(if mode == "old-revision" {
                expected - 1
            } else {
                expected + 7
            });
            raw.say("handOver", &json!({}));
        }
        "number-twice" | "repeat" => {
            let begun = raw.begin();
            let body = if mode == "repeat" {
                json!({ "plan": "first", "title": "raw", "next": start("count", 1) })
            } else {
                json!({ "plan": "first", "title": "another", "next": start("count", 1) })
            };
            let now = raw.header["expected"].clone();
            // The message as it was: with the revision that it saw then.
            raw.header["expected"] = json!(now.as_u64().unwrap() - 2);
            let header = raw.header("begin", raw.next - 1);
            raw.write(&header, &json::to_canonical(&body).unwrap());
            let again = raw.answer();
            assert_eq!(again, begun);
            raw.header["expected"] = now;
            raw.say("handOver", &json!({}));
            return;
        }
        "number-skipped" => {
            raw.begin();
            raw.next += 1;
            raw.say("handOver", &json!({}));
        }
        "twice" => {
            raw.begin();
            raw.say(
                "begin",
                &json!({ "plan": "first", "next": start("count", 1) }),
            );
        }
        _ => propose_wrongly(raw, mode),
    }
    wait_for_ever();
}

fn propose_wrongly(mut raw: Raw, mode: &str) {
    let step = |finished: Value, next: Value| json!({ "finished": finished, "next": next });
    match mode {
        "unknown-node" => {
            raw.ready();
            raw.say(
                "begin",
                &json!({ "plan": "first", "next": start("nowhere", 1) }),
            );
        }
        "not-the-start" => {
            raw.ready();
            raw.say(
                "begin",
                &json!({ "plan": "first", "next": start("end", 1) }),
            );
        }
        "another-plan" => {
            raw.ready();
            raw.say(
                "begin",
                &json!({ "plan": "again", "next": start("count", 1) }),
            );
        }
        "wrong-attempt" | "wrong-type" | "wrong-start" | "no-output" | "wrong-duration"
        | "forged-settlement" | "forged-prompt" | "late" => {
            let begun = raw.begin();
            let mut finished = Raw::counted(&begun);
            let at = begun["startedAt"].as_i64().unwrap();
            match mode {
                "wrong-attempt" => finished["result"]["attemptId"] = json!("attempt-of-another"),
                "wrong-type" => finished["result"]["nodeType"] = json!("checkpoint"),
                "wrong-start" => {
                    finished["result"]["startedAt"] = json!(at - 5);
                    finished["result"]["durationMs"] = json!(6);
                }
                "no-output" => drop(finished["result"].as_object_mut().unwrap().remove("output")),
                "wrong-duration" => finished["result"]["durationMs"] = json!(0),
                "forged-settlement" => finished["settlement"] = json!({ "state": "applied" }),
                "forged-prompt" => finished["prompt"] = json!("nobody was told this"),
                _ => {
                    finished["result"]["finishedAt"] = json!(at + 3_600_000);
                    finished["result"]["durationMs"] = json!(3_600_000);
                }
            }
            let mut next = start("act", 1);
            next["request"] = json!({});
            raw.say("advance", &step(finished, next));
        }
        "wrong-route" | "wrong-visit" | "forged-effect" | "completes" | "wrong-budget" => {
            let begun = raw.begin();
            let finished = Raw::counted(&begun);
            let next = match mode {
                "wrong-route" => start("ask", 1),
                "wrong-visit" => start("act", 3),
                "completes" => json!({ "move": "complete" }),
                "wrong-budget" => {
                    let mut next = start("act", 1);
                    next["request"] = json!({});
                    next["timeout"] = json!("unlimited");
                    next
                }
                // The first node again, with an effect that it has not.
                _ => {
                    let mut next = start("count", 2);
                    next["request"] = json!({});
                    next
                }
            };
            raw.say("advance", &step(finished, next));
        }
        _ => act_wrongly(raw, mode),
    }
    wait_for_ever();
}

fn act_wrongly(mut raw: Raw, mode: &str) {
    let step = |finished: Value, next: Value| json!({ "finished": finished, "next": next });
    match mode {
        "forged-result" | "unsettled" | "acts-without" | "finished-twice" => {
            let begun = raw.acting();
            assert_eq!(begun["effect"]["state"], "execute", "{begun}");
            let mut finished = Raw::acted(&begun, &json!("done"));
            match mode {
                "forged-result" => {
                    finished["settlement"] =
                        json!({ "state": "applied", "execution": { "output": "another" } });
                }
                "unsettled" => drop(finished.as_object_mut().unwrap().remove("settlement")),
                "acts-without" => {
                    finished["settlement"] =
                        json!({ "state": "rejected", "error": "it never acted" });
                }
                _ => {}
            }
            let mut next = start("sh", 1);
            next["request"] = json!({ "input": raw.launch["run"]["input"], "outputs": { "act": "done", "count": 7 } });
            let said = step(finished, next);
            raw.say("advance", &said);
            raw.say("advance", &said);
        }
        "protected" => {
            // A person's decision, without the rows of the domain that protects it.
            drop(raw.begin());
            let body = json!({
                "attemptId": attempt("count", 1), "kind": "decision", "contract": {}, "hasRows": false,
            });
            raw.say("wait", &body);
        }
        "early-answer" => {
            let begun = raw.begin();
            drop(begun);
            let body = json!({
                "attemptId": attempt("count", 1), "kind": "checkpoint", "contract": {}, "hasRows": false,
            });
            raw.say("wait", &body);
        }
        "doubts" => {
            raw.begin();
            raw.say("doubt", &json!({}));
        }
        _ => decide_wrongly(raw, mode),
    }
    wait_for_ever();
}

/// Lies about candidates, budgets and settings.
fn decide_wrongly(mut raw: Raw, mode: &str) {
    match mode {
        "accepts-a-failure"
        | "accepts-with-a-receipt"
        | "accepts-for-another-attempt"
        | "accepts-and-completes" => {
            raw.ready();
            let now = raw.launch["now"].as_i64().unwrap();
            let attempt_of = raw.launch["run"]["attempt"].clone();
            let at = attempt_of["startedAt"].as_i64().unwrap();
            let mut finished = json!({ "result": {
                "attemptId": attempt_of["attemptId"], "nodeId": "say", "nodeType": "agent", "outcome": "ok",
                "startedAt": at, "finishedAt": now, "durationMs": now - at, "output": 2,
            }});
            let mut next = start("where", 1);
            let result = finished["result"].as_object_mut().unwrap();
            match mode {
                "accepts-a-failure" => {
                    result.remove("output");
                    result.insert("outcome".to_owned(), json!("failed"));
                    result.insert("error".to_owned(), json!("Error: no"));
                }
                "accepts-for-another-attempt" => {
                    result.insert("attemptId".to_owned(), json!("attempt-of-another"));
                }
                "accepts-with-a-receipt" => finished["receipt"] = json!({ "forged": true }),
                _ => next = json!({ "move": "complete" }),
            }
            raw.say("accept", &json!({ "finished": finished, "next": next }));
        }
        "begins-over-a-candidate" => {
            raw.ready();
            raw.say(
                "begin",
                &json!({ "plan": "again", "next": start("say", 1) }),
            );
        }
        "hands-a-candidate-over" => {
            raw.ready();
            raw.say("handOver", &json!({}));
        }
        "accepts-nothing" => {
            raw.ready();
            let finished = Raw::counted(&json!({ "startedAt": raw.launch["now"] }));
            let next = start("act", 1);
            raw.say("accept", &json!({ "finished": finished, "next": next }));
        }
        "rejects-nothing" => {
            raw.ready();
            raw.say("reject", &json!({ "message": "not good" }));
        }
        "records" => {
            raw.begin();
            raw.say("record", &json!({ "event": "run_completed" }));
        }
        "fixed-budget" => {
            let begun = raw.begin();
            let finished = Raw::counted(&begun);
            let mut next = start("act", 1);
            next["request"] =
                json!({ "input": raw.launch["run"]["input"], "outputs": { "count": 7 } });
            next.as_object_mut().unwrap().remove("timeout");
            raw.say("advance", &json!({ "finished": finished, "next": next }));
            let budget = json!({ "attemptId": attempt("act", 1), "timeout": "unlimited" });
            raw.say("setTimeout", &budget);
        }
        "budget-twice" | "budget-of-another" => {
            raw.ready();
            let mut next = start("count", 1);
            next.as_object_mut().unwrap().remove("timeout");
            raw.say(
                "begin",
                &json!({ "plan": "first", "title": "raw", "next": next }),
            );
            let mut budget =
                json!({ "attemptId": attempt("count", 1), "timeout": { "millis": 20_000 } });
            if mode == "budget-of-another" {
                budget["attemptId"] = json!(attempt("act", 1));
            }
            let answer = raw.say("setTimeout", &budget);
            if mode == "budget-twice" {
                assert_eq!(answer["outcome"], "accepted", "{answer}");
                raw.say("setTimeout", &budget);
            }
        }
        _ => route_wrongly(raw, mode),
    }
}

/// Lies of a worker about the settings that a route reads.
fn route_wrongly(mut raw: Raw, mode: &str) {
    raw.ready();
    let begun = raw.say(
        "begin",
        &json!({ "plan": "first", "next": start("route", 1) }),
    );
    let hash = begun["settings"]["hash"].clone();
    let found = raw.say("document", &json!({ "hash": hash }));
    assert_eq!(found["value"]["batch"], 10, "{found}");
    let found = raw.say("settings", &json!({ "mountPath": "" }));
    assert_eq!(found["value"]["batch"], 10, "{found}");
    let at = begun["startedAt"].as_i64().unwrap();
    let route = |outcome: &str| {
        json!({ "result": {
            "attemptId": attempt("route", 1), "nodeId": "route", "nodeType": "compute", "outcome": outcome,
            "startedAt": at, "finishedAt": at, "durationMs": 0,
        }})
    };
    match mode {
        "foreign-document" => {
            let hash = "ab".repeat(32);
            raw.say("document", &json!({ "hash": hash }));
        }
        "foreign-mount" => {
            raw.say("settings", &json!({ "mountPath": "nowhere" }));
        }
        // Nobody told it that the settings never stood still.
        "unsettled-by-itself" => {
            let mut finished = route("failed");
            finished["result"]["error"] = json!("SettingsUnsettled: too often");
            finished["unsettled"] = json!(true);
            let end = json!({ "move": "end", "status": "failed", "error": "too often" });
            raw.say("advance", &json!({ "finished": finished, "next": end }));
        }
        // The switch of the route leads elsewhere.
        "another-route" => {
            let mut finished = route("ok");
            finished["result"]["output"] = json!({ "to": "small", "batch": 10 });
            raw.say(
                "advance",
                &json!({ "finished": finished, "next": start("plus", 1) }),
            );
        }
        other => panic!("no such mode: {other}"),
    }
}
