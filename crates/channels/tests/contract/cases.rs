//! The table of cases in docs/CHANNELS.md is true: every test that it names is there, and every numbered test is named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const CASES: usize = 52;

#[test]
fn the_table_of_cases_and_the_tests_agree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/CHANNELS.md")).unwrap();
    let mut named: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, _, tests, _] = cells.as_slice() else {
            continue;
        };
        if let Ok(number) = number.parse() {
            named.insert(
                number,
                tests
                    .split(", ")
                    .map(|name| name.trim_matches('`').to_owned())
                    .collect(),
            );
        }
    }
    assert_eq!(
        named.keys().copied().collect::<Vec<_>>(),
        (1..=CASES).collect::<Vec<_>>()
    );
    let mut there = BTreeMap::new();
    for place in ["src", "tests", "../server/tests/channels"] {
        find(&root.join(place), &mut there);
    }
    for case in 1..=CASES {
        assert_eq!(
            named.get(&case),
            there.get(&case),
            "the tests of case {case} on the page, and those that there are"
        );
    }
    assert_eq!(
        there.len(),
        CASES,
        "there is a test of a case that there is not"
    );
}

/// The numbered tests below a directory, by the cases that they are of.
fn find(path: &Path, found: &mut BTreeMap<usize, BTreeSet<String>>) {
    for entry in std::fs::read_dir(path).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let Some(name) = line
                    .trim_start()
                    .strip_prefix("fn channel_")
                    .and_then(|rest| rest.split('(').next())
                else {
                    continue;
                };
                for case in cases_of(name) {
                    found
                        .entry(case)
                        .or_default()
                        .insert(format!("channel_{name}"));
                }
            }
        }
    }
}

/// `07_…` is of one case, `22_and_23_…` and `24_to_26_…` are of several.
fn cases_of(name: &str) -> Vec<usize> {
    let words: Vec<&str> = name.split('_').collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<usize>().ok());
    match (number(0), words.get(1), number(2)) {
        (Some(first), Some(&("and" | "to")), Some(last)) => (first..=last).collect(),
        (Some(first), _, _) => vec![first],
        (None, _, _) => Vec::new(),
    }
}
