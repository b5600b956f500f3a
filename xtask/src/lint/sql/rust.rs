//! Every text that a Rust file holds, wherever the language lets it stand.
//!
//! The walk goes over tokens, not over the syntax tree: the body of a macro is tokens only, and SQL
//! in it runs as well as any other. Texts that the compiler or the program joins (`concat!`, `+`,
//! `format!` with arguments that are known here) are joined before they are judged.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, LineColumn, Span, TokenStream, TokenTree};

use super::doc;
use super::statement::{self, OPENERS};
use super::text::{Anchor, Text, decode};

/// Stands for the crate's folder at the beginning of an included path.
pub(super) const CRATE_FOLDER: &str = "<crate>";

/// Methods whose first argument is SQL.
const RUNS_SQL: &[&str] = &[
    "execute",
    "execute_batch",
    "prepare",
    "prepare_cached",
    "prepare_with_flags",
    "query",
    "query_map",
    "query_one",
    "query_row",
    "query_row_and_then",
];

/// Of these, the ones that run nothing but SQL, whoever has them.
const RUNS_ONLY_SQL: &[&str] = &["execute_batch", "prepare_cached", "prepare_with_flags"];

/// Methods that others have too: they run SQL when a connection is asked, by its name.
const MAY_RUN_SQL: &[&str] = &["execute", "prepare", "query_one", "query_row"];

/// Names of what runs SQL.
const SQL_RECEIVERS: &[&str] = &[
    "change",
    "conn",
    "connection",
    "database",
    "db",
    "snapshot",
    "sql",
    "transaction",
    "tx",
];

/// Methods that set a pragma, with its name as second argument.
const SETS_PRAGMA: &[&str] = &["pragma", "pragma_update", "pragma_update_and_check"];

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) texts: Vec<Text>,
    /// Files that become part of this one.
    pub(super) includes: Vec<Include>,
    /// Names that are handed to something that runs SQL.
    pub(super) asked_names: BTreeSet<String>,
    /// Other names of the same texts: `for query in QUERIES`, `let text = QUERY`.
    pub(super) aliases: BTreeSet<(String, String)>,
    /// Names that have a text as their value.
    pub(super) text_names: BTreeSet<String>,
    /// SQL that can't be read here: the place, and the name it comes by, if it has one.
    pub(super) unread: Vec<(usize, usize, Option<String>)>,
}

/// A file that becomes part of another one.
#[derive(Debug)]
pub(super) struct Include {
    /// As code, by `include!` or `#[path]`; otherwise as a text, by `include_str!` or `include_bytes!`.
    pub(super) is_code: bool,
    /// As written.
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Where the lines of a piece of code stand in the file: its line, and how far its columns are moved.
pub(super) type Lines<'a> = &'a [(usize, usize)];

/// Collects the texts of a token stream. `lines` is empty when the tokens are those of the file
/// itself; `source` is the text that they were read from.
pub(super) fn texts(tokens: &TokenStream, source: &str, lines: Lines<'_>) -> Found {
    let mut walk = Walk {
        found: Found::default(),
        lines,
        source_lines: source.lines().collect(),
        values: BTreeMap::new(),
        doc: doc::Block::default(),
    };
    walk.collect_values(tokens);
    walk.stream(tokens, &Context::default());
    walk.end_doc();
    walk.found
}

#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub(super) asked_for: bool,
    pub(super) binding: Option<String>,
}

pub(super) struct Walk<'a> {
    pub(super) found: Found,
    lines: Lines<'a>,
    source_lines: Vec<&'a str>,
    /// Constants and variables whose value is one literal.
    pub(super) values: BTreeMap<String, String>,
    doc: doc::Block,
}

