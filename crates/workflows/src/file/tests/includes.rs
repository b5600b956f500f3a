//! Files that include others, in a directory of their own: what they become, and the place and words of every mistake.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::definition::{Definition, SourceIdentity, Workflow};
use crate::file::{FileError, Found, Names, WorkflowFile, parse, read, read_with};

const CHILD: &str = "name: child
contractId: a.child
input: { fields: { n: { type: integer, default: 0 } } }
startAt: work
nodes:
  work: { compute: { jq: $input.n } }
exits:
  done: { from: work }
";

const PARENT: &str = "name: parent
startAt: first
nodes:
  first: { compute: 1 }
  last: { compute: { jq: $outputs.child.output } }
includes:
  child: { workflow: ./child.workflow.yaml, input: { n: { jq: $outputs.first } } }
edges:
  - { from: first, to: child }
  - { from: child.done, to: last }
";

/// A directory of workflow files, and what the program knows by name.
struct Shelf {
    home: tempfile::TempDir,
}

impl Shelf {
    fn new(files: &[(&str, &str)]) -> Self {
        // Without links, as the paths of included files are.
        let home = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
        for (name, text) in files {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn read(&self, name: &str) -> Result<WorkflowFile, FileError> {
        read_with(self.path(name), self)
    }

    /// What reading a file says, without the directory.
    fn says(&self, name: &str) -> String {
        match self.read(name) {
            Ok(_) => "is read".to_owned(),
            Err(error) => {
                let code = error.code().map(|code| format!(" [{code}]"));
                let text = error.to_string() + &code.unwrap_or_default();
                text.replace(&format!("{}/", self.home.path().display()), "")
            }
        }
    }
}

/// The program has one built-in workflow, and finds one file by name.
impl Names for Shelf {
    fn named(&self, name: &str) -> Option<Found> {
        let path = self.path(&format!("{name}.workflow.yaml"));
        path.is_file().then_some(Found::File(path))
    }

    fn builtin(&self, id: &str) -> Option<Found> {
        (id == "ask").then(|| {
            let source = SourceIdentity::Builtin {
                id: id.to_owned(),
                revision: "1".to_owned(),
            };
            Found::Definition(ask(), source)
        })
    }

    fn all_names(&self) -> Vec<String> {
        vec!["child".to_owned(), "parent".to_owned()]
    }

    fn all_builtins(&self) -> Vec<String> {
        vec!["ask".to_owned()]
    }
}

fn ask() -> Definition {
    Workflow::new("ask")
        .start_at("ask")
        .checkpoint("ask")
        .exit("done", "ask")
        .build()
        .unwrap()
}

#[test]
fn a_file_includes_files_names_and_built_in_workflows() {
    let shelf = Shelf::new(&[
        (
            "parent.workflow.yaml",
            "name: parent
startAt: first
nodes:
  first: { compute: 1 }
includes:
  a: { workflow: parts/./middle.workflow.yaml }
  b: { workflow: child, contract: ./child.workflow.yaml }
  c: { workflow: 'builtin:ask' }
edges:
  - { from: first, to: a }
  - { from: a.out, to: b }
  - { from: b.done, to: c }
",
        ),
        (
            "parts/middle.workflow.yaml",
            "name: middle
startAt: first
nodes:
  first: { compute: 1 }
  last: { compute: 2 }
includes:
  inner: { workflow: ../child.workflow.yaml, input: { n: 7 } }
edges:
  - { from: first, to: inner }
  - { from: inner.done, to: last }
exits:
  out: { from: last, validate: { type: integer } }
",
        ),
        ("child.workflow.yaml", CHILD),
    ]);
    let read = shelf.read("parent.workflow.yaml").unwrap();
    let sources: Vec<(String, String)> = read
        .definition
        .mounts()
        .iter()
        .map(|(path, mount)| {
            let reference = mount.source.reference();
            let home = format!("{}/", shelf.home.path().display());
            (path.to_string(), reference.replace(&home, ""))
        })
        .collect();
    let sources: Vec<(&str, &str)> = sources
        .iter()
        .map(|(path, source)| (path.as_str(), source.as_str()))
        .collect();
    assert_eq!(
        sources,
        [
            ("a", "parts/middle.workflow.yaml"),
            ("a/inner", "child.workflow.yaml"),
            ("b", "child.workflow.yaml"),
            ("c", "ask"),
        ]
    );
    let snapshot = read.definition.snapshot();
    insta::assert_json_snapshot!(json!([
        snapshot["composition"],
        snapshot["nodes"]["a/inner"],
        snapshot["nodes"]["a/__piw_exit_out"],
        snapshot["edges"],
    ]));

    // The digest covers all that the included files say of behaviour, and nothing else.
    let digest = |file: &str, text: &str| {
        std::fs::write(shelf.path(file), text).unwrap();
        shelf
            .read("parent.workflow.yaml")
            .unwrap()
            .definition
            .digest_text()
    };
    let before = read.definition.digest_text();
    let same = digest(
        "child.workflow.yaml",
        &format!("# A comment.\n{CHILD}title: something else\n"),
    );
    assert_eq!(before, same);
    for changed in [
        CHILD.replace("jq: $input.n", "jq: '$input.n + 1'"),
        CHILD.replace("default: 0", "default: 1"),
        CHILD.replace("from: work }", "from: work, validate: { type: integer } }"),
        format!("{CHILD}maxSteps: 7\n"),
    ] {
        assert_ne!(before, digest("child.workflow.yaml", &changed), "{changed}");
    }
    assert_eq!(before, digest("child.workflow.yaml", CHILD));
}

/// Sections 2.3 (V30 to V32) and 2.4 of the workflows reference, as far as a file can break them.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn mistakes_of_includes_and_exits() {
    let mut table = String::new();
    let mut case = |title: &str, parent: &str, child: &str| {
        let shelf = Shelf::new(&[
            ("parent.workflow.yaml", parent),
            ("child.workflow.yaml", child),
            ("notes.txt", "nothing"),
        ]);
        let says = shelf.says("parent.workflow.yaml");
        writeln!(table, "{title}\n    {says}").unwrap();
    };
    let changed = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let parent = |from: &str, to: &str| changed(PARENT, from, to);
    let child = |from: &str, to: &str| changed(CHILD, from, to);
    let workflow = |reference: &str| parent("./child.workflow.yaml", reference);
    let first = "  child: { workflow";

    case("good", PARENT, CHILD);
    for name in ["1child", "a.b", "__piw_child", "constructor", "first"] {
        case(
            &format!("an include {name}"),
            &parent(first, &format!("  {name}: {{ workflow")),
            CHILD,
        );
    }
    case(
        "an include without a workflow",
        &parent("workflow: ./child.workflow.yaml, ", ""),
        CHILD,
    );
    case("a blank workflow", &workflow("' '"), CHILD);
    case("a number as a workflow", &workflow("7"), CHILD);
    case(
        "an unknown field of an include",
        &parent("input: {", "inptu: {"),
        CHILD,
    );
    case(
        "a mistake in an input",
        &parent("jq: $outputs.first", "jq: '$outputs.first +'"),
        CHILD,
    );

    let exits = |text: &str| child("  done: { from: work }", text);
    case(
        "no exits",
        PARENT,
        &child("exits:\n  done: { from: work }", "exits: {}"),
    );
    case("an exit 1st", PARENT, &exits("  1st: { from: work }"));
    case(
        "an exit __piw_x",
        PARENT,
        &exits("  __piw_x: { from: work }"),
    );
    case("an exit without a node", PARENT, &exits("  done: {}"));
    case("a blank node", PARENT, &exits("  done: { from: '' }"));
    case(
        "a number as validate",
        PARENT,
        &exits("  done: { from: work, validate: 7 }"),
    );
    case(
        "an unknown keyword",
        PARENT,
        &exits("  done: { from: work, validate: { properties: { a: { pattern: x } } } }"),
    );
    case(
        "a mistake in a validation",
        PARENT,
        &exits("  done: { from: work, validate: { jq: '. +' } }"),
    );
    case(
        "an exit of an unknown node",
        PARENT,
        &exits("  done: { from: wrok }"),
    );
    case(
        "an exit of an include",
        &format!("{PARENT}exits: {{ all: {{ from: child }} }}\n"),
        CHILD,
    );
    case(
        "an exit with an edge",
        PARENT,
        &format!("{CHILD}edges: [{{ from: work, to: work }}]\n"),
    );
    case(
        "two exits of one node",
        PARENT,
        &exits("  done: { from: work }\n  also: { from: work }"),
    );

    case(
        "an include as the start",
        &parent("startAt: first", "startAt: child"),
        CHILD,
    );
    let leaving = |from: &str| parent("from: child.done", &format!("from: {from}"));
    case("an edge from an include", &leaving("child"), CHILD);
    case(
        "an edge from an unknown exit",
        &leaving("child.dnoe"),
        CHILD,
    );
    case("an edge from two dots", &leaving("child.done.done"), CHILD);
    case("an edge from an inner node", &leaving("child/work"), CHILD);
    case(
        "two edges from an exit",
        &format!("{PARENT}  - {{ from: child.done, to: first }}\n"),
        CHILD,
    );
    case(
        "an edge to an unknown include",
        &parent("to: child }", "to: chidl }"),
        CHILD,
    );
    case(
        "an include that is not reached",
        &parent("{ from: first, to: child }", "{ from: first, to: last }"),
        CHILD,
    );
    case(
        "an end without an exit",
        PARENT,
        &child(
            "nodes:\n  work: { compute: { jq: $input.n } }",
            "nodes:\n  work: { compute: { way: a } }\n  b: { compute: 1 }\n  c: { compute: 1 }\n  pick: { compute: { way: b } }\nedges:\n  - { from: pick, switch: { on: $.way, cases: { a: work, b: b, c: c } } }",
        )
        .replace("startAt: work", "startAt: pick"),
    );
    case(
        "a file that is not there",
        &workflow("./chidl.workflow.yaml"),
        CHILD,
    );
    case(
        "settings of a workflow that has none",
        &parent("input: {", "settings: {"),
        CHILD,
    );
    case(
        "a workflow without exits",
        PARENT,
        &child("exits:\n  done: { from: work }\n", ""),
    );
    case("itself", &workflow("./parent.workflow.yaml"), CHILD);
    case(
        "one that includes it",
        PARENT,
        &format!("{CHILD}includes: {{ parent: {{ workflow: parent }} }}\n"),
    );
    case(
        "a file as its own contract",
        &parent("input: {", "contract: ./parent.workflow.yaml, input: {"),
        CHILD,
    );
    case(
        "a contract that is not there",
        &parent("input: {", "contract: nobody, input: {"),
        CHILD,
    );
    case("a file of another kind", &workflow("./notes.txt"), CHILD);
    case("a directory", &workflow("/"), CHILD);
    case(
        "a child with a mistake of its own",
        PARENT,
        &child("startAt: work", "startAt: wrok"),
    );
    case("an unknown name", &workflow("nobody"), CHILD);
    case(
        "an unknown built-in workflow",
        &workflow("'builtin:nothing'"),
        CHILD,
    );
    insta::assert_snapshot!(table);
}

#[test]
fn a_contract_is_kept_in_all_three_points() {
    let contract = |text: &str| {
        let shelf = Shelf::new(&[
            (
                "parent.workflow.yaml",
                &PARENT.replace("input: {", "contract: ./contract.workflow.yaml, input: {"),
            ),
            ("child.workflow.yaml", CHILD),
            ("contract.workflow.yaml", text),
        ]);
        shelf.says("parent.workflow.yaml")
    };
    let mut said = String::new();
    for (from, to) in [
        ("", ""),
        ("contractId: a.child\n", ""),
        ("a.child", "b.child"),
        ("  done:", "  other:"),
        (
            "input: { fields: { n: { type: integer, default: 0 } } }\n",
            "",
        ),
    ] {
        writeln!(
            said,
            "{from:?} as {to:?}: {}",
            contract(&CHILD.replace(from, to))
        )
        .unwrap();
    }
    insta::assert_snapshot!(said);
}

#[test]
fn a_text_without_a_place_includes_nothing_by_a_relative_path() {
    let error = parse("parent.workflow.yaml", PARENT).unwrap_err();
    assert_eq!(error.code(), Some("G15"), "{error}");
    assert_eq!((error.position.line, error.position.column), (7, 22));
}

#[test]
fn edge_016_files_that_include_each_other_are_told_with_the_chain() {
    let file = |name: &str, next: &str| {
        format!(
            "name: {name}\nstartAt: work\nnodes: {{ work: {{ compute: 1 }} }}\nincludes: {{ next: {{ workflow: ./{next}.workflow.yaml }} }}\nedges: [{{ from: work, to: next }}]\n"
        )
    };
    let (a, b, c) = (file("a", "b"), file("b", "c"), file("c", "b"));
    let shelf = Shelf::new(&[
        ("a.workflow.yaml", &a),
        ("b.workflow.yaml", &b),
        ("c.workflow.yaml", &c),
    ]);
    assert_eq!(
        shelf.says("a.workflow.yaml"),
        "c.workflow.yaml:4:31: include \"next\": the workflows include each other: b -> c -> b [G14]"
    );
    // Another path to the same file is the same file.
    let link = shelf.path("other.workflow.yaml");
    std::os::unix::fs::symlink(shelf.path("b.workflow.yaml"), &link).unwrap();
    std::fs::write(shelf.path("c.workflow.yaml"), file("c", "other")).unwrap();
    assert!(shelf.says("a.workflow.yaml").ends_with("b -> c -> b [G14]"));
}

#[test]
fn a_definition_that_came_from_a_file_is_not_included_by_that_file() {
    /// Knows a definition under a name, as it was once.
    struct Once(WorkflowFile);

    impl Names for Once {
        fn named(&self, _name: &str) -> Option<Found> {
            let file = self.0.clone();
            Some(Found::Definition(file.definition, file.source))
        }
        fn builtin(&self, _id: &str) -> Option<Found> {
            None
        }
        fn all_names(&self) -> Vec<String> {
            Vec::new()
        }
        fn all_builtins(&self) -> Vec<String> {
            Vec::new()
        }
    }
    let shelf = Shelf::new(&[("parent.workflow.yaml", CHILD)]);
    let path = shelf.path("parent.workflow.yaml");
    let once = Once(read(&path).unwrap());
    std::fs::write(&path, PARENT.replace("./child.workflow.yaml", "child")).unwrap();
    let error = read_with(&path, &once).unwrap_err();
    assert_eq!(error.code(), Some("G14"));
    assert!(error.to_string().ends_with("parent -> child"), "{error}");
}

#[test]
fn what_is_included_again_and_again_is_bounded() {
    let twice = |next: usize| {
        format!(
            "name: twice\nstartAt: work\nnodes: {{ work: {{ compute: 1 }}, end: {{ compute: 2 }} }}\nincludes: {{ a: {{ workflow: ./{next}.workflow.yaml }}, b: {{ workflow: ./{next}.workflow.yaml }} }}\nedges: [{{ from: work, to: a }}, {{ from: a.done, to: b }}, {{ from: b.done, to: end }}]\nexits: {{ done: {{ from: end }} }}\n"
        )
    };
    let shelf = Shelf::new(&[("0.workflow.yaml", CHILD)]);
    for level in 1..40 {
        let path = shelf.path(&format!("{level}.workflow.yaml"));
        std::fs::write(path, twice(level - 1)).unwrap();
    }
    assert_eq!(shelf.says("5.workflow.yaml"), "is read");
    let said = shelf.says("20.workflow.yaml");
    assert!(said.ends_with("and 10000 are allowed [H4]"), "{said}");
    // Each file is read once: a chain of them ends by its own length.
    assert!(shelf.says("39.workflow.yaml").ends_with("[G11]"));
}

#[test]
fn an_absolute_path_is_taken_as_it_is() {
    let shelf = Shelf::new(&[("child.workflow.yaml", CHILD)]);
    let absolute = shelf.path("child.workflow.yaml");
    let text = PARENT.replace("./child.workflow.yaml", absolute.to_str().unwrap());
    let definition = parse("parent.workflow.yaml", &text).unwrap();
    let source = &definition.mounts()["child"].source;
    assert_eq!(Path::new(&source.reference()), absolute);
}
