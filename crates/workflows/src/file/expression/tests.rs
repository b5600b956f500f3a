//! Expressions and the limits of their evaluation.

use std::fmt::Write as _;

use serde_json::json;

use super::*;

fn evaluate(text: &str, dot: Value) -> Result<Value, EvaluationError> {
    let expression = Expression::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    expression.evaluate(Environment {
        dot,
        ..Environment::default()
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn the_language_works_with_its_guards() {
    for (text, dot, expected) in [
        (".a.b", json!({"a": {"b": 1}}), json!(1)),
        ("1.0", json!(null), json!(1)),
        (
            "[.[] | select(. > 1) | . * 2]",
            json!([1, 2, 3]),
            json!([4, 6]),
        ),
        ("map(.n) | add", json!([{"n": 1}, {"n": 2}]), json!(3)),
        (
            ".x |= . + 1",
            json!({"x": 1, "y": 2}),
            json!({"x": 2, "y": 2}),
        ),
        (".x *= 3", json!({"x": 2}), json!({"x": 6})),
        (".[] *= 3", json!([1, 2]), json!([3, 6])),
        ("del(.a)", json!({"a": 1, "b": 2}), json!({"b": 2})),
        ("[paths]", json!({"a": [1]}), json!([["a"], ["a", 0]])),
        (
            "to_entries | map(\"\\(.key)=\\(.value)\") | join(\",\")",
            json!({"a": 1, "b": "x"}),
            json!("a=1,b=x"),
        ),
        ("reduce .[] as $x (0; . + $x)", json!([1, 2, 3]), json!(6)),
        (
            "[foreach .[] as [$a, $b] (0; . + $a; . * $b)]",
            json!([[1, 2], [3, 4]]),
            json!([2, 16]),
        ),
        ("[limit(3; repeat(1))]", json!(null), json!([1, 1, 1])),
        ("[range(0; 10; 3)]", json!(null), json!([0, 3, 6, 9])),
        (
            "def f($n): if $n < 2 then 1 else $n * f($n - 1) end; f(10)",
            json!(null),
            json!(3_628_800),
        ),
        (
            "[recurse(if . < 3 then . + 1 else empty end)]",
            json!(0),
            json!([0, 1, 2, 3]),
        ),
        ("until(. > 100; . * 2)", json!(1), json!(128)),
        ("last(range(100000))", json!(null), json!(99_999)),
        ("[(1, 2) * (10, 20)]", json!(null), json!([10, 20, 20, 40])),
        ("\"ab\" * 3", json!(null), json!("ababab")),
        (
            "{a: {b: 1}} * {a: {c: 2}}",
            json!(null),
            json!({"a": {"b": 1, "c": 2}}),
        ),
        ("try error(\"x\") catch .", json!(null), json!("x")),
        (
            "label $out | foreach .[] as $x (0; . + $x; if . > 2 then ., break $out else empty end)",
            json!([1, 2, 3]),
            json!(3),
        ),
        (".a? // \"none\"", json!([]), json!("none")),
        ("test(\"^v[0-9]+$\")", json!("v12"), json!(true)),
        (
            "gsub(\"(?<d>[0-9])\"; \"<\\(.d)>\")",
            json!("a1b2"),
            json!("a<1>b<2>"),
        ),
        ("[splits(\", *\")]", json!("a, b,c"), json!(["a", "b", "c"])),
        (
            "group_by(.k) | map(length)",
            json!([{"k": 1}, {"k": 2}, {"k": 1}]),
            json!([2, 1]),
        ),
        (
            "walk(if type == \"number\" then . + 1 else . end)",
            json!([1, [2]]),
            json!([2, [3]]),
        ),
        (
            "[.. | numbers]",
            json!([1, [2, {"a": 3}]]),
            json!([1, 2, 3]),
        ),
        (
            "tojson | fromjson",
            json!({"a": [1, null]}),
            json!({"a": [1, null]}),
        ),
        ("@base64 | @base64d", json!("hällo"), json!("hällo")),
        ("first(.[] | select(. > 1))", json!([1, 2, 3]), json!(2)),
        (
            ". as {a: $x, b: [$y]} | $x + $y",
            json!({"a": 1, "b": [2]}),
            json!(3),
        ),
        ("getpath([\"a\", \"b\"])", json!({"a": {"b": 7}}), json!(7)),
        (
            "setpath([\"a\", \"b\"]; 1)",
            json!({"a": {"b": 0}}),
            json!({"a": {"b": 1}}),
        ),
        ("path(first(.a, .b))", json!({}), json!(["a"])),
        ("any(.[]; . > 2)", json!([1, 2, 3]), json!(true)),
        (
            "[combinations]",
            json!([[1, 2], [3, 4]]),
            json!([[1, 3], [1, 4], [2, 3], [2, 4]]),
        ),
        ("todate", json!(0), json!("1970-01-01T00:00:00Z")),
    ] {
        assert_eq!(evaluate(text, dot), Ok(expected), "{text}");
    }
}

/// Loops as people write them stay far below the limits.
#[test]
fn ordinary_sizes_are_far_from_the_limits() {
    let check = |text: &str, expected: u64| {
        assert_eq!(evaluate(text, json!(null)), Ok(json!(expected)), "{text}");
    };
    check(
        "[range(20000) | {n: ., s: \"x\\(.)\"}] | map(.n) | add",
        199_990_000,
    );
    check("last(range(300000))", 299_999);
    check(
        "def f: if . >= 100000 then . else . + 1 | f end; 0 | f",
        100_000,
    );
    // Building a list or an object member by member has a price, since each step may copy it.
    check("reduce range(3000) as $i ([]; . + [$i]) | length", 3000);
    check(
        "reduce range(1000) as $i ({}; .[$i | tostring] = $i) | length",
        1000,
    );
    let log: Vec<Value> = (0..2000)
        .map(|n| json!(format!("{n:07x} subject {n}")))
        .collect();
    let draft = "map(capture(\"^(?<hash>[0-9a-f]+) (?<subject>.*)$\"))
        | map(\"- \\(.subject)\") | join(\"\\n\") | length";
    assert!(evaluate(draft, json!(log)).unwrap().as_u64().unwrap() > 20_000);
}

#[test]
fn exactly_one_value() {
    assert_eq!(
        evaluate("empty", json!(null)),
        Err(EvaluationError::Nothing)
    );
    assert_eq!(evaluate("1, 2", json!(null)), Err(EvaluationError::Many));
    assert!(matches!(
        evaluate("1, error(\"x\")", json!(null)),
        Err(EvaluationError::Raised { .. })
    ));
    assert_eq!(
        evaluate("error({code: 7})", json!(null)),
        Err(EvaluationError::Raised {
            message: "{\"code\":7}".to_owned()
        })
    );
    for text in ["nan", "infinite", "[1e999]", "{(1 | tostring): nan}"] {
        assert!(
            matches!(
                evaluate(text, json!(null)),
                Err(EvaluationError::NotJson { .. })
            ),
            "{text}"
        );
    }
}

/// Programs that would run for ever, or eat the memory or the stack.
#[test]
fn hostile_expressions_end_at_a_limit() {
    let cases = [
        "def f: f; f",
        "def f: 1 + f; f",
        "def f: [f]; f",
        "def f: try f catch f; f",
        "def f: (try f catch .), (try f catch .); [f]",
        "[repeat(1)]",
        "last(repeat(1))",
        "first(repeat(1) | select(. == 2))",
        "until(false; .)",
        "try until(false; .) catch 1",
        "[try repeat(1) catch 2] | length",
        "last(range(1e18))",
        "[range(1e18)]",
        "skip(1e18; repeat(1))",
        "reduce range(1e18) as $x (0; . + 1)",
        "last(foreach range(1e18) as $x (0; . + 1))",
        "isempty(range(1e18) | select(. < 0))",
        "any(range(1e18); . < 0)",
        "[range(1000)] | last(.[] as $a | .[] as $b | .[] as $c | .[] as $d | $a)",
        "[range(100)] | [.,.,.,.,.,.,.,.,.,.] | [combinations] | length",
        "reduce range(100) as $i (\"a\"; . + .)",
        "reduce range(100) as $i ([0]; . + .)",
        "reduce range(100) as $i (1; [., .])",
        "reduce range(100) as $i (1; {a: ., b: .})",
        "reduce range(60) as $i (1; [., .]) | tojson",
        "reduce range(60) as $i ({}; .a = . | .b = .a)",
        "reduce range(60) as $i ({a: 1}; .a |= [., .])",
        "reduce range(1000000) as $i (null; [.])",
        "\"x\" * 1000000000000",
        "1000000000000 * \"x\"",
        "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" * 1000000 | . * 1000000",
        "{a: \"x\"} | .a *= 1000000000000",
        "[range(100000) | \"x\" * 100000]",
        "reduce range(100) as $i (9; . * .)",
        "[limit(1e9; repeat(\"x\" * 1000))]",
        "recurse(.) | empty",
        "[recurse(.)]",
        "[.[]?] | def f(g): g | f(g); f(.)",
        "def f(g): f(g | g); f(.)",
        "gsub(\"\"; \"x\" * 1000000)",
        "[splits(\"\")] | map(. * 1000000) | add",
    ];
    for text in cases {
        let expression = Expression::compile(text).unwrap();
        let dot = json!("x".repeat(100));
        let environment = Environment {
            dot,
            ..Environment::default()
        };
        let found = expression.evaluate_within(100_000, environment);
        assert!(
            matches!(
                found,
                Err(EvaluationError::Steps
                    | EvaluationError::Size
                    | EvaluationError::Depth
                    | EvaluationError::Stack)
            ),
            "{text}: {:?}",
            found.map(|value| value.to_string().len())
        );
    }
}

/// The limits on values hold whatever steps are left.
#[test]
fn large_and_deep_values_end_at_their_own_limit() {
    for (text, limit) in [
        (
            "reduce range(100) as $i (\"a\"; . + .)",
            EvaluationError::Size,
        ),
        (
            "reduce range(100) as $i ([0]; . + .)",
            EvaluationError::Size,
        ),
        ("\"x\" * 1000000000000", EvaluationError::Size),
        ("1000000000000 * \"x\"", EvaluationError::Size),
        ("{a: \"x\"} | .a *= 1000000000000", EvaluationError::Size),
        ("reduce range(100) as $i (9; . * .)", EvaluationError::Size),
        (
            "reduce range(1000) as $i (null; [.])",
            EvaluationError::Depth,
        ),
        (
            "reduce range(60) as $i ({a: 1}; .a |= [., .])",
            EvaluationError::Size,
        ),
        ("def f: 1 + f; f", EvaluationError::Stack),
    ] {
        assert_eq!(evaluate(text, json!(null)), Err(limit), "{text}");
    }
}

#[test]
fn deep_brackets_and_long_texts_do_not_break_the_compiler() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{a:", "}"),
        ("-", ""),
        ("if ", ""),
        ("\"\\(", ")\""),
    ] {
        let count = TEXT_MAX_BYTES / (open.len() + close.len()) - 2;
        let text = format!("{}1{}", open.repeat(count), close.repeat(count));
        match Expression::compile(&text) {
            Ok(expression) => drop(expression.evaluate(Environment::default())),
            Err(error) => drop(error),
        }
    }
    assert!(Expression::compile(&"1".repeat(TEXT_MAX_BYTES + 1)).is_err());
    let many = format!("[{}] | length", vec!["(0,1)"; 500].join("|"));
    let many = Expression::compile(&many).unwrap();
    assert_eq!(
        many.evaluate_within(100_000, Environment::default()),
        Err(EvaluationError::Steps)
    );
}

#[test]
fn mistakes_have_a_place() {
    let mut table = String::new();
    for text in [
        "",
        ".a +",
        ".a ]",
        "[.a",
        "\"\\q\"",
        ".a | nosuch",
        ".a | map(.x; 1)",
        "1 + $outptus",
        "now",
        ".x | env.HOME",
        "$ENV",
        "debug",
        "input",
        "halt_error",
        "include \"x\"; .",
        "import \"x\" as x; .",
        "holdpoint_main",
        "!step",
        "if . then 1",
        ". as [$x | 1",
        "break $x",
        "reduce . as $x (1)",
    ] {
        let found = Expression::compile(text).map_or_else(
            |error| format!("{} {}", error.offset, error.message),
            |_| "compiles".to_owned(),
        );
        writeln!(table, "{text:24} {found}").unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn variables_and_numbers() {
    let expression = Expression::compile(
        "[$input, $outputs.n, $results.n.outcome, $run.visit, $settings.batch, .]",
    )
    .unwrap();
    let environment = Environment {
        dot: json!(9_007_199_254_740_991_i64),
        input: json!({"a": 1.5}),
        outputs: json!({"n": -0.5}),
        results: json!({"n": {"outcome": "ok"}}),
        settings: json!({"batch": 3}),
        run: json!({"visit": 2}),
    };
    assert_eq!(
        expression.evaluate(environment),
        Ok(json!([{"a": 1.5}, -0.5, "ok", 2, 3, 9_007_199_254_740_991_i64]))
    );
    assert!(matches!(
        evaluate("9007199254740993", json!(null)),
        Err(EvaluationError::NotJson { .. })
    ));
}

/// Filters of the interpreter that work long or deep without passing a guard.
#[test]
fn hostile_arguments_of_filters_are_errors() {
    let mut table = String::new();
    for text in [
        "(\"[\" * 1000000) | fromjson",
        "((\"{\\\"a\\\":\" * 200000) + \"1\" + (\"}\" * 200000)) | fromjson",
        "\"9\" * 1000000 | tonumber",
        "test(\"(\" * 100000 + \")\" * 100000)",
        "(\"a\" * 50 + \"b\") | test(\"^(a+)+$\")",
        "\"a\" | test(\"((a{1000}){1000}){1000}\")",
        "0 | strftime(\"%1000000000Y\")",
        "\"x\" * nan",
        "\"x\" * -1",
        "\"x\" * 2.5",
        "\"1 2\" | fromjson",
        "1 | fromjson",
        "error({code: 7})",
        "error(nan)",
        "reduce range(1000) as $i (null; [.]) | error",
    ] {
        let found = evaluate(text, json!("x"))
            .map_or_else(|error| format!("error: {error}"), |value| value.to_string());
        writeln!(table, "{text}\n    {found}").unwrap();
    }
    insta::assert_snapshot!(table);
}
