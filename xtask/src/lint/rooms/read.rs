//! What a source file declares of a domain, read from its tokens.
//!
//! Declarations are `const … : Operation`, and `Operation { name: … }`, `EffectType { name: … }` and `Invariant { name: … }`
//! wherever they stand. A macro of the crate that writes one of these is read by its calls: parts that end in `;`, the constant
//! before `=`, and the first text as the name. Code for tests is passed over.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::lint::finding::Finding;
use crate::lint::rules::Rule;

/// How a name is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Text(String),
    /// The constant that holds it.
    Constant(String),
}

/// Where an effect's work happens, as far as its declaration shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    External,
    Other,
}

/// Something that is declared, at a place.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) name: Name,
    /// The constant that is declared, for an operation.
    pub(super) constant: Option<String>,
    pub(super) reach: Reach,
    pub(super) is_documented: bool,
    line: usize,
    column: usize,
}

impl Declared {
    fn at(name: Name, span: Span) -> Self {
        Self {
            name,
            constant: None,
            reach: Reach::Other,
            is_documented: true,
            line: span.start().line.max(1),
            column: span.start().column + 1,
        }
    }

    pub(super) fn finding(&self, path: &str, rule: Rule, message: String) -> Finding {
        Finding {
            path: path.to_owned(),
            line: self.line,
            column: self.column,
            rule,
            message,
        }
    }
}

/// What one file says of its domain.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) operations: Vec<Declared>,
    pub(super) effects: Vec<Declared>,
    pub(super) invariants: Vec<Declared>,
    /// Effect types that the file does the work of.
    pub(super) handled: Vec<Declared>,
    /// Every name that a function's body uses.
    pub(super) used: BTreeSet<String>,
    /// Constants that hold a text.
    pub(super) texts: BTreeMap<String, String>,
    /// The file has the name DOMAIN.
    pub(super) names_domain: bool,
    /// Modules in files of their own that are compiled for tests only.
    pub(super) test_modules: Vec<String>,
    /// Macros of the crate that declare something.
    macros: Macros,
}

/// What each macro of a crate declares.
pub(super) type Macros = BTreeMap<String, &'static str>;

const OPERATION: &str = "Operation";
const EFFECT_TYPE: &str = "EffectType";
const INVARIANT: &str = "Invariant";

/// The macros of a file that declare something.
pub(super) fn macros(source: &str) -> Macros {
    if source.contains("macro_rules") {
        Facts::of(source, &Macros::new()).macros
    } else {
        Macros::new()
    }
}

impl Facts {
    /// Reads a file. One that does not parse has a finding of `sql` and says nothing here.
    pub(super) fn of(source: &str, macros: &Macros) -> Self {
        let mut facts = Self {
            macros: macros.clone(),
            ..Self::default()
        };
        if let Ok(tokens) = source.parse::<TokenStream>() {
            facts.stream(&tokens, false);
        }
        proc_macro2::extra::invalidate_current_thread_spans();
        facts
    }

    fn stream(&mut self, stream: &TokenStream, in_function: bool) {
        let tokens: Vec<TokenTree> = stream.clone().into_iter().collect();
        // Where the attributes of the item that follows begin.
        let mut attributes: Option<usize> = None;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if is_punct(token, '#')
                && let Some(length) = attribute(&tokens, at)
            {
                attributes.get_or_insert(at);
                at += length;
                continue;
            }
            let before = attributes.take();
            if before.is_some_and(|first| is_for_tests(tokens.get(first..at).unwrap_or_default())) {
                let end = item_end(&tokens, at);
                self.test_modules
                    .extend(module_in_a_file(tokens.get(at..end).unwrap_or_default()));
                at = end;
                continue;
            }
            let is_documented = before
                .is_some_and(|first| mentions(tokens.get(first..at).unwrap_or_default(), "doc"));
            at += self.token(&tokens, at, is_documented, in_function);
            // `pub`, `pub(crate)` and the like stand between the attributes and the item.
            if matches!(token, TokenTree::Ident(word) if word == "pub") {
                if matches!(tokens.get(at), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
                {
                    at += 1;
                }
                attributes = before;
            }
        }
    }

