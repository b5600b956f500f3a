//! What a text would change if `SQLite` ran it.
//!
//! Each statement is given to the grammar of `SQLite`. What the grammar accepts is what it is. What
//! it does not accept (a template, the first half of a statement) is judged by its opening words, in
//! `opening`. Where the rule allows what, and on which tables, is not decided here.

use sqlite3_parser::ast::{Cmd, Expr, Literal, PragmaBody, QualifiedName, Stmt, TriggerCmd};
use sqlite3_parser::lexer::sql::Parser;
use sqlite3_parser::{Bump, FallibleIterator as _};

use super::opening;
use super::words::{self, Word};

/// What kind of right a statement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows of a table change.
    Rows,
    /// The shape of the database changes.
    Shape,
    /// The transaction, the connection or the file as a whole.
    Engine,
}

/// How sure it is that a text is SQL and not prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Nobody writes that by accident.
    Certain,
    /// A whole statement of two or three words, which prose may have too: "release notes".
    Short,
    /// More than a beginning, with something that the grammar does not know, such as a placeholder.
    Refused,
    /// The beginning of a statement whose rest comes from elsewhere.
    Beginning,
    /// One word, "begin" or "VACUUM": SQL only where SQL is asked for.
    Word,
}

/// One thing that a text would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutation {
    /// The words that say so, in capitals: `DELETE`, `CREATE TABLE`, `PRAGMA journal_mode`.
    pub(super) verb: String,
    pub(super) kind: Kind,
    /// The table, where there is one; plain and in lower case.
    pub(super) table: Option<String>,
    /// The table's name is only known when the program runs.
    pub(super) table_is_placeholder: bool,
    /// Byte offset of the statement in the text.
    pub(super) offset: usize,
    pub(super) evidence: Evidence,
    /// The verb is written in capitals, as SQL usually is and prose is not.
    pub(super) capitals: bool,
    /// The word behind the verb, in lower case.
    pub(super) next_word: String,
}

/// Words that follow a verb in messages: "VACUUM failed", "RELEASE notes".
const PROSE: &[&str] = &[
    "build",
    "command",
    "done",
    "error",
    "errors",
    "failed",
    "finished",
    "for",
    "in",
    "is",
    "mode",
    "must",
    "needs",
    "notes",
    "of",
    "on",
    "requires",
    "returned",
    "skipped",
    "started",
    "statement",
    "statements",
    "succeeded",
    "the",
    "this",
    "was",
    "with",
];

impl Mutation {
    /// True when the statement makes a table of its name.
    pub(super) fn creates_table(&self) -> bool {
        ["CREATE TABLE", "CREATE VIRTUAL TABLE", "CREATE VIEW"].contains(&self.verb.as_str())
    }

    /// The statement in a few words: `DELETE on runs`, `DROP TABLE runs`.
    pub(super) fn what(&self) -> String {
        let verb = &self.verb;
        match &self.table {
            None => verb.clone(),
            Some(_) if self.table_is_placeholder => format!("{verb} on a table that varies"),
            Some(table) if verb.ends_with("TABLE") || verb.ends_with("VIEW") => {
                format!("{verb} {table}")
            }
            Some(table) => format!("{verb} on {table}"),
        }
    }

    /// True when this is SQL rather than prose. `asked_for`: the text is handed to something that
    /// runs SQL; `known`: whether a schema file of the workspace defines that table.
    pub(super) fn is_sql(&self, asked_for: bool, known: impl Fn(&str) -> bool) -> bool {
        let known = self.table.as_deref().is_some_and(known);
        match self.evidence {
            Evidence::Certain => true,
            Evidence::Short => {
                asked_for || known || (self.capitals && !PROSE.contains(&self.next_word.as_str()))
            }
            Evidence::Refused => asked_for || known || (self.capitals && self.table_is_placeholder),
            Evidence::Beginning => {
                asked_for
                    || (self.capitals
                        && (known || self.table_is_placeholder || self.table.is_none()))
            }
            Evidence::Word => asked_for,
        }
    }
}

/// All that a text says as SQL.
#[derive(Debug, Default)]
pub(super) struct Analysis {
    pub(super) mutations: Vec<Mutation>,
    /// Statements that the grammar refuses: byte offset and what it says.
    pub(super) refused: Vec<(usize, String)>,
}

