//! What one source file says: its mutating SQL with places, and which of its lines are tests.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use proc_macro2::TokenStream;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, Stmt};

use super::doc;
use super::rust;
use super::statement::{self, Mutation};
use super::text::{Anchor, Text};
use crate::lint::LintError;
use crate::lint::finding::Finding;
use crate::lint::glob;
use crate::lint::rules::Rule;

/// Files that are included as text are judged up to this size, in bytes.
const INCLUDED_BYTES_MAX: u64 = 1 << 20;

/// One mutation, where it stands.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) mutation: Mutation,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) asked_for: bool,
    /// The constant or variable that holds it.
    pub(super) binding: Option<String>,
    pub(super) in_doc: bool,
}

impl Said {
    pub(super) fn finding(&self, facts: &Facts, rule: Rule, message: String) -> Finding {
        Finding {
            path: facts.path.clone(),
            line: self.line,
            column: self.column,
            rule,
            message,
        }
    }
}

/// What the rules need to know of a file.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// From the root of the workspace.
    pub(super) path: String,
    pub(super) source: String,
    pub(super) said: Vec<Said>,
    /// Constants and variables that are handed to something that runs SQL.
    pub(super) asked_names: BTreeSet<String>,
    /// Other names of the same texts.
    pub(super) aliases: BTreeSet<(String, String)>,
    /// Names that have a text as their value.
    pub(super) text_names: BTreeSet<String>,
    /// SQL that can't be read here: the place, and the name it comes by, if it has one.
    pub(super) unread: Vec<(usize, usize, Option<String>)>,
    /// Findings that need no further judgement.
    pub(super) problems: Vec<Finding>,
    /// Modules of the crate that are compiled for tests only: paths in the crate, without `.rs`.
    pub(super) test_modules: Vec<String>,
    /// First and last lines of test code.
    test_lines: Vec<(usize, usize)>,
    /// First and last lines of the items and statements, when a comment may refer to one.
    items: Vec<(usize, usize)>,
}

impl Facts {
    /// True when the line belongs to a test.
    pub(super) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines
            .iter()
            .any(|&(first, last)| first <= line && line <= last)
    }

    /// The last line of the outermost item that begins on this line, its documentation left out.
    pub(super) fn item_end(&self, line: usize) -> Option<usize> {
        let lines: Vec<&str> = self.source.lines().collect();
        let only_comments = |first: usize| {
            lines
                .get(first - 1..line - 1)
                .unwrap_or_default()
                .iter()
                .all(|text| text.trim().is_empty() || text.trim_start().starts_with("//"))
        };
        self.items
            .iter()
            .filter(|&&(first, last)| first <= line && line <= last && only_comments(first))
            .map(|&(_, last)| last)
            .max()
    }
}

/// Reads files, on as many threads as help. `prefix` is the crate's folder with a closing `/`.
pub(super) fn read_all(
    places: &Places<'_>,
    prefix: &str,
    paths: &[String],
) -> Result<Vec<Facts>, LintError> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn(move || {
                    let own = paths.iter().skip(first).step_by(threads);
                    own.map(|path| read(places, prefix, path))
                        .collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        let mut all = Vec::with_capacity(paths.len());
        for worker in workers {
            all.extend(worker.join().unwrap_or(Err(LintError::Panicked))?);
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    })
}

fn read(places: &Places<'_>, prefix: &str, path: &str) -> Result<Facts, LintError> {
    let full = places.root.join(path);
    let source = std::fs::read_to_string(&full).map_err(|source| LintError::Read {
        path: full.clone(),
        source,
    })?;
    let mut facts = Facts {
        path: path.to_owned(),
        source,
        ..Facts::default()
    };
    if path.to_ascii_lowercase().ends_with(".sql") {
        sql_file(&mut facts);
    } else {
        rust_file(&mut facts, places, prefix);
        // Spans of this file are not asked for again.
        proc_macro2::extra::invalidate_current_thread_spans();
    }
    Ok(facts)
}

