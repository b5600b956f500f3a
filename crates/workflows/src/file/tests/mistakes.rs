//! The place and words of every mistake in a file.

use std::fmt::Write as _;

use crate::file::parse;

/// Nodes that say nothing but their kind, to make the mistakes around them short.
const GOOD: &str = "name: a
startAt: one
nodes:
  one: { compute: 1 }
  two: { compute: { jq: . } }
edges:
  - { from: one, to: two }
";

/// Every mistake that a file can have, with its place, its code and the way out.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn mistakes() {
    let changed = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replace(from, to)
    };
    let node = |text: &str| changed("{ compute: 1 }", text);
    let edge = |text: &str| changed("{ from: one, to: two }", text);
    let shell = |text: &str| {
        node(&format!(
            "{{ shell: {{ argv: [a], effect: {{ type: t, recovery: manual }}{text} }} }}"
        ))
    };
    let mut table = String::new();
    let mut case = |title: &str, text: &str| {
        let found = match parse("a.workflow.yaml", text) {
            Ok(_) => "is read".to_owned(),
            Err(error) => {
                let code = error
                    .code()
                    .map(|code| format!(" [{code}]"))
                    .unwrap_or_default();
                error.to_string().replacen("a.workflow.yaml:", "", 1) + &code
            }
        };
        writeln!(table, "{title}\n    {found}").unwrap();
    };
    case("good", GOOD);

    case("an empty file", "");
    case("only a comment", "# nothing\n");
    case("a list", "- a\n");
    case("a text", "hello");
    case("two documents", &format!("{GOOD}---\n{GOOD}"));
    case("a broken flow", &changed("{ compute: 1 }", "{ compute: 1"));
    case("a tab", &changed("  one: {", "\tone: {"));
    case("an anchor", &node("&x { compute: 1 }"));
    case("an alias", &node("*x"));
    case("a tag", &node("!!map { compute: 1 }"));
    case("a merge key", &node("{ <<: { compute: 1 } }"));
    case("a list as a key", &node("{ [a]: 1 }"));
    case("a repeated key", &changed("edges:", "name: b\nedges:"));
    case(
        "a repeated node",
        &changed("  two:", "  one: { compute: 2 }\n  two:"),
    );
    case("infinity", &node("{ compute: .inf }"));
    case("leading zeros", &node("{ compute: 0755 }"));
    case(
        "an integer that no double holds",
        &node("{ compute: 9007199254740993 }"),
    );
    case(
        "too deep",
        &node(&format!(
            "{{ compute: {}{} }}",
            "[".repeat(70),
            "]".repeat(70)
        )),
    );

    case(
        "more output than can be stored",
        &shell(", maxOutputChars: 67108865"),
    );
    case(
        "as much output as can be stored",
        &shell(", maxOutputChars: 67108864"),
    );
    case("an unknown field", &changed("startAt", "startat"));
    case(
        "an unknown field without a near name",
        &changed("edges:", "wires:"),
    );
    case("an unknown field of a node", &node("{ computee: 1 }"));
    case(
        "an unknown field of an edge",
        &edge("{ from: one, too: two }"),
    );
    case("no name", &changed("name: a\n", ""));
    case("a blank name", &changed("name: a", "name: ' '"));
    case("a number as a name", &changed("name: a", "name: 7"));
    case(
        "a command word as a name",
        &changed("name: a", "name: list"),
    );
    case(
        "a bad contract id",
        &changed("name: a", "name: a\ncontractId: -x"),
    );
    case(
        "a list as a title",
        &changed("name: a", "name: a\ntitle: [x]"),
    );
    case(
        "a number as input",
        &changed("name: a", "name: a\ninput: 7"),
    );
    case(
        "an unknown type of a field",
        &changed(
            "name: a",
            "name: a\ninput: { fields: { x: { type: strnig } } }",
        ),
    );
    case(
        "a default of another type",
        &changed(
            "name: a",
            "name: a\ninput: { fields: { x: { type: string, default: 7 } } }",
        ),
    );
    case("no startAt", &changed("startAt: one\n", ""));
    case("a blank startAt", &changed("startAt: one", "startAt: ''"));
    case(
        "an unknown startAt",
        &changed("startAt: one", "startAt: oen"),
    );
    case("no steps", &changed("name: a", "name: a\nmaxSteps: 0"));
    case("half a step", &changed("name: a", "name: a\nmaxSteps: 1.5"));
    case(
        "a text as maxSteps",
        &changed("name: a", "name: a\nmaxSteps: many"),
    );
    case("nodes as a list", "name: a\nstartAt: one\nnodes: [one]\n");
    case("no nodes", "name: a\nstartAt: one\nnodes: {}\n");
    case("nodes left out", "name: a\nstartAt: one\n");
    case("a bad node id", &changed("  two:", "  2wo:"));
    case("a compiled node id", &changed("  two:", "  a/b:"));
    case("a reserved node id", &changed("  two:", "  __piw_two:"));
    case("an inherited node id", &changed("  two:", "  constructor:"));
    case("a node without a kind", &node("{ statusDetail: x }"));
    case(
        "a node with two kinds",
        &node("{ compute: 1, checkpoint: {} }"),
    );
    case("a node that is a text", &node("hello"));
    case("a zero timeout", &node("{ compute: 1, timeoutMs: 0 }"));
    case(
        "a text as timeout",
        &node("{ compute: 1, timeoutMs: soon }"),
    );
    case(
        "a number as detail",
        &node("{ compute: 1, statusDetail: 7 }"),
    );
    case("a shell text", &node("{ shell: ls }"));
    case(
        "argv as a text",
        &node("{ shell: { argv: ls -l, effect: { type: t, recovery: manual } } }"),
    );
    case(
        "an empty argv",
        &node("{ shell: { argv: [], effect: { type: t, recovery: manual } } }"),
    );
    case(
        "a command without an effect",
        &node("{ shell: { argv: [ls] } }"),
    );
    case(
        "an effect without a type",
        &node("{ shell: { argv: [ls], effect: { recovery: manual } } }"),
    );
    case(
        "an effect with a blank type",
        &node("{ shell: { argv: [ls], effect: { type: ' ', recovery: manual } } }"),
    );
    case(
        "an unknown recovery",
        &node("{ shell: { argv: [ls], effect: { type: t, recovery: idempotant } } }"),
    );
    case("a broken parse", &shell(", parse: { jq: '.stdout |' }"));
    case("a negative bound", &shell(", maxOutputChars: -1"));
    case(
        "a file without content",
        &node("{ writeFile: { path: a } }"),
    );
    case("a text as checkpoint", &node("{ checkpoint: ask }"));
    case("edges as an object", &changed("  - {", "  x: {"));
    case("an edge without from", &edge("{ to: two }"));
    case("an edge without a target", &edge("{ from: one }"));
    case(
        "an edge with two targets",
        &edge("{ from: one, to: two, switch: { on: $.x, cases: { a: two } } }"),
    );
    case(
        "a switch without a root",
        &edge("{ from: one, switch: { on: x, cases: { a: two } } }"),
    );
    case(
        "a switch without cases",
        &edge("{ from: one, switch: { on: $.x, cases: {} } }"),
    );
    case(
        "a case with a blank node",
        &edge("{ from: one, switch: { on: $.x, cases: { a: '' } } }"),
    );
    case("an edge from nowhere", &edge("{ from: noe, to: two }"));
    case(
        "a second edge",
        &edge("{ from: one, to: two }\n  - { from: one, to: one }"),
    );
    case("an edge to nowhere", &edge("{ from: one, to: tow }"));
    case(
        "a case to nowhere",
        &edge("{ from: one, switch: { on: $.x, cases: { a: two, b: tow } } }"),
    );
    case("an unreachable node", &edge("{ from: two, to: one }"));

    case(
        "an expression with company",
        &node("{ compute: { jq: ., x: 1 } }"),
    );
    case(
        "an expression that is a number",
        &node("{ compute: { jq: 7 } }"),
    );
    case(
        "a plain expression",
        &node("{ compute: { jq: .a | nosuch } }"),
    );
    case(
        "a quoted expression",
        &node("{ compute: { jq: \".a | nosuch\" } }"),
    );
    case(
        "a quoted expression with escapes",
        &node("{ compute: { jq: \"\\\"x\\\" | nosuch\" } }"),
    );
    case(
        "an expression in a block",
        &node(
            "\n    compute:\n      jq: |\n        # What it does.\n        .a\n        | nosuch\n",
        ),
    );
    case(
        "an expression in a block after an empty line",
        &node("\n    compute:\n      jq: |\n\n        .a\n        | nosuch\n"),
    );
    case(
        "a folded expression",
        &node("\n    compute:\n      jq: >\n        .a\n        | nosuch\n"),
    );
    case(
        "an expression deep inside",
        &node("{ compute: { a: [1, { b: { jq: '1 +' } }] } }"),
    );
    case(
        "a misspelt variable",
        &node("{ compute: { jq: $inputs.x } }"),
    );
    case("the clock", &node("{ compute: { jq: now } }"));
    insta::assert_snapshot!(table);
}

#[test]
fn mistakes_in_json() {
    let mut table = String::new();
    for text in [
        "",
        "{\"name\": \"a\",}",
        "{\"name\": \"a\", \"name\": \"b\"}",
        "{\"name\": 'a'}",
        "{\"name\": \"a\" // comment\n}",
        "{\n  \"name\": \"a\",\n  \"nodes\": { \"n\": { \"compute\": 9007199254740993 } }\n}",
        "{\"name\": \"\\ud800\"}",
        "{\n\t\"name\": \"a\",\n\t\"startAt\": \"n\",\n\t\"nodes\": { \"n\": { \"compute\": { \"jq\": \"\\ud83d\\ude00\" } } }\n}",
        "{\n  \"name\": \"a\",\n  \"startat\": \"n\"\n}",
        "{\"name\": \"a\"} {}",
        "[1e999, [}",
        "[\"\\ud800\", :: ]",
        "{\"a\": 1, \"a\": [}",
    ] {
        let found = parse("a.workflow.json", text)
            .map_or_else(|error| error.to_string(), |_| "is read".to_owned());
        writeln!(table, "{}\n    {found}", text.replace('\n', "⏎")).unwrap();
    }
    insta::assert_snapshot!(table);
}
