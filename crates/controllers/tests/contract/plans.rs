//! What is looked for often is found by an index, however much there is beside it.

use std::path::Path;

use holdpoint_controllers::DOMAIN;
use holdpoint_state::testing;

use crate::support::{Result, World};

/// The texts of a source that are statements.
fn statements(source: &str) -> Vec<String> {
    source
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| {
            let first = text.split_whitespace().next().unwrap_or_default();
            ["SELECT", "INSERT", "UPDATE", "DELETE"].contains(&first)
        })
        .map(str::to_owned)
        .collect()
}

fn is_whole(line: &str) -> bool {
    line.starts_with("SCAN ") && !line.contains(" USING ") && line != "SCAN CONSTANT ROW"
}

#[test]
fn what_is_due_is_read_in_its_order_without_sorting() -> Result {
    let world = World::new()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(root.join("src/views/due.rs"))?;
    let mut plans = Vec::new();
    for statement in statements(&source) {
        plans.push(testing::query_plan(world.store.schema(), &statement)?.join("\n"));
    }
    insta::assert_snapshot!(plans.join("\n\n"));
    Ok(())
}

#[test]
fn no_statement_reads_a_whole_table() -> Result {
    let world = World::new()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut seen, mut whole) = (0, Vec::new());
    for room in ["src/store", "src/views"] {
        for entry in std::fs::read_dir(root.join(room))? {
            let path = entry?.path();
            if path.ends_with("store/retention.rs") {
                continue;
            }
            for statement in statements(&std::fs::read_to_string(&path)?) {
                // A part of a statement that a macro puts together ends with a space, or is none alone.
                let Ok(plan) = testing::query_plan(world.store.schema(), &statement) else {
                    continue;
                };
                if statement.ends_with(' ') {
                    continue;
                }
                seen += 1;
                if plan.iter().any(|line| is_whole(line)) {
                    whole.push(format!(
                        "{}: {statement}\n{}",
                        path.display(),
                        plan.join("\n")
                    ));
                }
            }
        }
    }
    assert!(whole.is_empty(), "{}", whole.join("\n\n"));
    assert!(25 < seen, "{seen}");
    Ok(())
}

#[test]
fn a_tree_is_judged_again_without_reading_a_whole_table() -> Result {
    let world = World::new()?;
    let retention = DOMAIN.retention;
    let by_member = retention
        .members
        .into_iter()
        .chain(retention.facts.iter().copied())
        .chain(retention.blockers.iter().map(|blocker| blocker.rows))
        .map(|sql| format!("SELECT * FROM ({sql}) WHERE member = 1"));
    let deletions = retention
        .deletions
        .iter()
        .map(|deletion| deletion.sql.replace("?1", "1"));
    for statement in by_member.chain(deletions) {
        let plan = testing::retention_plan(world.store.schema(), &statement)?;
        assert!(
            !plan.iter().any(|line| is_whole(line)),
            "{statement}\n{}",
            plan.join("\n")
        );
    }
    Ok(())
}
