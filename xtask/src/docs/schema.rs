//! `docs/schema.md`: every table with its columns, constraints, indexes, foreign keys and triggers.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use holdpoint_state::Schema;
use sqlite3_parser::ast::fmt::ToTokens;
use sqlite3_parser::ast::{
    Cmd, ColumnConstraint, ColumnDefinition, CreateTableBody, ForeignKeyClause,
    NamedTableConstraint, Stmt, TableConstraint,
};
use sqlite3_parser::lexer::sql::Parser;
use sqlite3_parser::{Bump, FallibleIterator as _};

use super::{DocsError, GENERATED, cell, code};

/// The whole page.
pub(super) fn page(schema: &Schema) -> Result<String, DocsError> {
    let mut text = String::from(GENERATED);
    let identity = schema.identity();
    let _ = write!(
        text,
        "\n# Schema\n\n\
         | | |\n|---|---|\n\
         | schema name | `{}` |\n\
         | application id | `0x{:08x}` |\n\
         | user version | {} |\n\
         | digest of the composed DDL (SHA-256) | `{}` |\n\n\
         A file opens only when all of these and the exact shape of every table, index and trigger match.\n\
         All tables are `STRICT`. Times are UTC epoch milliseconds.\n",
        identity.schema_name,
        identity.application_id,
        identity.user_version,
        schema.digest().to_hex(),
    );
    let comments = comments(schema);
    let owners: BTreeMap<&str, &str> = schema.tables().collect();
    for domain in schema.domains() {
        let _ = writeln!(text, "\n## {}", domain.name);
        let tables = in_order_of_ddl(
            domain.ddl,
            owners.iter().filter(|(_, owner)| **owner == domain.name),
        );
        if tables.is_empty() {
            text.push_str("\nNo tables.\n");
        }
        for table in tables {
            table_part(&mut text, schema, table, &comments)?;
        }
    }
    Ok(text)
}

/// Tables in the order in which the domain defines them, which is the order to read them in.
fn in_order_of_ddl<'a>(
    ddl: &str,
    tables: impl Iterator<Item = (&'a &'a str, &'a &'a str)>,
) -> Vec<&'a str> {
    let mut tables: Vec<&str> = tables.map(|(table, _)| *table).collect();
    tables.sort_by_key(|table| ddl.find(&format!("TABLE {table} ")).unwrap_or(usize::MAX));
    tables
}

/// The comment above each `CREATE` of the domains' DDL, by the name of what it creates.
fn comments(schema: &Schema) -> BTreeMap<String, String> {
    let mut comments = BTreeMap::new();
    for domain in schema.domains() {
        let mut above = String::new();
        for line in domain.ddl.lines() {
            if let Some(comment) = line.strip_prefix("--") {
                above.push_str(&comment.trim().replace("{{", "`").replace("}}", "`"));
                above.push(' ');
                continue;
            }
            let mut words = line.split_whitespace();
            if words.next() == Some("CREATE") && !above.is_empty() {
                let mut words =
                    words.skip_while(|word| !["TABLE", "INDEX", "TRIGGER", "VIEW"].contains(word));
                if let Some(name) = words.nth(1) {
                    comments.insert(name.to_owned(), above.trim().to_owned());
                }
            }
            above.clear();
        }
    }
    comments
}

fn table_part(
    text: &mut String,
    schema: &Schema,
    table: &str,
    comments: &BTreeMap<String, String>,
) -> Result<(), DocsError> {
    let _ = writeln!(text, "\n### `{table}`\n");
    if let Some(comment) = comments.get(table) {
        let _ = writeln!(text, "{comment}\n");
    }
    let mut around = String::new();
    for (kind, name, sql) in schema.shape().objects() {
        // An automatic index belongs to a constraint that is shown already.
        let Some(sql) = sql else {
            continue;
        };
        let failed = |message: String| DocsError::Sql {
            name: name.to_owned(),
            message,
        };
        let bump = Bump::new();
        let command = Parser::new(&bump, sql.as_bytes())
            .next()
            .map_err(|error| failed(error.to_string()))?;
        let note = comments
            .get(name)
            .map(|comment| format!(": {comment}"))
            .unwrap_or_default();
        match command {
            Some(Cmd::Stmt(Stmt::CreateTable { body, .. })) if name == table => {
                columns(text, &body);
            }
            Some(Cmd::Stmt(Stmt::CreateIndex {
                unique,
                tbl_name,
                columns,
                where_clause,
                ..
            })) if tbl_name.0 == table => {
                let on: Vec<String> = columns.iter().map(printed).collect();
                let unique = if unique { "unique " } else { "" };
                let only = where_clause
                    .map(|only| format!(" where {}", code(&printed(&only))))
                    .unwrap_or_default();
                let _ = writeln!(
                    around,
                    "- {unique}index `{name}` on {}{only}{note}",
                    code(&on.join(", "))
                );
            }
            Some(Cmd::Stmt(Stmt::CreateTrigger { tbl_name, .. })) if tbl_name.name.0 == table => {
                let _ = writeln!(around, "- {kind} `{name}`{note}");
            }
            Some(_) | None => {}
        }
    }
    if !around.is_empty() {
        let _ = write!(text, "\n{around}");
    }
    Ok(())
}

fn columns(text: &mut String, body: &CreateTableBody<'_>) {
    let CreateTableBody::ColumnsAndConstraints {
        columns,
        constraints,
        ..
    } = body
    else {
        return;
    };
    text.push_str("| column | type | constraints |\n|---|---|---|\n");
    let mut keys = Vec::new();
    for column in columns {
        column_row(text, column, &mut keys);
    }
    let constraints = constraints.unwrap_or_default();
    let mut below = String::new();
    for NamedTableConstraint { constraint, .. } in constraints {
        if let TableConstraint::ForeignKey {
            columns, clause, ..
        } = constraint
        {
            let columns: Vec<String> = columns.iter().map(printed).collect();
            keys.push((columns.join(", "), references(clause)));
        } else {
            let _ = writeln!(below, "- {}", code(&printed(constraint)));
        }
    }
    for (columns, target) in keys {
        let _ = writeln!(
            below,
            "- foreign key {} → {}",
            code(&columns),
            code(&target)
        );
    }
    if !below.is_empty() {
        let _ = write!(text, "\n{below}");
    }
}

fn column_row(text: &mut String, column: &ColumnDefinition<'_>, keys: &mut Vec<(String, String)>) {
    let name = column.col_name.0;
    let kind = column.col_type.as_ref().map(printed).unwrap_or_default();
    let mut constraints = Vec::new();
    for named in column.constraints {
        if let ColumnConstraint::ForeignKey { clause, .. } = &named.constraint {
            keys.push((name.to_owned(), references(clause)));
        } else {
            constraints.push(code(&printed(&named.constraint)));
        }
    }
    let _ = writeln!(
        text,
        "| {} | {} | {} |",
        code(name),
        cell(&kind),
        constraints.join(" ")
    );
}

/// The target of a foreign key with what happens when its row goes.
fn references(clause: &ForeignKeyClause<'_>) -> String {
    printed(clause)
}

/// SQL of a part of a statement, on one line.
fn printed<T: ToTokens>(part: &T) -> String {
    struct Shown<'a, T>(&'a T);
    impl<T: ToTokens> fmt::Display for Shown<'_, T> {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.to_fmt(formatter)
        }
    }
    Shown(part).to_string().trim().to_owned()
}
