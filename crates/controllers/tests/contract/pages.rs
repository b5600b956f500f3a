//! The page of the domain, its tables and its transitions are those of the code.

use std::collections::BTreeMap;
use std::path::Path;

use holdpoint_controllers::DOMAIN;

use crate::support::{Result, World};

/// Cases of the reference that have no counterpart here; the page says why.
const ABSENT: &[u32] = &[47];
/// How many there are.
const CASES: u32 = 50;

#[test]
fn operations_and_tables_are_those_of_the_snapshot() -> Result {
    let operations: Vec<String> = DOMAIN
        .operations
        .iter()
        .map(|operation| {
            let actors: Vec<_> = operation
                .actors
                .iter()
                .map(|actor| actor.as_str())
                .collect();
            format!(
                "{} -> {} [{}] {:?}",
                operation.name,
                operation.event,
                actors.join(" "),
                operation.lease
            )
        })
        .collect();
    insta::assert_snapshot!("operations", operations.join("\n"));
    let world = World::new()?;
    let snapshot = world.db().snapshot()?;
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT m.tbl_name || '.' || c.name || ' ' || c.type || CASE c.\"notnull\" WHEN 1 THEN ' not null' ELSE '' END
         FROM sqlite_schema m JOIN pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.name LIKE 'controller%' ORDER BY m.name, c.cid",
    )?;
    let columns = statement.query_map([], |row| row.get::<_, String>(0))?;
    let columns: Vec<String> = columns.collect::<std::result::Result<_, _>>()?;
    insta::assert_snapshot!("tables", columns.join("\n"));
    Ok(())
}

/// Every numbered case of the reference has its row in the page, and the tests that the row names exist; and the other way round.
#[test]
fn the_page_names_a_test_for_each_case() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/CONTROLLERS.md"))?;
    let mut sources = String::new();
    read(&root.join("tests"), &mut sources)?;
    read(&root.join("src"), &mut sources)?;
    let mut rows: BTreeMap<u32, &str> = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if let Some(number) = cells.first().and_then(|cell| cell.parse::<u32>().ok()) {
            assert_eq!(rows.insert(number, cells[1]), None, "case {number} twice");
        }
    }
    let wanted: Vec<u32> = (1..=CASES)
        .filter(|number| !ABSENT.contains(number))
        .collect();
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), wanted);
    let mut named = Vec::new();
    for (number, cell) in &rows {
        let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "case {number} names no test");
        for name in tests {
            assert!(
                name.starts_with(&format!("controller_{number:02}_")),
                "{name} in the row of case {number}"
            );
            assert!(
                sources.contains(&format!("fn {name}(")),
                "{name} is no test"
            );
            named.push(name.to_owned());
        }
    }
    for (at, _) in sources.match_indices("fn controller_") {
        let name: String = sources[at + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let is_numbered = name
            .trim_start_matches("controller_")
            .starts_with(|c: char| c.is_ascii_digit());
        assert!(
            !is_numbered || named.contains(&name),
            "{name} is not on the page"
        );
    }
    Ok(())
}

fn read(folder: &Path, into: &mut String) -> Result {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
