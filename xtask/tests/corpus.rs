//! The corpus: every bad sample has a finding, no good one has, and all findings are in a snapshot.
#![expect(
    clippy::unwrap_used,
    reason = "a test ends where its workspace is not what it says"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use xtask::lint::finding::{Finding, Format, render};
use xtask::lint::{Report, Workspace};

/// How many samples of each kind there are at least.
const BAD_MIN: usize = 60;
const GOOD_MIN: usize = 40;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn report() -> Report {
    Workspace::read(Some(&corpus().join("Cargo.toml")))
        .unwrap()
        .lint()
        .unwrap()
}

/// Samples by `path: name`, with first and last line. A sample goes on to the next one.
fn samples(folder: &str) -> BTreeMap<String, (String, usize, usize)> {
    let mut samples = BTreeMap::new();
    let mut folders = vec![corpus().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let relative = path
                .strip_prefix(corpus())
                .unwrap()
                .to_str()
                .unwrap()
                .replace('\\', "/");
            let text = fs::read_to_string(&path).unwrap();
            let starts: Vec<(usize, &str)> = text
                .lines()
                .enumerate()
                .filter_map(|(index, line)| {
                    line.split_once(" sample: ")
                        .map(|(_, name)| (index + 1, name.trim()))
                })
                .collect();
            for (index, (first, name)) in starts.iter().enumerate() {
                let last = starts
                    .get(index + 1)
                    .map_or(usize::MAX, |(next, _)| next - 1);
                let old = samples.insert(
                    format!("{relative}: {name}"),
                    (relative.clone(), *first, last),
                );
                assert!(old.is_none(), "two samples are called {name} in {relative}");
            }
        }
    }
    samples
}

fn findings_in<'a>(report: &'a Report, place: &(String, usize, usize)) -> Vec<&'a Finding> {
    let (path, first, last) = place;
    report
        .findings
        .iter()
        .filter(|finding| &finding.path == path && (*first..=*last).contains(&finding.line))
        .collect()
}

#[test]
fn every_bad_sample_has_a_finding() {
    let report = report();
    let samples = samples("bad");
    assert!(samples.len() >= BAD_MIN, "{} samples", samples.len());
    let missed: Vec<&String> = samples
        .iter()
        .filter(|(_, place)| findings_in(&report, place).is_empty())
        .map(|(name, _)| name)
        .collect();
    assert!(missed.is_empty(), "nothing was found in {missed:#?}");
}

#[test]
fn no_good_sample_has_a_finding() {
    let report = report();
    let samples = samples("good");
    assert!(samples.len() >= GOOD_MIN, "{} samples", samples.len());
    let alarms: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|finding| !finding.path.starts_with("bad/"))
        .collect();
    assert!(alarms.is_empty(), "false alarms: {alarms:#?}");
}

#[test]
fn findings_are_those_of_the_snapshot() {
    insta::assert_snapshot!(render(&report().findings, Format::Human));
}

#[test]
fn exceptions_are_listed_with_their_reasons() {
    let report = report();
    let listed: Vec<String> = report
        .exceptions
        .all
        .iter()
        .map(|exception| {
            format!(
                "{}:{}: {}: {}: {}",
                exception.path,
                exception.line,
                exception.rule,
                exception.covers(),
                exception.reason
            )
        })
        .collect();
    insta::assert_snapshot!(listed.join("
"), @r"
lint.toml:27: sql-in-test: good/tests/raw.rs, only `UPDATE on jobs`: sample: an entry with path, text and reason
bad/src/lib.rs:90: sql-ddl: line 91: nothing here defines anything
good/src/lib.rs:85: sql-outside-store: line 85: sample of a comment on the line
good/src/lib.rs:91: sql-outside-store: lines 93 to 97: sample of a comment that covers an item
good/src/lib.rs:112: sql-in-test: lines 113 to 116: a broken file can't be made through the commands
");
}
