//! Content comes back exactly, whole or in parts, and only as the media type that the reader names.

use holdpoint_state::records::blobs::{JSON, PART_BYTES, PAYLOAD_LIMIT_BYTES, TEXT};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Command, Digest, Outcome, Payload, StateError};

use super::gate;

fn put(store: &TestStore, payload: &Payload) -> Digest {
    let payload = payload.clone();
    let command = Command::new(&counter::ADD, counter::resource("a"));
    let receipt = store.db().commit(command, move |change| {
        let digest = change.put_blob(&payload)?;
        assert_eq!(
            change.blob(digest, payload.media_type())?,
            payload.as_bytes()
        );
        Ok::<_, StateError>(Outcome::Accepted(digest))
    });
    receipt.unwrap().value
}

fn store() -> TestStore {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    store
}

#[test]
fn json_comes_back_canonical_and_typed() {
    let store = store();
    let digest = put(
        &store,
        &Payload::bytes(JSON, br#"{ "b": [1, 2], "a": null }"#.to_vec()).unwrap(),
    );
    let snapshot = store.db().snapshot().unwrap();
    assert_eq!(
        snapshot.blob(digest, JSON).unwrap(),
        br#"{"a":null,"b":[1,2]}"#
    );
    let value: serde_json::Value = snapshot.blob_json(digest).unwrap();
    assert_eq!(value["b"][1], 2);
    assert!(matches!(
        snapshot.blob_json::<Vec<u8>>(digest),
        Err(StateError::Input { .. })
    ));
}

#[test]
fn a_missing_blob_and_another_media_type_are_errors() {
    let store = store();
    let digest = put(&store, &Payload::text("hello").unwrap());
    let snapshot = store.db().snapshot().unwrap();
    assert!(matches!(
        snapshot.blob(digest, JSON),
        Err(StateError::MediaType { actual, .. }) if actual == TEXT
    ));
    assert!(matches!(
        snapshot.blob_part(digest, JSON, 0),
        Err(StateError::MediaType { .. })
    ));
    assert!(matches!(
        snapshot.blob(Digest::of(b"never stored"), TEXT),
        Err(StateError::NotFound { .. })
    ));
}

#[test]
fn a_large_value_is_read_in_parts() {
    let store = store();
    let text: String = ('a'..='z').cycle().take(2 * PART_BYTES + 17).collect();
    let digest = put(&store, &Payload::text(text.clone()).unwrap());
    let snapshot = store.db().snapshot().unwrap();
    let mut whole = Vec::new();
    for index in 0..3 {
        let part = snapshot.blob_part(digest, TEXT, index).unwrap();
        assert_eq!((part.parts, part.part_index), (3, index));
        assert_eq!(part.total_bytes, text.len() as u64);
        assert_eq!(part.bytes.len(), if index == 2 { 17 } else { PART_BYTES });
        whole.extend(part.bytes);
    }
    assert_eq!(Digest::of(&whole), digest);
    assert!(matches!(
        snapshot.blob_part(digest, TEXT, 3),
        Err(StateError::Input { .. })
    ));
}

#[test]
fn an_empty_value_has_one_empty_part() {
    let store = store();
    let digest = put(&store, &Payload::text("").unwrap());
    let part = store
        .db()
        .snapshot()
        .unwrap()
        .blob_part(digest, TEXT, 0)
        .unwrap();
    assert_eq!((part.parts, part.bytes.len()), (1, 0));
}

/// A reader that yields as many bytes as it is asked for, and counts them.
struct Endless(u64);

impl std::io::Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        buffer.fill(b'x');
        self.0 += u64::try_from(buffer.len()).unwrap();
        Ok(buffer.len())
    }
}

#[test]
fn case_023_a_size_above_the_limit_is_refused_before_anything_is_written() {
    let is_too_large = |result: Result<Payload, StateError>| match result {
        Err(StateError::TooLarge { limit_bytes, .. }) => {
            assert_eq!(limit_bytes, PAYLOAD_LIMIT_BYTES as u64);
        }
        other => panic!("{other:?}"),
    };
    // A payload is checked where it is made, so that no command ever sees one that is too large.
    let long = "x".repeat(PAYLOAD_LIMIT_BYTES);
    Payload::text(long.clone()).unwrap();
    is_too_large(Payload::text(long.clone() + "x"));
    is_too_large(Payload::json(&long));
    is_too_large(Payload::bytes("image/png", (long + "x").into_bytes()));
    // What is announced too large is not read at all; what is more than announced is not read to its end.
    let mut endless = Endless(0);
    let announced = PAYLOAD_LIMIT_BYTES as u64 + 1;
    is_too_large(Payload::from_reader(
        TEXT,
        &mut endless,
        announced,
        Digest::of(b""),
    ));
    assert_eq!(endless.0, 0);
    let more = Payload::from_reader(TEXT, &mut endless, 10, Digest::of(b""));
    assert!(matches!(more, Err(StateError::Input { .. })), "{more:?}");
    assert!(endless.0 <= 2 * PART_BYTES as u64, "{}", endless.0);
}

