//! Accepted findings: each names its rule and its reason, and goes when nothing needs it.
//!
//! Two forms. An entry in `lint.toml` covers paths; a comment `// lint:allow(rule): reason` (`--` in a
//! SQL file) covers the line below it, or the whole item that begins there, or its own line when code
//! stands before it.

use std::cell::Cell;

use super::config::Config;
use super::finding::Finding;
use super::glob;
use super::rules::Rule;

/// One exception, and whether a finding needed it.
#[derive(Debug)]
pub struct Exception {
    /// The rule that is not applied.
    pub rule: Rule,
    /// Where the exception itself is written.
    pub path: String,
    /// Line of the exception, from 1.
    pub line: usize,
    /// Why it is right there.
    pub reason: String,
    covers: Covers,
    used: Cell<bool>,
}

#[derive(Debug)]
enum Covers {
    /// Findings on these lines of the same file, both ends included.
    Lines(usize, usize),
    /// Findings in all files that match, with this text in the message.
    Paths {
        pattern: String,
        contains: Option<String>,
    },
}

impl Exception {
    /// What it covers, for people.
    pub fn covers(&self) -> String {
        match &self.covers {
            Covers::Lines(first, last) if first == last => format!("line {first}"),
            Covers::Lines(first, last) => format!("lines {first} to {last}"),
            Covers::Paths {
                pattern,
                contains: None,
            } => pattern.clone(),
            Covers::Paths {
                pattern,
                contains: Some(text),
            } => format!("{pattern}, only `{text}`"),
        }
    }

    fn accepts(&self, finding: &Finding) -> bool {
        let place = match &self.covers {
            Covers::Lines(first, last) => {
                finding.path == self.path && *first <= finding.line && finding.line <= *last
            }
            Covers::Paths { pattern, contains } => {
                glob::matches(pattern, &finding.path)
                    && contains
                        .as_ref()
                        .is_none_or(|text| finding.message.contains(text))
            }
        };
        let accepted = place && self.rule == finding.rule;
        if accepted {
            self.used.set(true);
        }
        accepted
    }
}

/// The exceptions of a workspace.
#[derive(Debug, Default)]
pub struct Exceptions {
    /// In the order in which they were read.
    pub all: Vec<Exception>,
}

const MARK: &str = "lint:allow(";

impl Exceptions {
    /// Reads the entries of `lint.toml`; entries without rule or reason become findings.
    pub fn of_config(config: &Config, path: &str, text: &str) -> (Self, Vec<Finding>) {
        let mut exceptions = Self::default();
        let mut findings = Vec::new();
        let mut places = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.trim() == "[[exceptions]]")
            .map(|(index, _)| index + 1);
        for entry in &config.exceptions {
            let line = places.next().unwrap_or(1);
            let covers = Covers::Paths {
                pattern: entry.path.clone(),
                contains: entry.contains.clone(),
            };
            match checked(path, line, 1, &entry.rule, &entry.reason, covers) {
                Ok(exception) => exceptions.all.push(exception),
                Err(finding) => findings.push(finding),
            }
        }
        (exceptions, findings)
    }

    /// Reads the comments of a Rust or SQL file. `item_end` gives the last line of the item that
    /// begins on a line.
    pub fn add_comments(
        &mut self,
        path: &str,
        source: &str,
        item_end: impl Fn(usize) -> Option<usize>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !source.contains(MARK) {
            return findings;
        }
        let sign = if path.to_ascii_lowercase().ends_with(".sql") {
            "-- "
        } else {
            "// "
        };
        let lines: Vec<&str> = source.lines().collect();
        for (index, text) in lines.iter().enumerate() {
            let Some((before, written)) = comment(text, sign) else {
                continue;
            };
            let line = index + 1;
            let (rule, reason) = written.split_once("):").unwrap_or((written, ""));
            let covers = if before.trim().is_empty() {
                let first = lines
                    .iter()
                    .enumerate()
                    .skip(line)
                    .find(|(_, text)| {
                        !text.trim().is_empty() && !text.trim_start().starts_with(sign.trim_end())
                    })
                    .map_or(line + 1, |(index, _)| index + 1);
                Covers::Lines(first, item_end(first).unwrap_or(first))
            } else {
                Covers::Lines(line, line)
            };
            let column = before.chars().count() + 1;
            match checked(path, line, column, rule.trim(), reason, covers) {
                Ok(exception) => self.all.push(exception),
                Err(finding) => findings.push(finding),
            }
        }
        findings
    }

    /// The findings that no exception accepts, and one for each exception that accepts nothing.
    pub fn apply(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut left: Vec<Finding> = findings
            .into_iter()
            // Every exception is asked, so that two that cover one finding both count as needed.
            .filter(|finding| {
                self.all
                    .iter()
                    .filter(|exception| exception.accepts(finding))
                    .count()
                    == 0
            })
            .collect();
        left.extend(
            self.all
                .iter()
                .filter(|exception| !exception.used.get())
                .map(|exception| Finding {
                    path: exception.path.clone(),
                    line: exception.line,
                    column: 1,
                    rule: Rule::ExceptionUnused,
                    message: format!(
                        "nothing breaks {} at {} any more; remove this exception",
                        exception.rule,
                        exception.covers()
                    ),
                }),
        );
        left
    }
}

/// The code before the comment on a line, and what the comment says behind the mark. A mark in a string
/// or in documentation is none.
fn comment<'a>(line: &'a str, sign: &str) -> Option<(&'a str, &'a str)> {
    let (before, written) = line.split_once(&format!("{sign}{MARK}"))?;
    let in_text = before.contains(sign.trim_end())
        || before.ends_with('`')
        || before.matches('"').count() % 2 == 1;
    (!in_text).then_some((before, written))
}

fn checked(
    path: &str,
    line: usize,
    column: usize,
    rule: &str,
    reason: &str,
    covers: Covers,
) -> Result<Exception, Finding> {
    let finding = |message: String| Finding {
        path: path.to_owned(),
        line,
        column,
        rule: Rule::ExceptionReason,
        message,
    };
    let reason = reason.trim();
    let Some(rule) = Rule::named(rule) else {
        return Err(finding(format!(
            "`{rule}` is no rule; docs/LINT.md lists them"
        )));
    };
    if reason.is_empty() {
        return Err(finding(format!(
            "an exception to {rule} without a reason; write `// lint:allow({rule}): why it is right here`, \
             or `reason = \"…\"` in lint.toml"
        )));
    }
    Ok(Exception {
        rule,
        path: path.to_owned(),
        line,
        reason: reason.to_owned(),
        covers,
        used: Cell::new(false),
    })
}