fn sql_file(facts: &mut Facts) {
    let text = Text::of_file(&facts.source);
    let analysis = statement::analyse(&text.value);
    for (offset, message) in &analysis.refused {
        let (line, column) = text.place(*offset);
        facts.problems.push(Finding {
            path: facts.path.clone(),
            line,
            column,
            rule: Rule::SqlSyntax,
            message: format!("SQLite's grammar refuses this statement: {message}"),
        });
    }
    facts.said = said(&text, analysis.mutations);
}

fn said(text: &Text, mutations: Vec<Mutation>) -> Vec<Said> {
    mutations
        .into_iter()
        .map(|mutation| {
            let (line, column) = text.place(mutation.offset);
            Said {
                line,
                column,
                asked_for: text.asked_for,
                binding: text.binding.clone(),
                in_doc: text.in_doc,
                mutation,
            }
        })
        .collect()
}

fn rust_file(facts: &mut Facts, places: &Places<'_>, prefix: &str) {
    // A line that makes a script of a file is no Rust; blank it, so that columns and lines stay.
    let source = match facts.source.split_once('\n') {
        Some((first, rest)) if first.starts_with("#!") && !first.starts_with("#![") => {
            format!("\n{rest}")
        }
        _ => facts.source.clone(),
    };
    let tokens: TokenStream = match source.parse() {
        Ok(tokens) => tokens,
        Err(error) => return facts.problems.push(broken(facts, error.span(), &error)),
    };
    let mut found = rust::texts(&tokens, &source, &[]);
    for include in &found.includes {
        found
            .texts
            .extend(included(places, prefix, &facts.path, include));
    }
    for text in found
        .texts
        .iter()
        .filter(|text| statement::may_mutate(&text.value))
    {
        facts
            .said
            .extend(said(text, statement::analyse(&text.value).mutations));
    }
    facts.asked_names = found.asked_names;
    facts.aliases = found.aliases;
    facts.text_names = found.text_names;
    facts.unread = found.unread;
    match syn::parse2::<syn::File>(tokens) {
        Ok(file) => {
            let in_crate = facts.path.strip_prefix(prefix).unwrap_or(&facts.path);
            let mut structure = Structure {
                test_lines: Vec::new(),
                test_modules: Vec::new(),
                items: Vec::new(),
                wants_items: facts.source.contains("lint:allow("),
                modules: module_folder(in_crate),
            };
            if file.attrs.iter().any(is_test) {
                structure.test_lines.push((1, usize::MAX));
            }
            structure.visit_file(&file);
            facts.test_lines = structure.test_lines;
            facts.test_modules = structure.test_modules;
            facts.items = structure.items;
        }
        Err(error) => facts.problems.push(broken(facts, error.span(), &error)),
    }
}

fn broken(facts: &Facts, span: proc_macro2::Span, error: &dyn std::fmt::Display) -> Finding {
    let start = span.start();
    Finding {
        path: facts.path.clone(),
        line: start.line.max(1),
        column: start.column + 1,
        rule: Rule::RustSyntax,
        message: format!(
            "this file does not parse: {error}; make it compile, or exclude it in lint.toml"
        ),
    }
}

/// Which files of a workspace are judged where they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    pub(super) root: &'a Path,
    /// Folders of the crates from the root, each with a closing `/` unless it is the root.
    pub(super) prefixes: &'a [String],
    pub(super) exclude: &'a [String],
}

impl Places<'_> {
    fn judges(&self, target: &Path) -> bool {
        let Ok(relative) = target.strip_prefix(self.root) else {
            return false;
        };
        let relative = relative.to_string_lossy().replace('\\', "/");
        let is_source = matches!(
            target.extension().and_then(|text| text.to_str()),
            Some("rs" | "sql")
        );
        is_source
            && self
                .prefixes
                .iter()
                .any(|prefix| relative.starts_with(prefix.as_str()))
            && !relative.split('/').any(|name| name.starts_with('.'))
            && !glob::matches_any(self.exclude, &relative)
    }
}

