//! Random documents: the reader never panics, its places lie in the file, and JSON means what it says.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;

use crate::file::{json as json_file, parse};

const EXAMPLES: [(&str, &str); 4] = [
    (
        "a.workflow.yaml",
        include_str!("../../../../../examples/release-notes.workflow.yaml"),
    ),
    (
        "a.workflow.yaml",
        include_str!("../../../../../examples/countdown.workflow.yaml"),
    ),
    (
        "a.workflow.yaml",
        include_str!("../../../../../examples/fallback.workflow.yaml"),
    ),
    (
        "a.workflow.json",
        include_str!("../../../../../examples/approve.workflow.json"),
    ),
];

/// One change of a text, at a place between 0 and 1.
#[derive(Debug, Clone)]
enum Edit {
    Insert(f64, String),
    Delete(f64, usize),
    Repeat(f64, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = || 0.0..1.0_f64;
    let pieces = prop_oneof![
        Just("\n".to_owned()),
        Just("  ".to_owned()),
        Just(": ".to_owned()),
        Just("- ".to_owned()),
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("[".to_owned()),
        Just("\"".to_owned()),
        Just("|\n".to_owned()),
        Just("null".to_owned()),
        Just("&a ".to_owned()),
        Just("1e999".to_owned()),
        "[ -~]{1,3}",
        "\\PC{1,2}",
    ];
    prop_oneof![
        (place(), pieces).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (place(), 1..20_usize).prop_map(|(at, count)| Edit::Delete(at, count)),
        (place(), 1..60_usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
    ]
}

fn apply(text: &str, edit: &Edit) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let (Edit::Insert(at, _) | Edit::Delete(at, _) | Edit::Repeat(at, _)) = edit;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a place in a short text"
    )]
    let at = (at * chars.len() as f64) as usize;
    match edit {
        Edit::Insert(_, piece) => drop(chars.splice(at..at, piece.chars())),
        Edit::Delete(_, count) => drop(chars.drain(at..(at + count).min(chars.len()))),
        Edit::Repeat(_, count) => {
            let again: Vec<char> = chars[at..].iter().take(*count).copied().collect();
            drop(chars.splice(at..at, again));
        }
    }
    chars.into_iter().collect()
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991_i64..9_007_199_254_740_991).prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |number| {
            number
                .is_finite()
                .then(|| serde_json::Number::from_f64(number).map(Value::Number))?
        }),
        ".*".prop_map(Value::from),
        "\\PC*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,5}", inner, 0..5)
                .prop_map(|fields| fields.into_iter().collect::<Value>()),
        ]
    })
}

fn seeded() -> ProptestConfig {
    let config = ProptestConfig::default();
    let is_chosen = std::env::var_os("PROPTEST_RNG_SEED").is_some();
    ProptestConfig {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() {
            config.cases
        } else {
            192
        },
        rng_seed: if is_chosen {
            config.rng_seed
        } else {
            RngSeed::Fixed(7)
        },
        ..config
    }
}

/// A plain text that goes on in the next line is folded into one: its expression's column is not known.
#[test]
fn the_place_in_a_folded_text_is_its_start() {
    let text = EXAMPLES[1].1;
    let at = text.find("jq: ").map(|at| at + 10).unwrap();
    let folded = format!("{}\n        (((\n{}", &text[..at], &text[at..]);
    if let Err(error) = parse(EXAMPLES[1].0, &folded) {
        let line = folded
            .lines()
            .nth(error.position.line - 1)
            .unwrap_or_default();
        assert!(error.position.column <= line.chars().count() + 2, "{error}");
    }
}

proptest! {
    // The same cases in each run, so that a run says something of the change and not of the dice. PROPTEST_RNG_SEED and
    // PROPTEST_CASES look further.
    #![proptest_config(seeded())]

    #[test]
    fn a_changed_file_is_read_or_refused_at_a_place_in_it(
        which in 0..EXAMPLES.len(),
        edits in prop::collection::vec(edit(), 1..4),
    ) {
        let (path, text) = EXAMPLES[which];
        let text = edits.iter().fold(text.to_owned(), |text, edit| apply(&text, edit));
        if let Err(error) = parse(path, &text) {
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert!((1..=lines.len() + 1).contains(&error.position.line), "{error}");
            let line = lines.get(error.position.line - 1).copied().unwrap_or_default();
            prop_assert!((1..=line.chars().count() + 2).contains(&error.position.column), "{error}");
        }
    }

    #[test]
    fn json_means_what_it_says(value in json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.unwrap();
        if let Ok(expected) = holdpoint_state::json::parse(text.as_bytes()) {
            let tree = json_file::read(&text).map_err(|(at, problem)| TestCaseError::fail(format!("{at} {problem}")))?;
            prop_assert_eq!(tree.value(tree.root().unwrap()), expected);
        }
    }
}
