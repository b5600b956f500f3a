//! Findings as SARIF 2.1.0 (<https://docs.oasis-open.org/sarif/sarif/v2.1.0/>): one run, every rule of the lint with what it is
//! for, and one result for each finding.

use serde_json::{Value, json};

use super::Finding;
use crate::lint::rules::Rule;

/// Where the schema of the format is published.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The whole document, ending with a newline.
pub(super) fn document(findings: &[Finding]) -> String {
    let rules: Vec<Value> = Rule::ALL.iter().copied().map(rule).collect();
    let results: Vec<Value> = findings.iter().map(result).collect();
    let document = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "holdpoint-lint",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            // Lines and columns are counted in characters, which is not the format's default.
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    // Only strings and numbers: serialising them can't fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn rule(rule: Rule) -> Value {
    json!({
        "id": rule.name(),
        "shortDescription": { "text": rule.about() },
        "help": { "text": format!("docs/LINT.md, section {}", rule.name()) },
        "defaultConfiguration": { "level": "error" },
    })
}

fn result(finding: &Finding) -> Value {
    json!({
        "ruleId": finding.rule.name(),
        "ruleIndex": Rule::ALL.iter().position(|rule| *rule == finding.rule),
        "level": "error",
        "message": { "text": finding.message },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&finding.path), "uriBaseId": "%SRCROOT%" },
            "region": { "startLine": finding.line, "startColumn": finding.column },
        } }],
    })
}

/// A relative reference of RFC 3986: bytes that a path segment may not have are escaped.
fn uri(path: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=@".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let finding = |path: &str, line, rule, message: &str| Finding {
            path: path.to_owned(),
            line,
            column: 7,
            rule,
            message: message.to_owned(),
        };
        vec![
            finding("crates/a b/src/%lib.rs", 3, Rule::SqlDdl, "100% \"wrong\""),
            finding("lint.toml", 1, Rule::ExceptionUnused, "remove it"),
        ]
    }

    /// What the published schema demands of the objects that are used here: the properties that must be there, those that may, and
    /// how each is formed. A property that the schema does not know is an error in it.
    fn check(value: &Value, kind: &str) {
        let (required, allowed): (&[&str], &[&str]) = match kind {
            "log" => (&["version", "runs"], &["$schema"]),
            "run" => (&["tool"], &["columnKind", "results"]),
            "tool" => (&["driver"], &[]),
            "driver" => (&["name"], &["semanticVersion", "rules"]),
            "rule" => (
                &["id"],
                &["shortDescription", "help", "defaultConfiguration"],
            ),
            "configuration" => (&[], &["level"]),
            "message" => (&["text"], &[]),
            "result" => (&["message"], &["ruleId", "ruleIndex", "level", "locations"]),
            "location" => (&[], &["physicalLocation"]),
            "physicalLocation" => (&["artifactLocation"], &["region"]),
            "artifactLocation" => (&["uri"], &["uriBaseId"]),
            "region" => (&["startLine"], &["startColumn"]),
            _ => unreachable!("{kind}"),
        };
        let object = value
            .as_object()
            .unwrap_or_else(|| panic!("{kind}: {value}"));
        for name in required {
            assert!(object.contains_key(*name), "{kind} needs {name}: {value}");
        }
        for (name, value) in object {
            assert!(
                required.contains(&name.as_str()) || allowed.contains(&name.as_str()),
                "{kind} has no {name}"
            );
            let each = |kind: &str| {
                for value in value.as_array().unwrap() {
                    check(value, kind);
                }
            };
            match (kind, name.as_str()) {
                ("log", "runs") => each("run"),
                ("run", "tool") => check(value, "tool"),
                ("tool", "driver") => check(value, "driver"),
                ("driver", "rules") => each("rule"),
                ("rule", "shortDescription" | "help") | ("result", "message") => {
                    check(value, "message");
                }
                ("rule", "defaultConfiguration") => check(value, "configuration"),
                ("run", "results") => each("result"),
                ("result", "locations") => each("location"),
                ("location", "physicalLocation") => check(value, "physicalLocation"),
                ("physicalLocation", "artifactLocation") => check(value, "artifactLocation"),
                ("physicalLocation", "region") => check(value, "region"),
                ("log", "version") => assert_eq!(value, "2.1.0"),
                ("run", "columnKind") => assert_eq!(value, "unicodeCodePoints"),
                (_, "level") => assert_eq!(value, "error"),
                (_, "startLine" | "startColumn") => assert!(1 <= value.as_u64().unwrap()),
                (_, "ruleIndex") => assert!(value.is_u64()),
                _ => assert!(!value.as_str().unwrap().is_empty(), "{kind} {name}"),
            }
        }
    }

    #[test]
    fn the_document_has_the_shape_of_sarif() {
        for findings in [Vec::new(), findings()] {
            let document: Value = serde_json::from_str(&super::document(&findings)).unwrap();
            check(&document, "log");
            let run = &document["runs"][0];
            let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
            assert_eq!(rules.len(), Rule::ALL.len());
            let results = run["results"].as_array().unwrap();
            assert_eq!(results.len(), findings.len());
            for result in results {
                let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
                assert_eq!(
                    rules[index]["id"], result["ruleId"],
                    "the index leads to the rule"
                );
            }
        }
    }

    #[test]
    fn a_result_says_what_is_wrong_where() {
        let result = result(&findings()[0]);
        assert_eq!(result["message"]["text"], "100% \"wrong\"");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(
            place["artifactLocation"]["uri"],
            "crates/a%20b/src/%25lib.rs"
        );
        assert_eq!(place["region"]["startLine"], 3);
        assert_eq!(place["region"]["startColumn"], 7);
    }
}
