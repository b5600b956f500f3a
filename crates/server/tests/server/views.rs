//! What a peer is shown, in which order.

use serde_json::json;

use crate::support::Home;

#[test]
fn a_run_is_watched_from_its_question_to_its_end() {
    let home = Home::new();
    let run = home.asking();
    let server = home.serve();
    let mut peer = server.peer();
    assert_eq!(
        peer.ask(
            "view.runs.watch",
            None,
            &json!({ "subscriptionId": "runs" })
        )["outcome"],
        "accepted"
    );
    let runs = peer.event();
    assert_eq!(
        (&runs["event"], &runs["payload"]["total"], &runs["revision"]),
        (&json!("runs"), &json!(1), &json!(1))
    );
    assert_eq!(runs["payload"]["items"][0]["manifest"]["runId"], run);
    // The first view goes before the page that was asked for right after the watch.
    peer.send(
        "view.run.watch",
        Some(&run),
        &json!({ "subscriptionId": "run:1" }),
    );
    peer.send(
        "view.page",
        Some(&run),
        &json!({ "kind": "steps", "cursor": 9 }),
    );
    assert_eq!(
        peer.message().unwrap()["receipt"],
        json!({ "subscribed": true })
    );
    let first = peer.event();
    assert_eq!(
        (&first["event"], &first["runId"]),
        (&json!("run_snapshot"), &json!(run))
    );
    let page = peer.message().unwrap();
    assert_eq!(page["receipt"]["schema"], "pi-workflows.run-page.v1");
    assert_eq!(
        (&page["receipt"]["cursor"], &page["receipt"]["revision"]),
        (&json!(9), &first["payload"]["revision"])
    );
    // Each view has a greater revision than the one before it, to the end.
    assert_eq!(home.run(&["answer", &run, "1"]).status.code(), Some(0));
    let (mut last, mut number) = (first["payload"]["revision"].as_u64().unwrap(), 1);
    loop {
        let event = peer.event();
        if event["event"] != "run_snapshot" {
            continue;
        }
        number += 1;
        assert_eq!(event["revision"], number);
        let revision = event["payload"]["revision"].as_u64().unwrap();
        assert!(last < revision, "{last} {revision}");
        last = revision;
        if event["payload"]["display"]["status"] == "completed" {
            break;
        }
    }
    // A repeated watch is answered with a view though nothing changed.
    peer.ask(
        "view.run.unwatch",
        Some(&run),
        &json!({ "subscriptionId": "run:1" }),
    );
    peer.ask(
        "view.run.watch",
        Some(&run),
        &json!({ "subscriptionId": "run:1" }),
    );
    loop {
        let event = peer.event();
        if event["event"] == "run_snapshot" {
            assert_eq!(event["revision"], 1);
            break;
        }
    }
}

#[test]
fn what_is_not_there_is_told_by_its_outcome() {
    let home = Home::new();
    let run = home.asking();
    let server = home.serve();
    let mut peer = server.peer();
    let watch = json!({ "subscriptionId": "s" });
    let missing = peer.ask("view.run.watch", Some("nobody"), &watch);
    assert_eq!(
        (&missing["outcome"], &missing["error"]),
        (&json!("notFound"), &json!("Workflow run not found"))
    );
    let content = peer.ask(
        "view.content",
        Some(&run),
        &json!({ "path": "nothing", "offset": 0 }),
    );
    assert_eq!(content["outcome"], "notFound");
    assert_eq!(
        peer.ask("run.pause", Some(&run), &json!({}))["outcome"],
        "rejected"
    );
    assert_eq!(
        peer.ask(
            "view.page",
            Some(&run),
            &json!({ "kind": "other", "cursor": 0 })
        )["outcome"],
        "rejected"
    );
    // A page of another revision is a conflict, after which the list comes anew.
    peer.ask(
        "view.runs.watch",
        None,
        &json!({ "subscriptionId": "runs", "limit": 1 }),
    );
    peer.event();
    let conflict = peer.ask(
        "view.runs.page",
        None,
        &json!({ "revision": "0:0.0", "cursor": 1 }),
    );
    assert_eq!(conflict["outcome"], "conflict");
    assert_eq!(
        conflict["receipt"]["schema"],
        "pi-workflows.run-list-page.v1"
    );
    let again = peer.event();
    assert_eq!(
        (&again["event"], &again["revision"]),
        (&json!("runs"), &json!(2))
    );
}

#[test]
fn a_list_is_paged_to_its_end_under_one_revision() {
    let home = Home::new();
    for _ in 0..5 {
        home.json(&["run", "ask.workflow.yaml"]);
    }
    let server = home.serve();
    let mut peer = server.peer();
    peer.ask(
        "view.runs.watch",
        None,
        &json!({ "subscriptionId": "runs", "limit": 2 }),
    );
    let first = peer.event()["payload"].clone();
    let mut seen: Vec<String> = Vec::new();
    let mut page = first.clone();
    loop {
        for item in page["items"].as_array().unwrap() {
            seen.push(item["runId"].as_str().unwrap().to_owned());
        }
        if seen.len() == 5 {
            break;
        }
        let asked = json!({ "revision": first["revision"], "cursor": seen.len() });
        page = peer.ask("view.runs.page", None, &asked)["receipt"].clone();
        assert_eq!(page["revision"], first["revision"]);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5);
}