impl Walk<'_> {
    pub(super) fn place(&self, at: LineColumn) -> (usize, usize) {
        match at
            .line
            .checked_sub(1)
            .and_then(|index| self.lines.get(index))
        {
            Some(&(line, shift)) => (line, at.column + 1 + shift),
            None => (at.line, at.column + 1),
        }
    }

    pub(super) fn literal(&self, token: &TokenTree) -> Option<(String, Vec<Anchor>)> {
        let TokenTree::Literal(literal) = token else {
            return None;
        };
        let (line, column) = self.place(literal.span().start());
        decode(&literal.to_string(), line, column)
    }

    /// Remembers `const NAME … = "…";`, so that a template that names it can be read.
    fn collect_values(&mut self, tokens: &TokenStream) {
        let all: Vec<TokenTree> = tokens.clone().into_iter().collect();
        for statement in all.split(|token| is_punct(token, ';')) {
            let binds = statement
                .iter()
                .position(|token| is_any_ident(token, &["const", "static", "let"]));
            if let Some(start) = binds
                && let [.., equals, value] = statement
                && is_punct(equals, '=')
                && let Some(name) = bound_name(statement.get(start + 1..).unwrap_or_default())
                && let Some((literal, _)) = self.literal(value)
            {
                self.values.insert(name, literal);
            }
        }
        for token in &all {
            if let TokenTree::Group(group) = token {
                self.collect_values(&group.stream());
            }
        }
    }

    fn stream(&mut self, tokens: &TokenStream, context: &Context) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        self.sequence(&tokens, context);
    }

    fn sequence(&mut self, tokens: &[TokenTree], outer: &Context) {
        let mut context = outer.clone();
        let mut statement_start = self.found.texts.len();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let rest = tokens.get(at + 1..).unwrap_or_default();
            let mut used = 1;
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ';' => {
                    context = outer.clone();
                    statement_start = self.found.texts.len();
                }
                TokenTree::Punct(punct) if punct.as_char() == '+' => {
                    if let ([.., TokenTree::Ident(target)], [equals, ..]) =
                        (tokens.get(..at).unwrap_or_default(), rest)
                        && is_punct(equals, '=')
                    {
                        context.binding = Some(target.to_string());
                    }
                    used += self.plus(rest, statement_start);
                }
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    used += self.attribute(rest);
                }
                TokenTree::Punct(_) => {}
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    if ["const", "static", "let", "for"].contains(&name.as_str()) {
                        context.binding = bound_name(rest);
                        self.alias(context.binding.as_ref(), rest);
                    } else if let [bang, TokenTree::Group(group), ..] = rest
                        && is_punct(bang, '!')
                    {
                        self.macro_call(&name, group, &context);
                        used += 2;
                    } else if let [TokenTree::Group(group), ..] = rest
                        && group.delimiter() == Delimiter::Parenthesis
                    {
                        let before = tokens.get(..at).unwrap_or_default();
                        used += self.call(&name, token.span(), before, group, &context);
                    }
                }
                TokenTree::Literal(_) => {
                    if let Some((value, anchors)) = self.literal(token) {
                        self.emit(value, anchors, &context);
                    }
                }
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Bracket {
                        self.joined_list(group, rest, &context);
                    }
                    self.stream(&group.stream(), &context);
                }
            }
            if !matches!(token, TokenTree::Punct(punct) if punct.as_char() == '#') {
                self.end_doc();
            }
            at += used;
        }
    }

    pub(super) fn emit(&mut self, value: String, anchors: Vec<Anchor>, context: &Context) {
        self.found.text_names.extend(
            context
                .binding
                .clone()
                .filter(|_| statement::is_readable(&value)),
        );
        self.found.texts.push(Text {
            value,
            anchors,
            asked_for: context.asked_for,
            in_doc: false,
            binding: context.binding.clone(),
        });
    }

    /// Remembers `let name = other` and `for name in other`.
    fn alias(&mut self, name: Option<&String>, rest: &[TokenTree]) {
        let is_start = |token: &TokenTree| is_punct(token, '=') || is_any_ident(token, &["in"]);
        let is_end = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            other => is_punct(other, ';'),
        };
        let mut value = rest
            .iter()
            .position(is_start)
            .and_then(|start| rest.get(start + 1..))
            .unwrap_or_default();
        value = value.split(is_end).next().unwrap_or_default();
        if let [iterated @ .., dot, method, TokenTree::Group(_)] = value
            && is_punct(dot, '.')
            && is_any_ident(method, &["iter", "into_iter"])
        {
            value = iterated;
        }
        if let (Some(name), Some(other)) = (name, asked_name(value)) {
            self.found.aliases.insert((name.clone(), other));
        }
    }

    /// Documentation is read as documentation; other attributes are tokens like any others.
    fn attribute(&mut self, rest: &[TokenTree]) -> usize {
        let skipped = usize::from(rest.first().is_some_and(|token| is_punct(token, '!')));
        let Some(TokenTree::Group(group)) = rest.get(skipped) else {
            return 0;
        };
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        if let [name, equals, TokenTree::Literal(literal)] = inner.as_slice()
            && is_any_ident(name, &["doc"])
            && is_punct(equals, '=')
        {
            self.doc_comment(literal.span(), &literal.to_string());
            return skipped + 1;
        }
        self.end_doc();
        if let [name, equals, path] = inner.as_slice()
            && is_any_ident(name, &["path"])
            && is_punct(equals, '=')
            && let Some((written, _)) = self.literal(path)
        {
            let (line, column) = self.place(path.span().start());
            self.found.includes.push(Include {
                is_code: true,
                path: written,
                line,
                column,
            });
        }
        self.stream(&group.stream(), &Context::default());
        skipped + 1
    }

    /// Takes the lines of a doc comment as they stand in the source.
    fn doc_comment(&mut self, span: Span, written: &str) {
        let (start, end) = (span.start(), span.end());
        let first = self
            .source_lines
            .get(start.line.wrapping_sub(1))
            .copied()
            .unwrap_or_default();
        let opening: String = first.chars().skip(start.column).take(3).collect();
        if !opening.starts_with('/') {
            let (line, column) = self.place(start);
            if let Some((value, _)) = decode(written, line, column) {
                for text in value.split('\n') {
                    self.doc.line(text, line, column + 1);
                }
            }
            return;
        }
        for number in start.line..=end.line {
            let whole = self
                .source_lines
                .get(number - 1)
                .copied()
                .unwrap_or_default();
            let skipped = if number == start.line {
                start.column + 3
            } else {
                0
            };
            let mut text: String = whole.chars().skip(skipped).collect();
            let mut column = skipped;
            if opening.starts_with("/*") {
                text = text.trim_end().trim_end_matches("*/").to_owned();
                if number != start.line && text.trim_start().starts_with('*') {
                    let star = text.find('*').map_or(0, |found| found + 1);
                    text = text.split_off(star);
                    column = star;
                }
            }
            let (line, column) = self.place(LineColumn {
                line: number,
                column,
            });
            self.doc.line(&text, line, column);
        }
    }

    /// Judges the Rust code of the documentation that ends here.
    fn end_doc(&mut self) {
        for code in std::mem::take(&mut self.doc).into_code() {
            // A doc-test that does not parse is the compiler's to report.
            if let Ok(tokens) = code.source.parse::<TokenStream>() {
                let inner = texts(&tokens, &code.source, &code.lines);
                self.found
                    .texts
                    .extend(inner.texts.into_iter().map(|text| Text {
                        in_doc: true,
                        ..text
                    }));
            }
        }
    }

    /// `name(…)`; gives the number of tokens used behind the name.
    fn call(
        &mut self,
        name: &str,
        span: Span,
        before: &[TokenTree],
        group: &Group,
        context: &Context,
    ) -> usize {
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        let arguments: Vec<&[TokenTree]> = inner.split(|token| is_punct(token, ',')).collect();
        if SETS_PRAGMA.contains(&name) {
            let pragma = arguments.get(1).copied().unwrap_or_default();
            let pragma = match pragma {
                [one] => self
                    .literal(one)
                    .map_or_else(|| "{}".to_owned(), |(value, _)| value),
                _ => "{}".to_owned(),
            };
            let (line, column) = self.place(span.start());
            let anchors = vec![Anchor {
                at: 0,
                line,
                column,
            }];
            self.emit(format!("PRAGMA {pragma} = 1"), anchors, context);
            return 0;
        }
        // What is pushed to a text belongs to it.
        if ["push_str", "insert_str"].contains(&name)
            && let [.., TokenTree::Ident(target), dot] = before
            && is_punct(dot, '.')
        {
            let binding = Some(target.to_string());
            self.sequence(
                &inner,
                &Context {
                    binding,
                    ..context.clone()
                },
            );
            return 1;
        }
        if !RUNS_SQL.contains(&name) {
            return 0;
        }
        let Some((first, _)) = arguments.split_first() else {
            return 0;
        };
        let asked_name = asked_name(first);
        self.found.asked_names.extend(asked_name.clone());
        let texts_before = self.found.texts.len();
        let includes_before = self.found.includes.len();
        self.sequence(
            first,
            &Context {
                asked_for: true,
                ..context.clone()
            },
        );
        let is_sql = RUNS_ONLY_SQL.contains(&name)
            || (MAY_RUN_SQL.contains(&name) && is_sql_receiver(before));
        let is_read = match self.found.texts.get(texts_before) {
            Some(text) => statement::is_readable(&text.value),
            None => self.found.includes.len() > includes_before,
        };
        if is_sql && !is_read && !first.is_empty() {
            let (line, column) = self.place(span.start());
            self.found.unread.push((line, column, asked_name));
        }
        self.sequence(inner.get(first.len()..).unwrap_or_default(), context);
        1
    }

    /// The path of `concat!(env!("CARGO_MANIFEST_DIR"), "/…")`, as if written from the crate's folder.
    fn joined_path(&self, parts: &Group) -> String {
        let inner: Vec<TokenTree> = parts.stream().into_iter().collect();
        let parts: Vec<&[TokenTree]> = inner.split(|token| is_punct(token, ',')).collect();
        match parts.split_first() {
            Some(([env, bang, TokenTree::Group(variable)], rest))
                if is_any_ident(env, &["env"])
                    && is_punct(bang, '!')
                    && variable.stream().to_string().contains("CARGO_MANIFEST_DIR") =>
            {
                format!("{CRATE_FOLDER}{}", self.join(rest, "").value)
            }
            _ => self.join(&parts, "").value,
        }
    }

    fn macro_call(&mut self, name: &str, group: &Group, context: &Context) {
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        let (line, column) = self.place(group.span_open().start());
        match name {
            "concat" => {
                let parts: Vec<&[TokenTree]> = inner.split(|token| is_punct(token, ',')).collect();
                let text = self.join(&parts, "");
                self.emit(text.value, text.anchors, context);
                return;
            }
            "stringify" => {
                let anchors = vec![Anchor {
                    at: 0,
                    line,
                    column: column + 1,
                }];
                self.emit(group.stream().to_string(), anchors, context);
                return;
            }
            "include_str" | "include_bytes" | "include" => {
                let parts: Vec<&[TokenTree]> = inner.split(|token| is_punct(token, ',')).collect();
                let path = match inner.as_slice() {
                    [concat, bang, TokenTree::Group(parts)]
                        if is_any_ident(concat, &["concat"]) && is_punct(bang, '!') =>
                    {
                        self.joined_path(parts)
                    }
                    _ => self.join(&parts, "").value,
                };
                self.found.text_names.extend(context.binding.clone());
                self.found.includes.push(Include {
                    is_code: name == "include",
                    path,
                    line,
                    column,
                });
                return;
            }
            _ => {}
        }
        // What is written to a text belongs to it.
        let written_to = ["write", "writeln"]
            .contains(&name)
            .then(|| inner.split(|token| is_punct(token, ',')).next())
            .flatten()
            .and_then(asked_name);
        let context = &Context {
            binding: written_to.or(context.binding.clone()),
            ..context.clone()
        };
        // SQL as bare tokens, which a macro of our own may turn into a string.
        if let Some(TokenTree::Ident(first)) = inner.first()
            && OPENERS
                .iter()
                .any(|opener| first.to_string().eq_ignore_ascii_case(opener))
        {
            let (line, column) = self.place(first.span().start());
            self.emit(
                group.stream().to_string(),
                vec![Anchor {
                    at: 0,
                    line,
                    column,
                }],
                context,
            );
        }
        let parts: Vec<&[TokenTree]> = inner.split(|token| is_punct(token, ',')).collect();
        let template = parts.iter().position(|part| {
            matches!(part, [one] if self.literal(one).is_some_and(|(value, _)| value.contains('{')))
        });
        if let Some(index) = template
            && let Some([template]) = parts.get(index).copied()
        {
            let text = self.filled(template, parts.get(index + 1..).unwrap_or_default());
            self.emit(text.value, text.anchors, context);
            for (other, part) in parts.iter().enumerate() {
                if other != index {
                    self.sequence(part, context);
                }
            }
        } else {
            self.sequence(&inner, context);
        }
    }
}

