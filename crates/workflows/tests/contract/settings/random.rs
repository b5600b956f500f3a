//! Random sequences of patches against a model of a few fields, and random garbage, which never changes anything.

use std::collections::BTreeMap;

use holdpoint_state::Actor;
use holdpoint_workflows::commands::SettingsChange;
use holdpoint_workflows::{RunId, WorkflowError};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use super::{Limits, tuned, waiting};
use crate::support::Fixture;

/// One wish, of which the model knows what it does.
#[derive(Debug, Clone)]
enum Wish {
    Batch(u32),
    Push(String),
    Insert(usize, String),
    Drop(usize),
    Swap(usize, usize),
    Replace(Limits),
    Nothing,
}

impl Wish {
    fn patch(&self) -> Value {
        match self {
            Self::Batch(batch) => json!([{ "op": "replace", "path": "/batch", "value": batch }]),
            Self::Push(tag) => json!([{ "op": "add", "path": "/tags/-", "value": tag }]),
            Self::Insert(index, tag) => {
                json!([{ "op": "add", "path": format!("/tags/{index}"), "value": tag }])
            }
            Self::Drop(index) => json!([{ "op": "remove", "path": format!("/tags/{index}") }]),
            Self::Swap(from, to) => {
                json!([{ "op": "move", "from": format!("/tags/{from}"), "path": format!("/tags/{to}") }])
            }
            Self::Replace(limits) => json!([{ "op": "replace", "path": "", "value": limits }]),
            Self::Nothing => json!([]),
        }
    }

    /// What the settings are after it, or none when it can't be done.
    fn apply(&self, limits: &Limits) -> Option<Limits> {
        let mut limits = limits.clone();
        let count = limits.tags.len();
        match self {
            Self::Batch(batch) => limits.batch = *batch,
            Self::Push(tag) => limits.tags.push(tag.clone()),
            Self::Insert(index, tag) if *index <= count => limits.tags.insert(*index, tag.clone()),
            Self::Drop(index) if *index < count => drop(limits.tags.remove(*index)),
            Self::Swap(from, to) if *from < count && *to < count => {
                let tag = limits.tags.remove(*from);
                limits.tags.insert(*to, tag);
            }
            Self::Replace(other) => limits = other.clone(),
            Self::Nothing => {}
            Self::Insert(..) | Self::Drop(_) | Self::Swap(..) => return None,
        }
        Some(limits)
    }
}

fn tag() -> impl Strategy<Value = String> {
    "[a-c~/]{0,3}"
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        any::<u32>().prop_map(Wish::Batch),
        tag().prop_map(Wish::Push),
        (0_usize..4, tag()).prop_map(|(index, tag)| Wish::Insert(index, tag)),
        (0_usize..4).prop_map(Wish::Drop),
        (0_usize..4, 0_usize..4).prop_map(|(from, to)| Wish::Swap(from, to)),
        (any::<u32>(), prop::collection::vec(tag(), 0..3))
            .prop_map(|(batch, tags)| Wish::Replace(Limits { batch, tags })),
        Just(Wish::Nothing),
    ]
}

/// How a wish is sent: under which of a few request ids, and with an expected number that is right, wrong or absent.
#[derive(Debug, Clone, Copy)]
struct Sending {
    request: u8,
    expects: Option<bool>,
}

fn sending() -> impl Strategy<Value = Sending> {
    (
        0_u8..12,
        prop::option::weighted(0.4, prop::bool::weighted(0.8)),
    )
        .prop_map(|(request, expects)| Sending { request, expects })
}

/// JSON that is hardly ever a patch.
fn garbage() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z/~]{0,4}".prop_map(Value::from),
    ];
    let any = leaf.prop_recursive(2, 8, 3, |inner| {
        let key = prop_oneof![
            Just("op"),
            Just("path"),
            Just("from"),
            Just("value"),
            Just("x")
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    let op = prop_oneof![
        Just("add"),
        Just("remove"),
        Just("replace"),
        Just("move"),
        Just("copy"),
        Just("test"),
        Just("x")
    ];
    let operation = (op, "/?[a-z~/]{0,8}", any.clone(), prop::bool::ANY).prop_map(
        |(op, path, value, extra)| {
            if extra {
                json!({ "op": op, "path": path, "value": value, "from": "/batch" })
            } else {
                json!({ "op": op, "path": path, "value": value })
            }
        },
    );
    prop_oneof![
        any,
        prop::collection::vec(operation, 1..4).prop_map(Value::from)
    ]
}

/// What the model remembers of an accepted request.
type Made = BTreeMap<u8, (Value, u64)>;

fn send(
    (fixture, run): (&Fixture, &RunId),
    (limits, number, made): (&mut Limits, &mut u64, &mut Made),
    (wish, sending): (&Wish, Sending),
) -> Result<(), TestCaseError> {
    let patch = wish.patch();
    let mut change = SettingsChange::new(run, patch.clone())
        .request(format!("r{}", sending.request))
        .by(Actor::human("ada"));
    if let Some(right) = sending.expects {
        change = change.expecting(if right { *number } else { *number + 1 });
    }
    let result = fixture.workflows.change_settings(&change);
    match (made.get(&sending.request), wish.apply(limits)) {
        (Some((earlier, number)), _) if *earlier == patch => {
            prop_assert_eq!(result.unwrap().value.change_number, *number);
        }
        (Some(_), _) => prop_assert!(
            matches!(result, Err(WorkflowError::Conflict { .. })),
            "{result:?}"
        ),
        (None, _) if sending.expects == Some(false) => {
            prop_assert!(
                matches!(result, Err(WorkflowError::StaleSettings { .. })),
                "{result:?}"
            );
        }
        (None, None) => prop_assert!(
            matches!(result, Err(WorkflowError::SettingsRefused { .. })),
            "{result:?}"
        ),
        (None, Some(after)) => {
            *number += 1;
            *limits = after;
            prop_assert_eq!(result.unwrap().value.change_number, *number);
            made.insert(sending.request, (patch, *number));
        }
    }
    let settings = fixture.workflows.settings(run).unwrap();
    let settings: Vec<_> = settings
        .iter()
        .map(|scope| (scope.change_number, scope.value.clone()))
        .collect();
    prop_assert_eq!(settings, [(*number, json!(limits))]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The fixture looks at all invariants when it goes.
    #[test]
    fn a_sequence_of_patches_does_what_a_model_does(wishes in prop::collection::vec((wish(), sending()), 1..24)) {
        let fixture = Fixture::new();
        let run = waiting(&fixture, &tuned());
        let mut limits = Limits { batch: 10, tags: Vec::new() };
        let (mut number, mut made) = (0, Made::new());
        for (wish, sending) in &wishes {
            send((&fixture, &run), (&mut limits, &mut number, &mut made), (wish, *sending))?;
        }
        let history = fixture.workflows.settings_history(&run, None, (0, 100)).unwrap();
        prop_assert_eq!(u64::try_from(history.changes.len()).unwrap(), number);
    }

    #[test]
    fn garbage_never_changes_anything(patches in prop::collection::vec(garbage(), 1..40)) {
        let fixture = Fixture::new();
        let run = waiting(&fixture, &tuned());
        let rows = fixture.rows();
        for patch in &patches {
            if patch.as_array().is_some_and(Vec::is_empty) {
                continue;
            }
            let refused = fixture.workflows.change_settings(&SettingsChange::new(&run, patch.clone()));
            prop_assert!(refused.is_err(), "{patch}");
        }
        prop_assert_eq!(fixture.rows(), rows);
    }
}
