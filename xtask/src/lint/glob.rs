//! Path patterns of `lint.toml`: `*` within one name, `**` over any number of folders.

/// True when `path` (with `/` between names, relative) matches `pattern`.
pub fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    folders_match(&pattern, &path)
}

/// True when any of the patterns matches.
pub fn matches_any<S: AsRef<str>>(patterns: &[S], path: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| matches(pattern.as_ref(), path))
}

fn folders_match(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), None) => rest.is_empty(),
        (Some((&"**", rest)), Some((_, deeper))) => {
            folders_match(rest, path) || folders_match(pattern, deeper)
        }
        (None, Some(_)) | (Some(_), None) => false,
        (Some((name_pattern, rest)), Some((name, deeper))) => {
            name_matches(name_pattern.as_bytes(), name.as_bytes()) && folders_match(rest, deeper)
        }
    }
}

fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => name_matches(rest, name),
        (Some((b'*', rest)), Some((_, later))) => {
            name_matches(rest, name) || name_matches(pattern, later)
        }
        (Some((expected, rest)), Some((actual, later))) => {
            expected == actual && name_matches(rest, later)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stay_in_a_name_and_double_stars_do_not() {
        for (pattern, path, expected) in [
            ("src/store.rs", "src/store.rs", true),
            ("src/store.rs", "src/stores.rs", false),
            ("src/store/**", "src/store/runs.rs", true),
            ("src/store/**", "src/store/a/b.rs", true),
            ("src/store/**", "src/storey/a.rs", false),
            ("src/*.sql", "src/schema.sql", true),
            ("src/*.sql", "src/schema/state.sql", false),
            ("**/*.sql", "state.sql", true),
            ("**/*.sql", "src/a/state.sql", true),
            ("xtask/corpus/**", "xtask/corpus/bad/a.rs", true),
            ("tests/**/main.rs", "tests/main.rs", true),
            ("tests/**/main.rs", "tests/contract/main.rs", true),
            ("s*c/a*b*", "src/a-b-c", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