/// The texts of an included file that is not judged where it is.
fn included(
    places: &Places<'_>,
    prefix: &str,
    includer: &str,
    include: &rust::Include,
) -> Vec<Text> {
    let from = places.root.join(includer);
    let target = match include.path.strip_prefix(rust::CRATE_FOLDER) {
        Some(in_crate) => resolve(
            &places.root.join(prefix).join("Cargo.toml"),
            in_crate.trim_start_matches('/'),
        ),
        None => resolve(&from, &include.path),
    };
    let is_small =
        std::fs::metadata(&target).is_ok_and(|metadata| metadata.len() <= INCLUDED_BYTES_MAX);
    if places.judges(&target) || !is_small {
        return Vec::new();
    }
    let Ok(content) = std::fs::read_to_string(&target) else {
        return Vec::new();
    };
    let at_include = |text: Text| Text {
        anchors: vec![Anchor {
            at: 0,
            line: include.line,
            column: include.column,
        }],
        ..text
    };
    if include.is_code {
        let Ok(tokens) = content.parse() else {
            return Vec::new();
        };
        let found = rust::texts(&tokens, &content, &[]);
        return found.texts.into_iter().map(at_include).collect();
    }
    if target.extension().is_none_or(|extension| extension != "md") {
        return vec![at_include(Text {
            value: content,
            ..Text::default()
        })];
    }
    let mut block = doc::Block::default();
    for (index, line) in content.lines().enumerate() {
        block.line(line, index + 1, 1);
    }
    block
        .into_code()
        .iter()
        .filter_map(|code| {
            Some(rust::texts(
                &code.source.parse().ok()?,
                &code.source,
                &code.lines,
            ))
        })
        .flat_map(|found| found.texts)
        .map(|text| {
            at_include(Text {
                in_doc: true,
                ..text
            })
        })
        .collect()
}

/// A path as written in a file, without `..`.
fn resolve(from: &Path, written: &str) -> PathBuf {
    let mut path = from.parent().unwrap_or(from).to_owned();
    for part in Path::new(written).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// The folder that holds the modules of a file: `src/store.rs` has them in `src/store/`.
fn module_folder(in_crate: &str) -> String {
    let path = Path::new(in_crate);
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let folder = path
        .parent()
        .map(|folder| folder.to_string_lossy().into_owned())
        .unwrap_or_default();
    if matches!(stem.as_str(), "lib" | "main" | "mod") {
        folder
    } else {
        format!("{folder}/{stem}")
    }
}

/// True for `#[test]`, `#[some::test]` and `#[cfg(… test …)]`.
fn is_test(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            !condition.contains("not")
                && condition
                    .split(|c: char| !c.is_alphanumeric())
                    .any(|word| word == "test")
        }
        Meta::Path(path) => path
            .segments
            .last()
            .is_some_and(|segment| segment.ident == "test"),
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

struct Structure {
    test_lines: Vec<(usize, usize)>,
    test_modules: Vec<String>,
    items: Vec<(usize, usize)>,
    wants_items: bool,
    modules: String,
}

impl Structure {
    fn take(&mut self, attributes: &[Attribute], span: impl Fn() -> proc_macro2::Span) {
        let is_test = attributes.iter().any(is_test);
        if is_test || self.wants_items {
            let span = span();
            let lines = (span.start().line, span.end().line);
            if is_test {
                self.test_lines.push(lines);
            }
            if self.wants_items {
                self.items.push(lines);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Structure {
    fn visit_item(&mut self, item: &'ast Item) {
        self.take(attributes(item), || item.span());
        if let Item::Mod(module) = item
            && module.content.is_none()
            && module.attrs.iter().any(is_test)
        {
            self.test_modules
                .push(format!("{}/{}", self.modules, module.ident));
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Fn(function) => function.attrs.as_slice(),
            ImplItem::Const(constant) => constant.attrs.as_slice(),
            _ => &[],
        };
        self.take(attributes, || item.span());
        visit::visit_impl_item(self, item);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        self.take(&[], || statement.span());
        visit::visit_stmt(self, statement);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        _ => &[],
    }
}
