//! Peers that break the protocol, don't read, or are too many. None costs the others anything.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use crate::support::{Home, Peer, Server, until};

/// The resident memory of the server, in kilobytes.
fn resident(server: &Server<'_>) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_bad_frame_ends_its_connection_and_no_other() {
    let home = Home::new();
    let server = home.serve();
    let mut good = server.peer();
    // A request that would be taken, if it were written in the one way.
    let spaced = br#"{"clientId":"c", "idempotencyKey":"k","operation":"server.status","payload":{},"requestId":"r","schema":"pi-workflows.client.v1","type":"request"}
"#;
    let unsorted = br#"{"idempotencyKey":"k","clientId":"c","operation":"server.status","payload":{},"requestId":"r","schema":"pi-workflows.client.v1","type":"request"}
"#;
    let long = vec![b'x'; 1_048_577];
    let frames: [&[u8]; 10] = [
        spaced,
        unsorted,
        b"\n",
        b"{ }\n",
        b"{\"b\":1,\"a\":1}\n",
        b"\"\xff\xfe\"\n",
        b"[]\n",
        b"{\"schema\":\"pi-workflows.client.v1\",\"type\":\"hello\"}\n",
        b"\0\n",
        &long,
    ];
    for frame in frames {
        let mut peer = server.peer();
        // The server may hang up before everything is written.
        let _broken = peer.stream.write_all(frame);
        assert_eq!(
            peer.message(),
            None,
            "{:?}",
            String::from_utf8_lossy(&frame[..frame.len().min(40)])
        );
    }
    assert_eq!(
        good.ask("server.status", None, &json!({}))["outcome"],
        "accepted"
    );
}

#[test]
fn a_half_open_peer_gets_what_it_asked_for() {
    let home = Home::new();
    let server = home.serve();
    let mut peer = server.peer();
    peer.send("server.status", None, &json!({}));
    peer.send("server.status", None, &json!({}));
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.message().unwrap()["outcome"], "accepted");
    assert_eq!(peer.message().unwrap()["outcome"], "accepted");
    assert_eq!(peer.message(), None);
    // In the middle of a frame nothing is done.
    let mut peer = server.peer();
    peer.stream.write_all(b"{\"clientId\"").unwrap();
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.message(), None);
}

#[test]
fn slow_readers_cost_little_memory_and_none_of_the_writers_time() {
    let home = Home::new();
    let run = home.asking();
    let server = home.serve();
    let before = resident(&server);
    // They ask without end and read nothing, until the socket takes no more.
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut peer = server.peer();
        peer.stream
            .set_write_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        peer.send(
            "view.run.watch",
            Some(&run),
            &json!({ "subscriptionId": "s" }),
        );
        let request = json!({ "clientId": "c", "idempotencyKey": "k", "operation": "view.page", "payload": { "cursor": 0, "kind": "trace" },
            "requestId": "r", "runId": run, "schema": "pi-workflows.client.v1", "type": "request" });
        let mut frame = holdpoint_state::json::canonical(&request).unwrap();
        frame.push(b'\n');
        let mut sent = 0;
        while peer.stream.write_all(&frame).is_ok() {
            sent += 1;
            assert!(sent < 100_000, "requests without end are read ahead");
        }
        slow.push(peer);
    }
    // Others are served, and the run goes on.
    let mut good = server.peer();
    good.ask(
        "view.run.watch",
        Some(&run),
        &json!({ "subscriptionId": "s" }),
    );
    assert_eq!(home.run(&["answer", &run, "1"]).status.code(), Some(0));
    until("the run completes", || {
        good.event()["payload"]["display"]["status"] == "completed"
    });
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} kB");
}

#[test]
fn connections_over_the_cap_are_closed_and_those_that_end_make_room() {
    let home = Home::new();
    let server = home.serve();
    // The probe of the start may still count for an instant.
    let mut counted = server.peer();
    until("the probes are gone", || {
        counted.ask("server.status", None, &json!({}))["receipt"]["connections"] == 1
    });
    let mut peers: Vec<Peer> = (1..64).map(|_| server.peer()).collect();
    let mut over = UnixStream::connect(home.socket()).unwrap();
    assert_eq!(over.read(&mut [0; 16]).unwrap_or(0), 0);
    assert_eq!(
        peers[0].ask("server.status", None, &json!({}))["receipt"]["connections"],
        64
    );
    peers.clear();
    until("there is room", || {
        counted.ask("server.status", None, &json!({}))["receipt"]["connections"] == 1
    });
    server.peer();
}