#[test]
fn a_streamed_value_is_what_was_announced_or_nothing() {
    let text = "a value".repeat(200_000);
    let (size, digest) = (text.len() as u64, Digest::of(text.as_bytes()));
    let read = |size, digest| Payload::from_reader(TEXT, text.as_bytes(), size, digest);
    assert_eq!(read(size, digest).unwrap().digest(), digest);
    for wrong in [
        read(size - 1, digest),
        read(size + 1, digest),
        read(size, Digest::of(b"another")),
    ] {
        assert!(matches!(wrong, Err(StateError::Input { .. })), "{wrong:?}");
    }
}

#[test]
fn content_without_the_form_of_its_media_type_is_refused() {
    for (media_type, bytes) in [("", &b"a"[..]), (TEXT, b"\xff"), ("text/html", b"\xc3")] {
        let refused = Payload::bytes(media_type, bytes.to_vec());
        assert!(
            matches!(refused, Err(StateError::Input { .. })),
            "{refused:?}"
        );
    }
    for bytes in [&b"{"[..], b"{\"a\":1,\"a\":2}", b"\xff"] {
        let refused = Payload::bytes(JSON, bytes.to_vec());
        assert!(
            matches!(refused, Err(StateError::Json { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(
        Payload::bytes("image/png", vec![0xff]).unwrap().as_bytes(),
        [0xff]
    );
}

#[test]
fn equal_content_is_one_row_and_another_media_type_is_an_error() {
    let store = store();
    let blobs = || -> Vec<String> {
        gate::dump(store.db())
            .into_iter()
            .filter(|row| row.starts_with("blobs "))
            .collect()
    };
    let digest = put(&store, &Payload::text("[1]").unwrap());
    let before = blobs();
    assert_eq!(put(&store, &Payload::text("[1]").unwrap()), digest);
    assert_eq!(blobs(), before);
    // The very same bytes as JSON have the same hash.
    let json = Payload::bytes(JSON, b"[1]".to_vec()).unwrap();
    assert_eq!(json.digest(), digest);
    let before = gate::dump(store.db());
    let command = Command::new(&counter::ADD, counter::resource("a"));
    let result = store.db().commit(command, move |change| {
        counter::increase(change, 1)?;
        Ok::<_, StateError>(Outcome::Accepted(change.put_blob(&json)?))
    });
    assert!(
        matches!(result, Err(StateError::Conflict { .. })),
        "{result:?}"
    );
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn content_that_was_damaged_is_not_given_out() {
    let store = store();
    let content = "x".repeat(PART_BYTES + 1);
    let digest = put(&store, &Payload::text(content).unwrap());
    let damage = |sql: &str| {
        let connection = rusqlite::Connection::open(store.path()).unwrap();
        // lint:allow(sql-in-test): no command damages what is stored.
        connection
            .execute_batch(&format!("PRAGMA ignore_check_constraints = ON; {sql}"))
            .unwrap();
        connection.close().unwrap();
    };
    let is_corrupt = |whole: Result<Vec<u8>, StateError>| {
        assert!(
            matches!(whole, Err(StateError::Corrupt { .. })),
            "{whole:?}"
        );
    };
    // lint:allow(sql-in-test): no command damages what is stored.
    damage(
        "UPDATE blobs SET content = CAST(replace(CAST(content AS TEXT), 'xxxx', 'xxxy') AS BLOB)",
    );
    is_corrupt(store.db().snapshot().unwrap().blob(digest, TEXT));
    // lint:allow(sql-in-test): no command damages what is stored.
    damage("UPDATE blobs SET content = x'78'");
    let snapshot = store.db().snapshot().unwrap();
    is_corrupt(snapshot.blob(digest, TEXT));
    is_corrupt(snapshot.blob_part(digest, TEXT, 1).map(|part| part.bytes));
}