    /// Reads what begins at a token; returns how many tokens that was.
    fn token(
        &mut self,
        tokens: &[TokenTree],
        at: usize,
        is_documented: bool,
        in_function: bool,
    ) -> usize {
        let word = match tokens.get(at) {
            Some(TokenTree::Ident(word)) => word.to_string(),
            Some(TokenTree::Group(group)) => {
                self.stream(&group.stream(), in_function);
                return 1;
            }
            _ => return 1,
        };
        let rest = tokens.get(at + 1..).unwrap_or_default();
        self.names_domain |= word == "DOMAIN";
        match (word.as_str(), rest) {
            ("macro_rules", [_, TokenTree::Ident(name), TokenTree::Group(body), ..]) => {
                let kind = [OPERATION, EFFECT_TYPE, INVARIANT]
                    .into_iter()
                    .find(|kind| writes(&body.stream(), kind));
                if let Some(kind) = kind {
                    self.macros.insert(name.to_string(), kind);
                }
                4
            }
            (name, [bang, TokenTree::Group(call), ..])
                if is_punct(bang, '!') && self.macros.contains_key(name) =>
            {
                let kind = self.macros.get(name).copied().unwrap_or_default();
                self.call(kind, call);
                3
            }
            ("const" | "static", [TokenTree::Ident(name), colon, ..]) if is_punct(colon, ':') => {
                1 + self.constant(name, rest, is_documented)
            }
            ("fn", _) => {
                // A body, or a declaration in a trait.
                let length = rest
                    .iter()
                    .position(|token| is_brace(token) || is_punct(token, ';'))
                    .map_or(rest.len(), |index| index + 1);
                if let Some(TokenTree::Group(body)) = rest.get(length.wrapping_sub(1)) {
                    self.stream(&body.stream(), true);
                }
                1 + length
            }
            ("impl", _) => {
                let head = rest.iter().position(is_brace).unwrap_or(rest.len());
                if let Some(TokenTree::Group(body)) = rest.get(head) {
                    let traits = rest.get(..head).unwrap_or_default();
                    if mentions(traits, "LocalHandler") || mentions(traits, "EffectHandler") {
                        self.handled.extend(effect_of_handler(body));
                    }
                    self.stream(&body.stream(), in_function);
                }
                2 + head
            }
            ("apply_local_effects", [TokenTree::Group(arguments), ..]) => {
                self.handled.extend(last_name(&arguments.stream()));
                1
            }
            (OPERATION | EFFECT_TYPE | INVARIANT, [TokenTree::Group(fields), ..])
                if fields.delimiter() == Delimiter::Brace =>
            {
                self.literal(&word, fields);
                1
            }
            _ => {
                if in_function {
                    self.used.insert(word);
                }
                1
            }
        }
    }

    /// `NAME: type = value;` behind `const`; returns how many tokens it has.
    fn constant(&mut self, name: &Ident, tokens: &[TokenTree], is_documented: bool) -> usize {
        let end = tokens
            .iter()
            .position(|token| is_punct(token, ';'))
            .unwrap_or(tokens.len());
        let equals = tokens
            .iter()
            .position(|token| is_punct(token, '='))
            .unwrap_or(end)
            .min(end);
        let kind = tokens.get(2..equals).unwrap_or_default();
        let value = tokens.get(equals + 1..end).unwrap_or_default();
        if let [TokenTree::Literal(literal)] = value
            && let Some(text) = text(literal)
        {
            self.texts.insert(name.to_string(), text);
        }
        self.names_domain |= name == "DOMAIN";
        let is_operation = matches!(kind.last(), Some(TokenTree::Ident(last)) if last == OPERATION)
            && !kind.iter().any(|token| is_punct(token, '&'));
        if is_operation {
            let operation = value.iter().find_map(|token| match token {
                TokenTree::Group(fields) => field(&fields.stream(), "name"),
                _ => None,
            });
            if let Some((name_text, _)) = operation {
                self.operations.push(Declared {
                    constant: Some(name.to_string()),
                    is_documented,
                    ..Declared::at(name_text, name.span())
                });
            }
        } else {
            // Lists use no operation: a function does.
            self.stream(&value.iter().cloned().collect(), false);
        }
        end + 1
    }

    /// `EffectType { … }` or `Invariant { … }`, wherever it stands; an operation is read with its constant.
    fn literal(&mut self, kind: &str, fields: &Group) {
        let Some((name, span)) = field(&fields.stream(), "name") else {
            return;
        };
        let tokens: Vec<TokenTree> = fields.stream().into_iter().collect();
        let declared = Declared {
            reach: if mentions(&tokens, "External") {
                Reach::External
            } else {
                Reach::Other
            },
            ..Declared::at(name, span)
        };
        match kind {
            EFFECT_TYPE => self.effects.push(declared),
            INVARIANT => self.invariants.push(declared),
            _ => {}
        }
    }

