//! What the compiler refuses: the rules that hold by type. `at_run_time` has those that a typed error holds.
//!
//! Each file in `cases` is a program that depends on this crate. The lines that break a rule end in `//~` and the codes, or a word of
//! the messages, of the errors that they cause. The compiler must report exactly these; without those lines the program must
//! compile, so that nothing else is to blame.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends where its program is not what it says"
)]

mod at_run_time;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What ends the name of a program without its forbidden lines.
const ALLOWED: &str = "_allowed";

/// Errors by program: the line, and the code or the message of each.
type Errors = BTreeMap<String, BTreeSet<(u64, String)>>;

/// A package with every case, once as it is and once without its marked lines.
fn package(cases: &Path) -> (tempfile::TempDir, Errors) {
    let root = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = here.join("../..");
    // The profiles and the lock file of the workspace, so that what is compiled serves both.
    let ours = fs::read_to_string(repository.join("Cargo.toml")).unwrap();
    let profiles = &ours[ours.find("[profile.dev]").unwrap()..];
    let manifest = format!(
        "[package]\nname = \"refused\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         holdpoint-state = {{ path = \"{}\", features = [\"testing\"] }}\n\n{profiles}",
        here.display()
    );
    fs::write(root.path().join("Cargo.toml"), manifest).unwrap();
    fs::copy(
        repository.join("Cargo.lock"),
        root.path().join("Cargo.lock"),
    )
    .unwrap();
    let programs = root.path().join("src/bin");
    fs::create_dir_all(&programs).unwrap();
    let mut expected = Errors::new();
    for entry in fs::read_dir(cases).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let allowed: Vec<&str> = text.lines().filter(|line| !line.contains("//~")).collect();
        fs::write(programs.join(format!("{name}.rs")), &text).unwrap();
        fs::write(
            programs.join(format!("{name}{ALLOWED}.rs")),
            allowed.join("\n"),
        )
        .unwrap();
        let marks = text
            .lines()
            .zip(1..)
            .filter_map(|(line, number)| line.split_once("//~ ").map(|(_, marks)| (number, marks)));
        let marks = marks.flat_map(|(number, marks)| {
            marks
                .split_whitespace()
                .map(move |mark| (number, mark.to_owned()))
        });
        expected.insert(name.clone(), marks.collect());
        assert!(!expected[&name].is_empty(), "{name} forbids nothing");
        expected.insert(format!("{name}{ALLOWED}"), BTreeSet::new());
    }
    (root, expected)
}

/// Compiles every program of the package, without making code, and collects their errors.
fn check(root: &Path) -> (Errors, String) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "check",
            "--quiet",
            "--bins",
            "--keep-going",
            "--message-format=json",
        ])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let mut errors = Errors::new();
    let mut rendered = String::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let diagnostic = &message["message"];
        let (Some(program), Some(spans)) = (
            message["target"]["name"].as_str(),
            diagnostic["spans"].as_array(),
        ) else {
            continue;
        };
        let place = spans.iter().find(|span| span["is_primary"] == true);
        let (true, Some(place)) = (diagnostic["level"] == "error", place) else {
            continue;
        };
        let what = diagnostic["code"]["code"]
            .as_str()
            .or(diagnostic["message"].as_str())
            .unwrap();
        errors
            .entry(program.to_owned())
            .or_default()
            .insert((place["line_start"].as_u64().unwrap(), what.to_owned()));
        rendered.push_str(diagnostic["rendered"].as_str().unwrap_or_default());
    }
    rendered.push_str(&String::from_utf8_lossy(&output.stderr));
    (errors, rendered)
}

#[test]
fn the_compiler_refuses_exactly_what_is_marked() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused/cases");
    let (root, expected) = package(&cases);
    let (found, rendered) = check(root.path());
    assert!(
        found.keys().all(|program| expected.contains_key(program)),
        "something else does not compile:\n{rendered}"
    );
    let none = BTreeSet::new();
    let mut differences = Vec::new();
    for (program, expected) in &expected {
        let found = found.get(program).unwrap_or(&none);
        let is_expected = |(line, what): &(u64, String)| {
            expected
                .iter()
                .any(|(at, mark)| at == line && what.contains(mark.as_str()))
        };
        let is_found = |(line, mark): &(u64, String)| {
            found
                .iter()
                .any(|(at, what)| at == line && what.contains(mark.as_str()))
        };
        if !found.iter().all(is_expected) || !expected.iter().all(is_found) {
            differences.push(format!("{program}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{rendered}\n{differences:#?}");
}