/// Words that begin a statement which changes something, or may hide one.
pub(super) const OPENERS: &[&str] = &[
    "ALTER",
    "ANALYZE",
    "ATTACH",
    "BEGIN",
    "COMMIT",
    "CREATE",
    "DELETE",
    "DETACH",
    "DROP",
    "END",
    "EXPLAIN",
    "INSERT",
    "PRAGMA",
    "REINDEX",
    "RELEASE",
    "REPLACE",
    "ROLLBACK",
    "SAVEPOINT",
    "UPDATE",
    "VACUUM",
    "WITH",
];

/// True when the text has one of the words that a mutating statement needs. Cheap: no parsing.
pub(super) fn may_mutate(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphabetic()).any(|word| {
        word.len() >= 3
            && OPENERS
                .iter()
                .any(|opener| opener.eq_ignore_ascii_case(word))
    })
}

/// True when the text itself says what kind of statement it begins with.
pub(super) fn is_readable(text: &str) -> bool {
    let (filled, placeholders) = words::fill_placeholders(text);
    words::split(&filled, &placeholders)
        .first()
        .is_none_or(|word| !word.placeholder)
}

/// Reads a text as a batch of statements.
pub(super) fn analyse(text: &str) -> Analysis {
    let (filled, placeholders) = words::fill_placeholders(text);
    let all = words::split(&filled, &placeholders);
    let mut analysis = Analysis::default();
    let mut statements = 0;
    for segment in segments(&all) {
        let Some(begin) = segment
            .iter()
            .position(|word| !word.placeholder && !word.is(")"))
        else {
            continue;
        };
        let (Some(segment), Some(first)) = (segment.get(begin..), segment.get(begin)) else {
            continue;
        };
        statements += 1;
        let end = segment.last().map_or(first.end(), Word::end);
        match parse(filled.get(first.start..end).unwrap_or_default(), segment) {
            Ok(mutations) => analysis.mutations.extend(mutations),
            Err(message) => {
                analysis.refused.push((first.start, message));
                analysis.mutations.extend(opening::judge(segment));
            }
        }
    }
    // A batch that the grammar accepts from end to end is no prose, however short its statements.
    let is_batch = all.iter().any(|word| word.is(";")) && statements > 0;
    if is_batch && analysis.refused.is_empty() {
        for mutation in &mut analysis.mutations {
            mutation.evidence = Evidence::Certain;
        }
    }
    analysis
}

/// Cuts at each `;`, except those inside the body of a trigger.
fn segments<'w, 'a>(all: &'w [Word<'a>]) -> Vec<&'w [Word<'a>]> {
    let mut segments = Vec::new();
    let mut start = 0;
    let mut depth = 0_usize;
    for (at, word) in all.iter().enumerate() {
        let in_trigger = all.get(start..at).is_some_and(creates_trigger);
        if in_trigger && word.is_any(&["BEGIN", "CASE"]) {
            depth += 1;
        } else if in_trigger && word.is("END") {
            depth = depth.saturating_sub(1);
        } else if word.is(";") && depth == 0 {
            segments.extend(all.get(start..at).filter(|segment| !segment.is_empty()));
            start = at + 1;
        }
    }
    segments.extend(all.get(start..).filter(|segment| !segment.is_empty()));
    segments
}

