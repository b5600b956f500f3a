//! The table of cases in `docs/TELEGRAM.md` and the tests agree: each names the other, and under the right number.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn the_table_of_cases_is_true() -> Result {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["src/telegram", "tests/telegram"] {
        sources(&here.join(folder), &mut found)?;
    }
    let mut tests = BTreeSet::new();
    for path in found {
        for line in fs::read_to_string(path)?.lines() {
            let name = line.trim_start().strip_prefix("fn channel_");
            tests.extend(
                name.and_then(|name| name.split('(').next())
                    .map(str::to_owned),
            );
        }
    }
    assert!(20 < tests.len());
    let page = fs::read_to_string(here.join("../../docs/TELEGRAM.md"))?;
    let (_, table) = page
        .split_once("## Cases that the child shows")
        .ok_or("no table")?;
    let mut named = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let Ok(number) = cells[1].parse::<u32>() else {
            continue;
        };
        for name in cells[3]
            .split('`')
            .filter_map(|word| word.strip_prefix("channel_"))
        {
            // One number, or "NN_and_MM", or "NN_to_MM".
            let numbers: Vec<u32> = name
                .split('_')
                .map_while(|word| match word {
                    "and" | "to" => Some(None),
                    word => word.parse().ok().map(Some),
                })
                .flatten()
                .collect();
            let last = numbers.last().copied().unwrap_or_default();
            assert!((numbers[0]..=last).contains(&number), "{number}: {name}");
            named.insert(name.to_owned());
        }
    }
    assert_eq!(named, tests);
    Ok(())
}
