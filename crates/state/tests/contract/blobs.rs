//! Content comes back exactly, whole or in parts, and only as the media type that the reader names.

use holdpoint_state::records::blobs::{JSON, PART_BYTES, TEXT};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Command, Digest, Outcome, Payload, StateError};

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
