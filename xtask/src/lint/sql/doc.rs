//! The Rust code in documentation that `cargo test` compiles and runs.

/// Documentation that belongs together, line by line.
#[derive(Debug, Default)]
pub(super) struct Block {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    text: String,
    number: usize,
    column: usize,
}

/// One code block of Rust.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) source: String,
    /// For each line of the code: its line in the file, and how far its columns are moved.
    pub(super) lines: Vec<(usize, usize)>,
}

/// Words behind a fence that leave a block a doc-test. Blocks that are not run (`ignore`,
/// `compile_fail`) or not Rust (`text`, `sql`) change nothing.
const RUST: &[&str] = &["rust", "no_run", "should_panic"];

impl Block {
    /// Adds a line; `column` is where its text begins, from 1.
    pub(super) fn line(&mut self, text: &str, line: usize, column: usize) {
        self.lines.push(Line {
            text: text.to_owned(),
            number: line,
            column,
        });
    }

    /// The code blocks that are doc-tests.
    pub(super) fn into_code(self) -> Vec<Code> {
        let mut all = Vec::new();
        let mut open: Option<(&str, Option<Code>)> = None;
        for Line {
            text,
            number,
            column,
        } in &self.lines
        {
            let trimmed = text.trim_start();
            let fence = ["```", "~~~"]
                .into_iter()
                .find(|fence| trimmed.starts_with(fence));
            match (&mut open, fence) {
                (None, Some(fence)) => {
                    let info = trimmed.trim_start_matches(['`', '~']);
                    let is_rust = info
                        .split([',', ' '])
                        .filter(|word| !word.is_empty())
                        .all(|word| RUST.contains(&word) || word.starts_with("edition"));
                    let code = Code {
                        source: String::new(),
                        lines: Vec::new(),
                    };
                    open = Some((fence, is_rust.then_some(code)));
                }
                (Some((opened_by, code)), Some(fence)) if *opened_by == fence => {
                    all.extend(code.take());
                    open = None;
                }
                (Some((_, Some(code))), _) => {
                    // A hidden line runs like any other; its mark becomes a space.
                    let hidden = trimmed == "#" || trimmed.starts_with("# ");
                    let shown = if hidden {
                        text.replacen('#', " ", 1)
                    } else {
                        text.clone()
                    };
                    code.source.push_str(&shown);
                    code.source.push('\n');
                    code.lines.push((*number, column - 1));
                }
                (Some((_, None)) | None, _) => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_run_are_code() {
        let mut block = Block::default();
        let text = "Prose.\n```\nlet a = 1;\n# let hidden = 2;\n```\n```sql\nDELETE\n```\n```ignore\nx\n```\n~~~rust,no_run\nlet b = 3;\n~~~\n";
        for (index, line) in text.lines().enumerate() {
            block.line(line, index + 10, 5);
        }
        let code = block.into_code();
        insta::assert_debug_snapshot!(code, @r#"
        [
            Code {
                source: "let a = 1;\n  let hidden = 2;\n",
                lines: [
                    (
                        12,
                        4,
                    ),
                    (
                        13,
                        4,
                    ),
                ],
            },
            Code {
                source: "let b = 3;\n",
                lines: [
                    (
                        22,
                        4,
                    ),
                ],
            },
        ]
        "#);
    }
}