pub(super) fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

pub(super) fn is_any_ident(token: &TokenTree, names: &[&str]) -> bool {
    matches!(token, TokenTree::Ident(ident) if names.iter().any(|name| ident == name))
}

/// The name that an argument is, when it is a name: `SQL`, `&sql`, `queries::SQL`.
fn asked_name(argument: &[TokenTree]) -> Option<String> {
    let (last, path) = argument.split_last()?;
    let is_path = path.iter().all(|token| {
        is_punct(token, '&') || is_punct(token, ':') || matches!(token, TokenTree::Ident(_))
    });
    match last {
        TokenTree::Ident(name) if is_path => Some(name.to_string()),
        _ => None,
    }
}

/// True when what stands before a method is a connection by its name: `connection.`, `change.sql().`.
fn is_sql_receiver(before: &[TokenTree]) -> bool {
    match before {
        [.., name, TokenTree::Group(_), dot] | [.., name, dot] if is_punct(dot, '.') => {
            is_any_ident(name, SQL_RECEIVERS)
        }
        _ => false,
    }
}

/// The name behind `let`, `const` or `static`.
fn bound_name(rest: &[TokenTree]) -> Option<String> {
    rest.iter().take(3).find_map(|token| match token {
        TokenTree::Ident(name) if !is_any_ident(token, &["mut", "ref"]) => Some(name.to_string()),
        _ => None,
    })
}