fn creates_trigger(segment: &[Word<'_>]) -> bool {
    let mut words = segment
        .iter()
        .skip_while(|word| word.placeholder || word.is_any(&["EXPLAIN", "QUERY", "PLAN"]));
    words.next().is_some_and(|word| word.is("CREATE"))
        && words
            .find(|word| !word.is_any(&["TEMP", "TEMPORARY"]))
            .is_some_and(|word| word.is("TRIGGER"))
}

/// What one statement changes, by the grammar; the grammar's complaint otherwise.
fn parse(text: &str, segment: &[Word<'_>]) -> Result<Vec<Mutation>, String> {
    let bump = Bump::new();
    let mut parser = Parser::new(&bump, text.as_bytes());
    let command = parser.next().map_err(|error| error.to_string())?;
    match command {
        None => Ok(Vec::new()),
        Some(Cmd::Stmt(statement) | Cmd::Explain(statement) | Cmd::ExplainQueryPlan(statement)) => {
            Ok(classify(&statement, segment))
        }
    }
}

/// Puts together what is the same for every mutation that begins a segment.
pub(super) fn mutation(
    segment: &[Word<'_>],
    verb: &str,
    kind: Kind,
    table: Option<&str>,
    evidence: Evidence,
) -> Mutation {
    let mut behind = segment
        .iter()
        .skip_while(|word| word.is_any(&["EXPLAIN", "QUERY", "PLAN"]));
    let first = behind.next();
    let table = table.map(words::plain_name);
    let table_is_placeholder = table.as_deref().is_some_and(|name| {
        segment
            .iter()
            .any(|word| word.placeholder && words::plain_name(word.text) == name)
    });
    Mutation {
        verb: verb.to_owned(),
        kind,
        table,
        table_is_placeholder,
        offset: segment.first().map_or(0, |word| word.start),
        evidence,
        capitals: first
            .is_some_and(|word| !word.text.bytes().any(|byte| byte.is_ascii_lowercase())),
        next_word: behind
            .next()
            .map(|word| word.text.to_ascii_lowercase())
            .unwrap_or_default(),
    }
}

fn classify(statement: &Stmt<'_>, segment: &[Word<'_>]) -> Vec<Mutation> {
    let rows = |verb: &str, name: &QualifiedName<'_>, evidence| {
        vec![mutation(
            segment,
            verb,
            Kind::Rows,
            Some(name.name.0),
            evidence,
        )]
    };
    match statement {
        Stmt::Insert { tbl_name, .. } => {
            let verb = if segment.iter().any(|word| word.is("REPLACE")) {
                "REPLACE"
            } else {
                "INSERT"
            };
            rows(verb, tbl_name, Evidence::Certain)
        }
        Stmt::Update { tbl_name, .. } => rows("UPDATE", tbl_name, Evidence::Certain),
        Stmt::Delete { tbl_name, .. } => {
            // DELETE FROM x: three words that a button may have too.
            let evidence = if segment.len() <= 3 {
                Evidence::Short
            } else {
                Evidence::Certain
            };
            rows("DELETE", tbl_name, evidence)
        }
        Stmt::Select(_) => Vec::new(),
        Stmt::CreateTable { .. }
        | Stmt::CreateVirtualTable { .. }
        | Stmt::CreateView { .. }
        | Stmt::CreateIndex { .. }
        | Stmt::CreateTrigger { .. }
        | Stmt::AlterTable(..)
        | Stmt::DropTable { .. }
        | Stmt::DropView { .. }
        | Stmt::DropIndex { .. }
        | Stmt::DropTrigger { .. } => shape(statement, segment),
        Stmt::Begin(..)
        | Stmt::Commit(..)
        | Stmt::Rollback { .. }
        | Stmt::Savepoint(_)
        | Stmt::Release(_)
        | Stmt::Attach { .. }
        | Stmt::Detach(_)
        | Stmt::Vacuum(..)
        | Stmt::Reindex { .. }
        | Stmt::Analyze(_)
        | Stmt::Pragma(..) => engine(statement, segment).into_iter().collect(),
    }
}

/// DDL. A trigger is what its body does, too.
fn shape(statement: &Stmt<'_>, segment: &[Word<'_>]) -> Vec<Mutation> {
    let drop = |if_exists: bool| {
        if if_exists {
            Evidence::Certain
        } else {
            Evidence::Short
        }
    };
    let (verb, table, evidence) = match statement {
        Stmt::CreateTable { tbl_name, .. } => {
            ("CREATE TABLE", Some(tbl_name.name.0), Evidence::Certain)
        }
        Stmt::CreateVirtualTable { tbl_name, .. } => (
            "CREATE VIRTUAL TABLE",
            Some(tbl_name.name.0),
            Evidence::Certain,
        ),
        Stmt::CreateView { view_name, .. } => {
            ("CREATE VIEW", Some(view_name.name.0), Evidence::Certain)
        }
        Stmt::CreateIndex { tbl_name, .. } => ("CREATE INDEX", Some(tbl_name.0), Evidence::Certain),
        Stmt::CreateTrigger { tbl_name, .. } => {
            ("CREATE TRIGGER", Some(tbl_name.name.0), Evidence::Certain)
        }
        Stmt::AlterTable(name, _) => ("ALTER TABLE", Some(name.name.0), Evidence::Certain),
        Stmt::DropTable {
            if_exists,
            tbl_name,
        } => ("DROP TABLE", Some(tbl_name.name.0), drop(*if_exists)),
        Stmt::DropView {
            if_exists,
            view_name,
        } => ("DROP VIEW", Some(view_name.name.0), drop(*if_exists)),
        Stmt::DropIndex { if_exists, .. } => ("DROP INDEX", None, drop(*if_exists)),
        Stmt::DropTrigger { if_exists, .. } => ("DROP TRIGGER", None, drop(*if_exists)),
        _ => return Vec::new(),
    };
    let mut all = vec![mutation(segment, verb, Kind::Shape, table, evidence)];
    if let Stmt::CreateTrigger { commands, .. } = statement {
        all.extend(trigger_body(commands, segment));
    }
    all
}

