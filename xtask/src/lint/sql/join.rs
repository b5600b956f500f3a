//! Texts that the compiler or the program joins, as one text.
//!
//! What is a literal, or a constant of the same file, is put in its place; the rest becomes a placeholder.

use proc_macro2::{Group, TokenTree};

use super::rust::{Context, Walk, is_any_ident, is_punct};
use super::text::{Anchor, Text};

impl Walk<'_> {
    /// `"DELETE " + "FROM runs"`: the later text belongs to the earlier one.
    pub(super) fn plus(&mut self, rest: &[TokenTree], statement_start: usize) -> usize {
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

    /// `["DELETE ", "FROM runs"].concat()` and `.join(" ")`.
    pub(super) fn joined_list(&mut self, group: &Group, rest: &[TokenTree], context: &Context) {
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
    pub(super) fn join(&self, parts: &[&[TokenTree]], separator: &str) -> Text {
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
    pub(super) fn known(&self, part: &[TokenTree]) -> Option<(String, Vec<Anchor>)> {
        match part {
            [TokenTree::Ident(name)] => {
                // The finding belongs where the text is used, not where a word of it is defined.
                let (line, column) = self.place(name.span().start());
                let value = self.values.get(&name.to_string())?.clone();
                Some((
                    value,
                    vec![Anchor {
                        at: 0,
                        line,
                        column,
                    }],
                ))
            }
            [one] => self.literal(one),
            // `&NAME` and `path::NAME`, where the file has a constant of that name.
            [path @ .., name]
                if path.iter().all(|token| {
                    is_punct(token, '&')
                        || is_punct(token, ':')
                        || matches!(token, TokenTree::Ident(_))
                }) =>
            {
                self.known(std::slice::from_ref(name))
            }
            _ => None,
        }
    }

    /// A template with the arguments that are known here in their places.
    pub(super) fn filled(&self, template: &TokenTree, arguments: &[&[TokenTree]]) -> Text {
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
                self.named(name, arguments, source.place(open))
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
    fn named(
        &self,
        name: &str,
        arguments: &[&[TokenTree]],
        place: (usize, usize),
    ) -> Option<(String, Vec<Anchor>)> {
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
            .unwrap_or_else(|| {
                let (line, column) = place;
                let value = self.values.get(name)?.clone();
                Some((
                    value,
                    vec![Anchor {
                        at: 0,
                        line,
                        column,
                    }],
                ))
            })
    }
}
