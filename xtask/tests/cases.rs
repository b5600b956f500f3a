//! `docs/CASES.md` names tests that exist.
#![expect(
    clippy::unwrap_used,
    reason = "a test ends where its workspace is not what it says"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of all functions in the Rust files below a folder.
fn functions(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for rest in text.split("fn ").skip(1) {
                let is_name = |char: &char| char.is_ascii_alphanumeric() || *char == '_';
                into.insert(rest.chars().take_while(is_name).collect());
            }
        }
    }
}

#[test]
fn every_test_that_the_page_of_cases_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut there = BTreeSet::new();
    functions(&root.join("crates"), &mut there);
    let page = fs::read_to_string(root.join("docs/CASES.md")).unwrap();
    let mut named = 0;
    let mut missing = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        // Between backticks stands a name or the path of a page.
        for name in line.split('`').skip(1).step_by(2) {
            if name.contains('/') {
                assert!(root.join(name).exists(), "{name}");
                continue;
            }
            named += 1;
            if !there.contains(name) {
                missing.push(name);
            }
        }
        let has_reason =
            line.contains("| none: ") || line.contains('`') || line.contains("tests |");
        assert!(has_reason, "neither a test nor a reason: {line}");
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    assert!(100 < named, "{named}");
    // None is left out of the edge cases of workflows.
    let (_, rows) = page.split_once("## Edge cases of workflows").unwrap();
    let numbers: Vec<u32> = rows
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(numbers, (1..=118).collect::<Vec<_>>());
}