    /// A call of a macro that declares things: parts that end in `;`.
    fn call(&mut self, kind: &str, call: &Group) {
        let tokens: Vec<TokenTree> = call.stream().into_iter().collect();
        for part in tokens.split(|token| is_punct(token, ';')) {
            let mut name = None;
            let mut constant = None;
            let mut at = 0;
            while let (None, Some(token)) = (&name, part.get(at)) {
                if let Some(length) = attribute(part, at) {
                    at += length;
                    continue;
                }
                match token {
                    TokenTree::Ident(word)
                        if part.get(at + 1).is_some_and(|next| is_punct(next, '=')) =>
                    {
                        constant = Some(word.clone());
                    }
                    TokenTree::Literal(literal) => {
                        name = text(literal).map(|text| (text, literal.span()));
                    }
                    _ => {}
                }
                at += 1;
            }
            let Some((name, span)) = name else {
                continue;
            };
            let declared = Declared {
                constant: constant.as_ref().map(ToString::to_string),
                reach: if mentions(part, "External") {
                    Reach::External
                } else {
                    Reach::Other
                },
                ..Declared::at(Name::Text(name), constant.map_or(span, |word| word.span()))
            };
            match kind {
                OPERATION if declared.constant.is_some() => self.operations.push(declared),
                EFFECT_TYPE => self.effects.push(declared),
                INVARIANT => self.invariants.push(declared),
                _ => {}
            }
        }
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn is_brace(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// How many tokens the attribute at this place has.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<usize> {
    if !is_punct(tokens.get(at)?, '#') {
        return None;
    }
    let is_brackets = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket);
    match tokens.get(at + 1..)? {
        [group, ..] if is_brackets(group) => Some(2),
        [bang, group, ..] if is_punct(bang, '!') && is_brackets(group) => Some(3),
        _ => None,
    }
}

/// True when the attributes say `#[cfg(test)]` or `#[test]`.
fn is_for_tests(attributes: &[TokenTree]) -> bool {
    attributes.iter().any(|token| {
        let TokenTree::Group(group) = token else {
            return false;
        };
        let words: Vec<TokenTree> = group.stream().into_iter().collect();
        match words.as_slice() {
            [TokenTree::Ident(word)] => word == "test",
            [TokenTree::Ident(word), TokenTree::Group(condition)] => {
                word == "cfg" && condition.stream().to_string() == "test"
            }
            _ => false,
        }
    })
}

/// The place behind the item that begins here.
fn item_end(tokens: &[TokenTree], at: usize) -> usize {
    tokens
        .iter()
        .skip(at)
        .position(|token| is_brace(token) || is_punct(token, ';'))
        .map_or(tokens.len(), |index| at + index + 1)
}

/// The name of `mod name;`.
fn module_in_a_file(item: &[TokenTree]) -> Option<String> {
    match item {
        [.., TokenTree::Ident(word), TokenTree::Ident(name), end]
            if word == "mod" && is_punct(end, ';') =>
        {
            Some(name.to_string())
        }
        _ => None,
    }
}

/// True when the word stands in these tokens, at any depth.
fn mentions(tokens: &[TokenTree], word: &str) -> bool {
    tokens.iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => mentions(&group.stream().into_iter().collect::<Vec<_>>(), word),
        _ => false,
    })
}

/// True when a macro's body has `Kind { … }`.
fn writes(body: &TokenStream, kind: &str) -> bool {
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    tokens.windows(2).any(
        |pair| matches!(pair, [TokenTree::Ident(word), next] if word == kind && is_brace(next)),
    ) || tokens
        .iter()
        .any(|token| matches!(token, TokenTree::Group(group) if writes(&group.stream(), kind)))
}

/// The value of a field: `name: "text"` or `name: path::TO_CONSTANT`.
fn field(fields: &TokenStream, name: &str) -> Option<(Name, Span)> {
    let tokens: Vec<TokenTree> = fields.clone().into_iter().collect();
    let at = tokens.windows(2).position(|pair| {
        matches!(pair, [TokenTree::Ident(word), colon] if word == name && is_punct(colon, ':'))
    })?;
    let value: Vec<TokenTree> = tokens
        .into_iter()
        .skip(at + 2)
        .take_while(|token| !is_punct(token, ','))
        .collect();
    match value.last()? {
        TokenTree::Literal(literal) => Some((Name::Text(text(literal)?), literal.span())),
        TokenTree::Ident(constant) if !value.iter().any(|token| is_punct(token, '&')) => {
            Some((Name::Constant(constant.to_string()), constant.span()))
        }
        _ => None,
    }
}

/// What `fn effect_type` of a handler returns.
fn effect_of_handler(body: &Group) -> Option<Declared> {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let at = tokens
        .windows(2)
        .position(|pair| matches!(pair, [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "fn" && name == "effect_type"))?;
    tokens
        .iter()
        .skip(at)
        .find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group),
            _ => None,
        })
        .and_then(|body| last_name(&body.stream()))
}

fn last_name(tokens: &TokenStream) -> Option<Declared> {
    match tokens.clone().into_iter().last()? {
        TokenTree::Literal(literal) => {
            Some(Declared::at(Name::Text(text(&literal)?), literal.span()))
        }
        TokenTree::Ident(constant) => Some(Declared::at(
            Name::Constant(constant.to_string()),
            constant.span(),
        )),
        _ => None,
    }
}

fn text(literal: &proc_macro2::Literal) -> Option<String> {
    match syn::parse_str::<syn::Lit>(&literal.to_string()).ok()? {
        syn::Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}