/// Transactions, the connection, the file.
fn engine(statement: &Stmt<'_>, segment: &[Word<'_>]) -> Option<Mutation> {
    let short = if segment.len() == 1 {
        Evidence::Word
    } else {
        Evidence::Short
    };
    let engine = |verb: &str, evidence| Some(mutation(segment, verb, Kind::Engine, None, evidence));
    match statement {
        Stmt::Begin(..) => engine("BEGIN", short),
        Stmt::Commit(..) => engine("COMMIT", short),
        Stmt::Rollback { .. } => engine("ROLLBACK", short),
        Stmt::Savepoint(_) => engine("SAVEPOINT", short),
        Stmt::Release(_) => engine("RELEASE", short),
        Stmt::Attach { expr, .. } => {
            let evidence = match expr {
                Expr::Literal(Literal::String(_)) | Expr::Variable(_) => Evidence::Certain,
                _ => Evidence::Short,
            };
            engine("ATTACH", evidence)
        }
        Stmt::Detach(_) => engine("DETACH", short),
        Stmt::Vacuum(_, into) => engine(
            "VACUUM",
            if into.is_some() {
                Evidence::Certain
            } else {
                short
            },
        ),
        Stmt::Reindex { .. } => engine("REINDEX", short),
        Stmt::Analyze(_) => engine("ANALYZE", short),
        Stmt::Pragma(name, body) => {
            let placeholder = segment
                .iter()
                .any(|word| word.placeholder && word.text == name.name.0);
            if placeholder || pragma_mutates(&words::plain_name(name.name.0), body.as_ref()) {
                engine(
                    &format!("PRAGMA {}", words::plain_name(name.name.0)),
                    Evidence::Certain,
                )
            } else {
                None
            }
        }
        _ => None,
    }
}

/// The statements between `BEGIN` and `END` of a trigger, each at its own place.
fn trigger_body(commands: &[TriggerCmd<'_>], segment: &[Word<'_>]) -> Vec<Mutation> {
    let begin = segment
        .iter()
        .position(|word| word.is("BEGIN"))
        .map_or(segment.len(), |at| at + 1);
    let body = segment.get(begin..).unwrap_or_default();
    commands
        .iter()
        .zip(body.split(|word| word.is(";")))
        .filter_map(|(command, words)| {
            let (verb, name) = match command {
                TriggerCmd::Insert { tbl_name, .. } => ("INSERT", tbl_name),
                TriggerCmd::Update { tbl_name, .. } => ("UPDATE", tbl_name),
                TriggerCmd::Delete { tbl_name, .. } => ("DELETE", tbl_name),
                TriggerCmd::Select(_) => return None,
            };
            Some(mutation(
                words,
                verb,
                Kind::Rows,
                Some(name.name.0),
                Evidence::Certain,
            ))
        })
        .collect()
}

/// Pragmas that only report, also when they are given an argument in brackets.
const REPORTS: &[&str] = &[
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "module_list",
    "page_count",
    "pragma_list",
    "quick_check",
    "stats",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Pragmas that act without a value.
const ACTS: &[&str] = &[
    "incremental_vacuum",
    "optimize",
    "shrink_memory",
    "wal_checkpoint",
];

/// True for a pragma that sets or does something.
pub(super) fn pragma_mutates(name: &str, body: Option<&PragmaBody<'_>>) -> bool {
    match body {
        None => ACTS.contains(&name),
        Some(PragmaBody::Call(_) | PragmaBody::Equals(_)) => !REPORTS.contains(&name),
    }
}
