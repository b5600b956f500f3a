//! One finding, and the ways to print all of them.

mod sarif;

use std::fmt::Write as _;

use serde::Serialize;

use super::rules::Rule;

/// Something that breaks a rule, at a place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Path relative to the workspace, with `/` between names.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The rule that is broken.
    pub rule: Rule,
    /// What is wrong, and what to do.
    pub message: String,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// `path:line:column: rule: message`, one line each, and a closing line.
    #[default]
    Human,
    /// One JSON document: `{"findings": [{path, line, column, rule, message}]}`.
    Json,
    /// Workflow commands that a GitHub job shows beside the changed lines.
    Github,
    /// SARIF 2.1.0, which code scanning services read.
    Sarif,
}

/// Writes all findings in the chosen form, ending with a newline.
pub fn render(findings: &[Finding], format: Format) -> String {
    match format {
        Format::Human => human(findings),
        Format::Json => json(findings),
        Format::Github => github(findings),
        Format::Sarif => sarif::document(findings),
    }
}

fn human(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding {
        path,
        line,
        column,
        rule,
        message,
    } in findings
    {
        let _ = writeln!(text, "{path}:{line}:{column}: {}: {message}", rule.name());
    }
    let _ = match findings.len() {
        0 => writeln!(text, "lint: no findings"),
        1 => writeln!(text, "lint: 1 finding; docs/LINT.md explains each rule"),
        count => writeln!(
            text,
            "lint: {count} findings; docs/LINT.md explains each rule"
        ),
    };
    text
}

fn json(findings: &[Finding]) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        findings: &'a [Finding],
    }
    // Only strings and numbers: serialising them can't fail.
    let mut text = serde_json::to_string_pretty(&Document { findings }).unwrap_or_default();
    text.push('\n');
    text
}

fn github(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding {
        path,
        line,
        column,
        rule,
        message,
    } in findings
    {
        let _ = writeln!(
            text,
            "::error file={},line={line},col={column},title={}::{}",
            property(path),
            rule.name(),
            data(message),
        );
    }
    text
}

/// Escapes the message of a workflow command, as GitHub documents it.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property of a workflow command: what `data` escapes, and the two separators.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_says_the_same() {
        let findings = [Finding {
            path: "crates/a,b/src/lib.rs".to_owned(),
            line: 3,
            column: 7,
            rule: Rule::SqlDdl,
            message: "100% wrong; do:\nthis".to_owned(),
        }];
        insta::assert_snapshot!(
            [Format::Human, Format::Json, Format::Github]
                .map(|format| render(&findings, format))
                .join("---\n"),
            @r#"
            crates/a,b/src/lib.rs:3:7: sql-ddl: 100% wrong; do:
            this
            lint: 1 finding; docs/LINT.md explains each rule
            ---
            {
              "findings": [
                {
                  "path": "crates/a,b/src/lib.rs",
                  "line": 3,
                  "column": 7,
                  "rule": "sql-ddl",
                  "message": "100% wrong; do:\nthis"
                }
              ]
            }
            ---
            ::error file=crates/a%2Cb/src/lib.rs,line=3,col=7,title=sql-ddl::100%25 wrong; do:%0Athis
            "#);
        insta::assert_snapshot!(render(&[], Format::Human), @"lint: no findings");
    }
}
