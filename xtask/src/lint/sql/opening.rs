//! Statements that the grammar can't read to their end, judged by how they open.
//!
//! `INSERT INTO runs (` is half a statement, and a template may have a placeholder where the grammar
//! wants a clause. Each pattern asks for as many words as prose never has in that order.

use super::statement::{Evidence, Kind, Mutation, mutation};
use super::words::Word;

struct Cursor<'w, 'a> {
    rest: &'w [Word<'a>],
}

impl<'w, 'a> Cursor<'w, 'a> {
    fn peek(&self) -> Option<&'w Word<'a>> {
        self.rest.first()
    }

    fn next(&mut self) -> Option<&'w Word<'a>> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn eat(&mut self, keyword: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.is(keyword));
        if found {
            self.next();
        }
        found
    }

    fn eat_any(&mut self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.eat(keyword))
    }

    /// A table's name: the last part of `schema.table`.
    fn name(&mut self) -> Option<&'a str> {
        let first = self.next().filter(|word| word.is_name())?;
        if self.eat(".") {
            return self
                .next()
                .filter(|word| word.is_name())
                .map(|word| word.text);
        }
        Some(first.text)
    }

    fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn at_placeholder(&self) -> bool {
        self.peek().is_some_and(|word| word.placeholder)
    }

    /// Steps over a bracket with all it holds; false when it never closes.
    fn skip_bracket(&mut self) -> bool {
        let mut depth = 0_usize;
        while let Some(word) = self.next() {
            if word.is("(") {
                depth += 1;
            } else if word.is(")") {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return true;
                }
            }
        }
        false
    }
}

/// What a segment that the grammar refuses would change, when it opens like SQL.
pub(super) fn judge(segment: &[Word<'_>]) -> Option<Mutation> {
    let mut cursor = Cursor { rest: segment };
    if cursor.eat("EXPLAIN") && cursor.eat("QUERY") {
        cursor.eat("PLAN");
    }
    if cursor.peek()?.is("WITH") {
        skip_common_tables(&mut cursor)?;
    }
    let verb = cursor.next()?;
    let (name, kind, table, evidence) = if verb.is_any(&["INSERT", "REPLACE"]) {
        let (table, evidence) = insert(&mut cursor)?;
        (verb.text.to_ascii_uppercase(), Kind::Rows, table, evidence)
    } else if verb.is("UPDATE") {
        let (table, evidence) = update(&mut cursor)?;
        ("UPDATE".to_owned(), Kind::Rows, table, evidence)
    } else if verb.is("DELETE") {
        let (table, evidence) = delete(&mut cursor)?;
        ("DELETE".to_owned(), Kind::Rows, table, evidence)
    } else if verb.is_any(&["CREATE", "ALTER", "DROP"]) {
        let (object, table, evidence) = define(verb, &mut cursor)?;
        (
            format!("{} {object}", verb.text.to_ascii_uppercase()),
            Kind::Shape,
            table,
            evidence,
        )
    } else if verb.is("PRAGMA") {
        let pragma = cursor.name()?;
        if !(cursor.eat("=") || cursor.eat("(")) {
            return None;
        }
        (
            format!("PRAGMA {}", pragma.to_ascii_lowercase()),
            Kind::Engine,
            None,
            Evidence::Certain,
        )
    } else if verb.is("ATTACH") {
        cursor.eat("DATABASE");
        let file = cursor
            .next()
            .filter(|word| word.text.starts_with(['\'', '?', ':']))?;
        let _ = file;
        ("ATTACH".to_owned(), Kind::Engine, None, Evidence::Certain)
    } else {
        return None;
    };
    Some(mutation(segment, &name, kind, table, evidence))
}

/// Steps over `WITH name AS (…), …` to the statement behind it.
fn skip_common_tables(cursor: &mut Cursor<'_, '_>) -> Option<()> {
    cursor.next();
    cursor.eat("RECURSIVE");
    loop {
        cursor.name()?;
        if cursor.peek()?.is("(") && !cursor.skip_bracket() {
            return None;
        }
        if !cursor.eat("AS") {
            return None;
        }
        cursor.eat("NOT");
        cursor.eat("MATERIALIZED");
        if !cursor.peek()?.is("(") || !cursor.skip_bracket() {
            return None;
        }
        if !cursor.eat(",") {
            return Some(());
        }
    }
}

type Judged<'a> = (Option<&'a str>, Evidence);

