//! Every text that a Rust file holds, wherever the language lets it stand.
//!
//! The walk goes over tokens, not over the syntax tree: the body of a macro is tokens only, and SQL
//! in it runs as well as any other. Texts that the compiler or the program joins (`concat!`, `+`,
//! `format!` with arguments that are known here) are joined before they are judged.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, LineColumn, Span, TokenStream, TokenTree};

use super::doc;
use super::statement::OPENERS;
use super::text::{Anchor, Text, decode};

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
}

/// An `include_str!` or `include_bytes!`.
#[derive(Debug)]
pub(super) struct Include {
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
struct Context {
    asked_for: bool,
    binding: Option<String>,
}

struct Walk<'a> {
    found: Found,
    lines: Lines<'a>,
    source_lines: Vec<&'a str>,
    /// Constants and variables whose value is one literal.
    values: BTreeMap<String, (String, Vec<Anchor>)>,
    doc: doc::Block,
}

impl Walk<'_> {
    fn place(&self, at: LineColumn) -> (usize, usize) {
        match at
            .line
            .checked_sub(1)
            .and_then(|index| self.lines.get(index))
        {
            Some(&(line, shift)) => (line, at.column + 1 + shift),
            None => (at.line, at.column + 1),
        }
    }

    fn literal(&self, token: &TokenTree) -> Option<(String, Vec<Anchor>)> {
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
                && let Some(literal) = self.literal(value)
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
                    used += self.plus(rest, statement_start);
                }
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    used += self.attribute(rest);
                }
                TokenTree::Punct(_) => {}
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    if ["const", "static", "let"].contains(&name.as_str()) {
                        context.binding = bound_name(rest);
                    } else if let [bang, TokenTree::Group(group), ..] = rest
                        && is_punct(bang, '!')
                    {
                        self.macro_call(&name, group, &context);
                        used += 2;
                    } else if let [TokenTree::Group(group), ..] = rest
                        && group.delimiter() == Delimiter::Parenthesis
                    {
                        used += self.call(&name, token.span(), group, &context);
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

    fn emit(&mut self, value: String, anchors: Vec<Anchor>, context: &Context) {
        self.found.texts.push(Text {
            value,
            anchors,
            asked_for: context.asked_for,
            in_doc: false,
            binding: context.binding.clone(),
        });
    }

    /// `"DELETE " + "FROM runs"`: the later text belongs to the earlier one.
    fn plus(&mut self, rest: &[TokenTree], statement_start: usize) -> usize {
        let skipped = rest.iter().take_while(|token| is_punct(token, '&')).count();
        let next = rest.get(skipped).and_then(|token| self.literal(token));
        let is_assignment = rest.first().is_some_and(|token| is_punct(token, '='));
        if self.found.texts.len() <= statement_start || is_assignment {
            return 0;
        }
        let Some(last) = self.found.texts.last_mut() else {
            return 0;
        };
        if let Some((value, anchors)) = next {
            last.push(&value, &anchors);
            return skipped + 1;
        }
        last.value.push_str("{}");
        0
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
    fn call(&mut self, name: &str, span: Span, group: &Group, context: &Context) -> usize {
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
        if !RUNS_SQL.contains(&name) {
            return 0;
        }
        let Some((first, _)) = arguments.split_first() else {
            return 0;
        };
        if let Some(TokenTree::Ident(last)) = first.last() {
            self.found.asked_names.insert(last.to_string());
        }
        self.sequence(
            first,
            &Context {
                asked_for: true,
                ..context.clone()
            },
        );
        self.sequence(inner.get(first.len()..).unwrap_or_default(), context);
        1
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
            "include_str" | "include_bytes" => {
                if let [path] = inner.as_slice()
                    && let Some((path, _)) = self.literal(path)
                {
                    self.found.includes.push(Include { path, line, column });
                }
                return;
            }
            _ => {}
        }
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

    /// `["DELETE ", "FROM runs"].concat()` and `.join(" ")`.
    fn joined_list(&mut self, group: &Group, rest: &[TokenTree], context: &Context) {
        let [dot, method, TokenTree::Group(arguments), ..] = rest else {
            return;
        };
        if !is_punct(dot, '.') || !is_any_ident(method, &["concat", "join"]) {
            return;
        }
        let separator = arguments
            .stream()
            .into_iter()
            .next()
            .and_then(|token| self.literal(&token))
            .map(|(value, _)| value)
            .unwrap_or_default();
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        let parts: Vec<&[TokenTree]> = inner.split(|token| is_punct(token, ',')).collect();
        let text = self.join(&parts, &separator);
        self.emit(text.value, text.anchors, context);
    }

    /// The parts as one text; what is not known here becomes a placeholder.
    fn join(&self, parts: &[&[TokenTree]], separator: &str) -> Text {
        let mut text = Text::default();
        for (index, part) in parts.iter().filter(|part| !part.is_empty()).enumerate() {
            if index > 0 {
                text.value.push_str(separator);
            }
            match self.known(part) {
                Some((value, anchors)) => text.push(&value, &anchors),
                None => text.value.push_str("{}"),
            }
        }
        text
    }

    /// A literal, or a name whose value is one literal.
    fn known(&self, part: &[TokenTree]) -> Option<(String, Vec<Anchor>)> {
        match part {
            [TokenTree::Ident(name)] => self.values.get(&name.to_string()).cloned(),
            [one] => self.literal(one),
            [path @ .., name] if path.iter().all(|token| is_punct(token, '&')) => {
                self.known(std::slice::from_ref(name))
            }
            _ => None,
        }
    }

    /// A template with the arguments that are known here in their places.
    fn filled(&self, template: &TokenTree, arguments: &[&[TokenTree]]) -> Text {
        let Some((value, anchors)) = self.literal(template) else {
            return Text::default();
        };
        let source = Text {
            value,
            anchors,
            ..Text::default()
        };
        let mut text = Text::default();
        let mut positional = arguments.iter();
        let mut at = 0;
        let push = |text: &mut Text, from: usize, to: usize| {
            let (line, column) = source.place(from);
            let mut anchors = vec![Anchor {
                at: 0,
                line,
                column,
            }];
            anchors.extend(
                source
                    .anchors
                    .iter()
                    .filter(|anchor| from < anchor.at && anchor.at < to)
                    .map(|anchor| Anchor {
                        at: anchor.at - from,
                        ..*anchor
                    }),
            );
            text.push(source.value.get(from..to).unwrap_or_default(), &anchors);
        };
        while let Some(open) = source
            .value
            .get(at..)
            .and_then(|rest| rest.find('{'))
            .map(|found| at + found)
        {
            let rest = source.value.get(open..).unwrap_or_default();
            let Some(close) = rest.find('}').filter(|_| !rest.starts_with("{{")) else {
                push(&mut text, at, open + 1);
                at = open + 1;
                continue;
            };
            push(&mut text, at, open);
            let name = rest
                .get(1..close)
                .unwrap_or_default()
                .split(':')
                .next()
                .unwrap_or_default();
            let known = if name.is_empty() {
                positional.next().and_then(|part| self.known(part))
            } else if let Ok(index) = name.parse::<usize>() {
                arguments.get(index).and_then(|part| self.known(part))
            } else {
                self.named(name, arguments)
            };
            match known {
                Some((value, anchors)) => text.push(&value, &anchors),
                None => push(&mut text, open, open + close + 1),
            }
            at = open + close + 1;
        }
        push(&mut text, at, source.value.len());
        text
    }

    /// The value of `{name}`: an argument `name = "…"`, or a constant in scope.
    fn named(&self, name: &str, arguments: &[&[TokenTree]]) -> Option<(String, Vec<Anchor>)> {
        arguments
            .iter()
            .find_map(|part| match part {
                [key, equals, value @ ..]
                    if is_any_ident(key, &[name]) && is_punct(equals, '=') =>
                {
                    Some(self.known(value))
                }
                _ => None,
            })
            .unwrap_or_else(|| self.values.get(name).cloned())
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_any_ident(token: &TokenTree, names: &[&str]) -> bool {
    matches!(token, TokenTree::Ident(ident) if names.iter().any(|name| ident == name))
}

/// The name behind `let`, `const` or `static`.
fn bound_name(rest: &[TokenTree]) -> Option<String> {
    rest.iter().take(3).find_map(|token| match token {
        TokenTree::Ident(name) if !is_any_ident(token, &["mut", "ref"]) => Some(name.to_string()),
        _ => None,
    })
}
