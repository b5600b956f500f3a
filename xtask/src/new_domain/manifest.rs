//! Manifests as text: what a workspace shares, the manifest of a new crate, and the lines that register it.
//!
//! Lines are added, never written anew, so that comments and order stay.

use std::fmt::Write as _;

use toml::{Table, Value};

/// What the workspace's manifest offers to its members.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Keys of `[workspace.package]` that a new crate takes.
    package: Vec<&'static str>,
    /// The version of the workspace's crates, when they share one.
    version: Option<String>,
    has_lints: bool,
    has_thiserror: bool,
    /// The patterns of the members.
    members: Vec<String>,
}

/// What a new crate takes from `[workspace.package]`, where it is there.
const PACKAGE_KEYS: [&str; 6] = [
    "version",
    "edition",
    "rust-version",
    "license",
    "repository",
    "publish",
];

impl Shared {
    /// Reads the workspace's manifest.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        let manifest: Table = text
            .parse()
            .map_err(|error: toml::de::Error| error.to_string())?;
        let part = |name: &str| {
            manifest
                .get("workspace")
                .and_then(|workspace| workspace.get(name))
        };
        let dependencies = part("dependencies").and_then(Value::as_table);
        let has = |name: &str| dependencies.is_some_and(|table| table.contains_key(name));
        if !has("holdpoint-state") {
            return Err(
                "a domain stands on the kernel; add `holdpoint-state` to [workspace.dependencies]"
                    .to_owned(),
            );
        }
        let package = part("package").and_then(Value::as_table);
        Ok(Self {
            package: PACKAGE_KEYS
                .into_iter()
                .filter(|key| package.is_some_and(|table| table.contains_key(*key)))
                .collect(),
            version: package
                .and_then(|table| table.get("version"))
                .and_then(Value::as_str)
                .map(str::to_owned),
            has_lints: part("lints").is_some(),
            has_thiserror: has("thiserror"),
            members: part("members")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// The manifest of the new crate.
pub(super) fn of_crate(shared: &Shared, package: &str, name: &str) -> String {
    let mut text =
        format!("[package]\nname = \"{package}\"\ndescription = \"The {name} domain.\"\n");
    for key in &shared.package {
        let _ = writeln!(text, "{key}.workspace = true");
    }
    for (key, value) in [("version", "0.1.0"), ("edition", "2024")] {
        if !shared.package.contains(&key) {
            let _ = writeln!(text, "{key} = \"{value}\"");
        }
    }
    if shared.has_lints {
        text.push_str("\n[lints]\nworkspace = true\n");
    }
    text.push_str("\n[dependencies]\nholdpoint-state.workspace = true\n");
    text.push_str(if shared.has_thiserror {
        "thiserror.workspace = true\n"
    } else {
        "thiserror = \"2\"\n"
    });
    text.push_str(
        "\n[dev-dependencies]\nholdpoint-state = { workspace = true, features = [\"testing\"] }\n",
    );
    text
}

/// The workspace's manifest with the new crate as a member and a shared dependency.
pub(super) fn register(text: &str, shared: &Shared, package: &str, folder: &str) -> String {
    let is_member = shared
        .members
        .iter()
        .any(|pattern| crate::lint::glob::matches(pattern, folder));
    let text = if is_member {
        text.to_owned()
    } else {
        add_member(text, folder)
    };
    let version = shared
        .version
        .as_ref()
        .map_or_else(String::new, |version| format!(", version = \"{version}\""));
    let line = format!("{package} = {{ path = \"{folder}\"{version} }}");
    add_below(&text, "[workspace.dependencies]", "holdpoint-", &line)
}

/// A tool's manifest with a dependency on the new crate.
pub(super) fn depend(text: &str, package: &str) -> String {
    add_below(
        text,
        "[dependencies]",
        "holdpoint-",
        &format!("{package}.workspace = true"),
    )
}

fn add_member(text: &str, folder: &str) -> String {
    let Some((before, rest)) = text.split_once("members = [") else {
        return text.to_owned();
    };
    let Some((list, after)) = rest.split_once(']') else {
        return text.to_owned();
    };
    let list = list.trim_end().trim_end_matches(',');
    let comma = if list.trim().is_empty() { "" } else { ", " };
    format!("{before}members = [{list}{comma}\"{folder}\"]{after}")
}

/// Puts a line below the last one of a table that begins with `like`, or first in the table.
fn add_below(text: &str, table: &str, like: &str, new: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let Some(head) = lines.iter().position(|text| text.trim() == table) else {
        return format!("{}\n\n{table}\n{new}\n", text.trim_end());
    };
    let end = lines
        .iter()
        .skip(head + 1)
        .position(|text| text.starts_with('['))
        .map_or(lines.len(), |length| head + 1 + length);
    let last = (head + 1..end)
        .rev()
        .find(|&index| lines.get(index).is_some_and(|text| text.starts_with(like)))
        .unwrap_or(head);
    let mut out = String::new();
    for (index, text) in lines.iter().enumerate() {
        let _ = writeln!(out, "{text}");
        if index == last {
            let _ = writeln!(out, "{new}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_without_members_by_pattern_gets_the_member() {
        let text = "[workspace]\nmembers = [\"a\"]\n\n[workspace.dependencies]\nholdpoint-state = \"1\"\nserde = \"1\"\n";
        let shared = Shared::of(text).unwrap();
        insta::assert_snapshot!(register(text, &shared, "orders", "orders"), @r#"
        [workspace]
        members = ["a", "orders"]

        [workspace.dependencies]
        holdpoint-state = "1"
        orders = { path = "orders" }
        serde = "1"
        "#);
        insta::assert_snapshot!(of_crate(&shared, "orders", "orders"), @r#"
        [package]
        name = "orders"
        description = "The orders domain."
        version = "0.1.0"
        edition = "2024"

        [dependencies]
        holdpoint-state.workspace = true
        thiserror = "2"

        [dev-dependencies]
        holdpoint-state = { workspace = true, features = ["testing"] }
        "#);
    }

    #[test]
    fn a_workspace_without_the_kernel_is_told_what_to_add() {
        let problem = Shared::of("[workspace]\nmembers = []\n").unwrap_err();
        assert!(problem.contains("add `holdpoint-state`"), "{problem}");
    }
}
