//! No statement of the stores and views reads a table from end to end, however many runs there are.

use std::path::{Path, PathBuf};

use holdpoint_state::testing;

use crate::support::Fixture;

/// The sources below a room.
fn sources(room: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(room).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The texts of a source that are statements. What a macro begins (`concat!("SELECT …", $rest)`) and its callers end is one.
fn statements(source: &str) -> Vec<String> {
    let (mut found, mut begun) = (Vec::new(), None::<String>);
    let mut chars = source.chars();
    while let Some(char) = chars.next() {
        if char != '"' {
            continue;
        }
        let mut text = String::new();
        while let Some(char) = chars.next() {
            match char {
                '"' => break,
                '\\' => text.extend(chars.next()),
                other => text.push(other),
            }
        }
        let first = text.split_whitespace().next().unwrap_or_default();
        let is_begun = chars.as_str().trim_start_matches([',', ' ', '\n']);
        if ["SELECT", "INSERT", "UPDATE", "DELETE"].contains(&first) {
            if is_begun.starts_with("$rest") {
                begun = Some(text);
            } else {
                found.push(text);
            }
        } else if let (Some(begun), "WHERE") = (&begun, first) {
            found.push(format!("{begun}{text}"));
        }
    }
    found
}

fn is_whole(line: &str) -> bool {
    line.starts_with("SCAN ") && !line.contains(" USING ") && line != "SCAN CONSTANT ROW"
}

/// A sweep judges each tree again inside its transaction. However many runs there are, that must take the same time.
#[test]
fn a_tree_is_judged_again_without_reading_a_whole_table() {
    let fixture = Fixture::new();
    let retention = holdpoint_workflows::DOMAIN.retention;
    let by_member = retention
        .members
        .into_iter()
        .chain(retention.links.iter().map(|link| link.pairs))
        .chain(retention.related.iter().copied())
        .chain(retention.facts.iter().copied())
        .chain(retention.blockers.iter().map(|blocker| blocker.rows))
        .chain(retention.crossings.iter().map(|crossing| crossing.pairs))
        .map(|sql| format!("SELECT * FROM ({sql}) WHERE member = ?1"));
    let growing = retention.links.iter().filter(|link| link.grows);
    let by_other = growing.map(|link| format!("SELECT * FROM ({}) WHERE other = ?1", link.pairs));
    let mut whole_tables = Vec::new();
    for statement in by_member.chain(by_other) {
        let plan = testing::retention_plan(fixture.store.schema(), &statement).unwrap();
        if plan.iter().any(|line| is_whole(line)) {
            whole_tables.push(format!("{statement}\n{}", plan.join("\n")));
        }
    }
    assert!(whole_tables.is_empty(), "{}", whole_tables.join("\n\n"));
}

#[test]
fn no_statement_reads_a_whole_table() {
    let fixture = Fixture::new();
    let mut files = Vec::new();
    for room in ["src/store", "src/views"] {
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(room),
            &mut files,
        );
    }
    let (mut seen, mut whole_tables) = (0, Vec::new());
    for file in files {
        for statement in statements(&std::fs::read_to_string(&file).unwrap()) {
            seen += 1;
            let schema = fixture.store.schema();
            // Deletions run without foreign keys.
            let plan = if file.ends_with("store/retention.rs") {
                testing::retention_plan(schema, &statement).unwrap()
            } else {
                testing::query_plan(schema, &statement).unwrap()
            };
            if plan.iter().any(|line| is_whole(line)) {
                whole_tables.push(format!(
                    "{}: {statement}\n{}",
                    file.display(),
                    plan.join("\n")
                ));
            }
        }
    }
    assert!(whole_tables.is_empty(), "{}", whole_tables.join("\n\n"));
    // The reader of sources found what there is.
    assert!(50 < seen, "{seen}");
}

#[test]
fn what_is_due_is_read_in_its_order_without_sorting() {
    let fixture = Fixture::new();
    let source =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/views/due.rs"))
            .unwrap();
    let plans: Vec<String> = statements(&source)
        .iter()
        .map(|statement| {
            testing::query_plan(fixture.store.schema(), statement)
                .unwrap()
                .join("\n")
        })
        .collect();
    insta::assert_snapshot!(plans.join("\n\n"));
}