fn conflict_clause(cursor: &mut Cursor<'_, '_>) {
    if cursor.eat("OR") {
        cursor.next();
    }
}

/// `INSERT [OR …] INTO name`, then columns, rows, a query, a placeholder or the end.
fn insert<'a>(cursor: &mut Cursor<'_, 'a>) -> Option<Judged<'a>> {
    conflict_clause(cursor);
    if !cursor.eat("INTO") {
        return None;
    }
    if cursor.at_end() {
        return Some((None, Evidence::Beginning));
    }
    let table = Some(cursor.name()?);
    if cursor.eat("AS") {
        cursor.name()?;
    }
    if cursor.at_end() {
        return Some((table, Evidence::Beginning));
    }
    if cursor.peek()?.is("(") && (!cursor.skip_bracket() || cursor.at_end()) {
        return Some((table, Evidence::Beginning));
    }
    let goes_on =
        cursor.eat_any(&["VALUES", "SELECT", "WITH", "DEFAULT"]) || cursor.at_placeholder();
    goes_on.then_some((table, Evidence::Certain))
}

/// `UPDATE [OR …] name SET name =`.
fn update<'a>(cursor: &mut Cursor<'_, 'a>) -> Option<Judged<'a>> {
    conflict_clause(cursor);
    if cursor.at_end() {
        return None;
    }
    let table = Some(cursor.name()?);
    if cursor.eat("AS") {
        cursor.name()?;
    }
    if cursor.at_end() {
        return Some((table, Evidence::Beginning));
    }
    if !cursor.eat("SET") {
        return None;
    }
    if cursor.at_end() {
        return Some((table, Evidence::Beginning));
    }
    if cursor.at_placeholder() {
        return Some((table, Evidence::Refused));
    }
    if cursor.peek()?.is("(") {
        return cursor.skip_bracket().then_some((table, Evidence::Certain));
    }
    cursor.name()?;
    cursor.eat("=").then_some((table, Evidence::Certain))
}

/// `DELETE FROM name`, then a clause, a placeholder or the end.
fn delete<'a>(cursor: &mut Cursor<'_, 'a>) -> Option<Judged<'a>> {
    if !cursor.eat("FROM") {
        return None;
    }
    if cursor.at_end() {
        return Some((None, Evidence::Beginning));
    }
    let table = Some(cursor.name()?);
    if cursor.eat("AS") {
        cursor.name()?;
    }
    if cursor.at_end() {
        return Some((table, Evidence::Beginning));
    }
    let goes_on = cursor.at_placeholder()
        || cursor.eat_any(&["WHERE", "RETURNING", "ORDER", "LIMIT", "INDEXED"]);
    goes_on.then_some((table, Evidence::Refused))
}

/// `CREATE`, `ALTER` or `DROP` of a table, index, view or trigger.
fn define<'a>(
    verb: &Word<'_>,
    cursor: &mut Cursor<'_, 'a>,
) -> Option<(&'static str, Option<&'a str>, Evidence)> {
    while cursor.eat_any(&["TEMP", "TEMPORARY", "UNIQUE", "VIRTUAL"]) {}
    let object = ["TABLE", "INDEX", "VIEW", "TRIGGER"]
        .into_iter()
        .find(|object| cursor.eat(object))?;
    if cursor.eat("IF") {
        cursor.eat("NOT");
        cursor.eat("EXISTS");
    }
    let name = cursor.name()?;
    let own = matches!(object, "TABLE" | "VIEW").then_some(name);
    if cursor.at_end() {
        return Some((object, own, Evidence::Beginning));
    }
    let goes_on = if verb.is("CREATE") {
        match object {
            "TABLE" => cursor.peek()?.is_any(&["(", "AS", "USING"]) || cursor.at_placeholder(),
            "VIEW" => cursor.peek()?.is_any(&["(", "AS"]),
            "INDEX" => cursor.peek()?.is("ON"),
            _ => cursor
                .peek()?
                .is_any(&["BEFORE", "AFTER", "INSTEAD", "INSERT", "UPDATE", "DELETE"]),
        }
    } else {
        verb.is("ALTER") && cursor.peek()?.is_any(&["RENAME", "ADD", "DROP"])
    };
    goes_on.then_some((object, own, Evidence::Certain))
}
