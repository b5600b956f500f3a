//! Two specs side by side: the lines that differ, with those around them.
//!
//! A spec is written as YAML would be read by people: members in order, texts of several lines as such. It is shown, never read back.

use std::fmt::Write as _;

use serde_json::Value;
use similar::TextDiff;

/// How many lines around a difference are shown.
const AROUND: usize = 3;
/// How long two specs are compared at most; then the rest is told as replaced.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// The differences as a unified diff without a head; empty when there is none.
pub(super) fn diff(before: Option<&Value>, after: &Value) -> String {
    let (before, after) = (before.map(outline).unwrap_or_default(), outline(after));
    let mut config = TextDiff::configure();
    config.timeout(PATIENCE);
    config
        .diff_lines(&before, &after)
        .unified_diff()
        .context_radius(AROUND)
        .missing_newline_hint(false)
        .to_string()
}

/// A value as lines.
pub(super) fn outline(value: &Value) -> String {
    let mut lines = String::new();
    write(value, 0, &mut lines);
    lines
}

fn write(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                // Writing to a string does not fail.
                let _ = write!(out, "{indent}{}:", scalar(name));
                beside(member, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut lines = String::new();
                write(item, 0, &mut lines);
                for (index, line) in lines.lines().enumerate() {
                    let sign = if index == 0 { "- " } else { "  " };
                    let _ = writeln!(out, "{indent}{sign}{line}");
                }
            }
        }
        other => {
            let mut line = String::new();
            beside(other, depth, &mut line);
            // There is no name before it, and no space after that.
            let _ = write!(out, "{indent}{}", line.strip_prefix(' ').unwrap_or(&line));
        }
    }
}

/// A value after its name.
fn beside(value: &Value, depth: usize, out: &mut String) {
    let _ = match value {
        Value::String(text) if text.contains('\n') => {
            let _ = writeln!(out, " {}", if text.ends_with('\n') { "|" } else { "|-" });
            for line in text.lines() {
                let _ = writeln!(out, "{}{line}", "  ".repeat(depth + 1));
            }
            Ok(())
        }
        Value::String(text) => writeln!(out, " {}", scalar(text)),
        Value::Object(members) if !members.is_empty() => {
            out.push('\n');
            write(value, depth + 1, out);
            Ok(())
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write(value, depth + 1, out);
            Ok(())
        }
        other => writeln!(out, " {other}"),
    };
}

/// A text on one line: as it is where nothing could be mistaken, and quoted otherwise.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let is_word = matches!(text, "true" | "false" | "null");
    let begins =
        text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | '/'));
    if begins && !is_word && text.chars().all(|c| plain(c) || c == ' ') && text.trim() == text {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_spec_is_written_for_people() {
        let spec = json!({
            "directory": "public",
            "files": [
                { "path": "index.html", "content": "<h1>Hello</h1>\n<p>…\n" },
                { "path": "a", "from": { "workflow": "page", "input": {} } },
                "true", 7, null, [], ["x", ["y"]], "1", " a",
            ],
            "odd name: x": "no end\nof line",
        });
        insta::assert_snapshot!(outline(&spec), @r#"
        directory: public
        files:
          - content: |
              <h1>Hello</h1>
              <p>…
            path: index.html
          - from:
              input: {}
              workflow: page
            path: a
          - "true"
          - 7
          - null
          - []
          - - x
            - - y
          - "1"
          - " a"
        "odd name: x": |-
          no end
          of line
        "#);
    }

    #[test]
    fn only_what_differs_is_shown() {
        let lines = |third: &str| {
            let text: String = (1..=20)
                .map(|n| {
                    if n == 3 {
                        format!("{third}\n")
                    } else {
                        format!("line {n}\n")
                    }
                })
                .collect();
            json!({ "content": text, "path": "a" })
        };
        insta::assert_snapshot!(diff(Some(&lines("old")), &lines("new")), @r#"
        @@ -1,7 +1,7 @@
         content: |
           line 1
           line 2
        -  old
        +  new
           line 4
           line 5
           line 6
        "#);
        insta::assert_snapshot!(diff(None, &json!({ "a": 1 })), @r#"
        @@ -0,0 +1 @@
        +a: 1
        "#);
        assert_eq!(diff(Some(&lines("old")), &lines("old")), "");
    }
}
