//! The strict reading, error by error, and Rust types; the RFC's own vectors and the properties have rooms below.

mod properties;
mod rfc8785;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;

/// Checks the canonical form of `text`, that it is a fixed point, and that both readers agree about it.
#[track_caller]
fn check(text: &str, expected: &str) {
    let canonical = canonicalize(text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(canonical).unwrap(), expected);
    assert!(
        is_canonical(expected.as_bytes()),
        "the canonical form is not a fixed point"
    );
    assert_eq!(is_canonical(text.as_bytes()), text == expected);
    let value = parse(text.as_bytes()).unwrap();
    assert_eq!(super::canonical(&value).unwrap(), expected.as_bytes());
}

/// Checks that both readers refuse `text` with `expected`.
#[track_caller]
fn check_refused(text: impl AsRef<[u8]>, expected: &JsonError) {
    let text = text.as_ref();
    assert_eq!(canonicalize(text).as_ref(), Err(expected));
    assert_eq!(parse(text).as_ref(), Err(expected));
    assert!(!is_canonical(text));
}

/// Checks that a typed value has the form of its `serde_json::Value`.
#[track_caller]
fn check_typed(value: &impl Serialize) {
    let by_value = canonical(&serde_json::to_value(value).unwrap()).unwrap();
    assert_eq!(
        String::from_utf8(to_canonical(value).unwrap()),
        String::from_utf8(by_value)
    );
}

fn duplicate(pointer: &str) -> JsonError {
    JsonError::DuplicateKey {
        pointer: pointer.to_owned(),
    }
}

fn not_exact(pointer: &str, literal: &str) -> JsonError {
    JsonError::NumberNotExact {
        pointer: pointer.to_owned(),
        literal: literal.to_owned(),
    }
}

fn lone(pointer: &str, unit: u16) -> JsonError {
    JsonError::LoneSurrogate {
        pointer: pointer.to_owned(),
        unit,
    }
}

#[test]
fn case_19_keys_sort_by_utf16_code_units() {
    // In UTF-8 and by code point, U+FF20 comes before the emoji.
    check(r#"{"＠":1,"😀":2}"#, r#"{"😀":2,"＠":1}"#);
    check(
        r#"{"a＠":1,"a😀":2,"a":3,"aa":4}"#,
        r#"{"a":3,"aa":4,"a😀":2,"a＠":1}"#,
    );
    // Escaped characters sort by what they are, not by their backslash.
    check(
        r##"{"]":1,"\\":2,"[":3,"!":4,"\"":5,"#":6,"\n":7}"##,
        r##"{"\n":7,"!":4,"\"":5,"#":6,"[":3,"\\":2,"]":1}"##,
    );
    // A key that is the start of another comes first, also before one that goes on below the quote.
    check(
        r#"{"a!":1,"a ":2,"a":3,"":4}"#,
        r#"{"":4,"a":3,"a ":2,"a!":1}"#,
    );
    check(
        r#"{"10":1,"9":2,"A":3,"a":4,"_":5}"#,
        r#"{"10":1,"9":2,"A":3,"_":5,"a":4}"#,
    );
}

#[test]
fn case_22_the_same_key_twice_is_refused() {
    check_refused(r#"{"a":1,"a":1}"#, &duplicate("/a"));
    check_refused(r#"{"a":1,"\u0061":2}"#, &duplicate("/a"));
    check_refused(r#"{"a":1,"b":2,"c":3,"a":4}"#, &duplicate("/a"));
    check_refused(r#"{"😀":1,"b":2,"\ud83d\ude00":3}"#, &duplicate("/😀"));
    check_refused(r#"{"":1,"":2}"#, &duplicate("/"));
    check_refused(r#"{"/":1,"\/":2}"#, &duplicate("/~1"));
    check_refused(
        r#"{"x":[0,{"a/b":{"~":{"k":1,"l":2,"k":3}}}]}"#,
        &duplicate("/x/1/a~1b/~0/k"),
    );
    check_refused(r#"[{"k":{}},{"\n":1,"\u000a":2}]"#, &duplicate("/1/\n"));
    check(
        r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#,
        r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}"#,
    );
}

#[test]
fn objects_inside_objects_are_put_in_order_at_every_level() {
    check(
        r#"{"z":{"b":[{"d":1,"c":{"y":1,"x":{}}}],"a":[]},"a":{"2":{"q":0,"p":0},"1":""}}"#,
        r#"{"a":{"1":"","2":{"p":0,"q":0}},"z":{"a":[],"b":[{"c":{"x":{},"y":1},"d":1}]}}"#,
    );
}

#[test]
fn lone_surrogates_are_refused() {
    check_refused(r#""\ud83d""#, &lone("", 0xD83D));
    check_refused(r#"["x","\ude00\ud83d"]"#, &lone("/1", 0xDE00));
    check_refused(r#"{"a":"\ud83d\ud83d\ude00"}"#, &lone("/a", 0xD83D));
    check_refused(r#"{"a":"\ud83dx"}"#, &lone("/a", 0xD83D));
    check_refused(r#"{"a":"\ud83d\n"}"#, &lone("/a", 0xD83D));
    check_refused(r#"{"a":{"\udfff":1}}"#, &lone("/a", 0xDFFF));
    check(
        r#""\uD83D\uDE00\ud800\udc00\udbff\udfff""#,
        "\"😀\u{10000}\u{10FFFF}\"",
    );
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    check_refused(b"\"a\xFF\"", &JsonError::NotUtf8 { offset: 2 });
    check_refused(
        b"\"\xED\xA0\xBD\xED\xB8\x80\"",
        &JsonError::NotUtf8 { offset: 1 },
    );
    check_refused(b"\"\xC0\x80\"", &JsonError::NotUtf8 { offset: 1 });
    check_refused(b"[\"\xE2\x82", &JsonError::NotUtf8 { offset: 2 });
}

#[test]
fn what_json_does_not_have_is_refused_at_its_place() {
    let rows = [
        ("", 1, 1),
        ("  ", 1, 3),
        ("\u{FEFF}{}", 1, 1),
        ("{} {}", 1, 4),
        ("{}x", 1, 3),
        ("nul", 1, 1),
        ("True", 1, 1),
        ("NaN", 1, 1),
        ("Infinity", 1, 1),
        ("-Infinity", 1, 2),
        ("[\n  1,\n  é]", 3, 3),
        ("[\"ééé\" 1]", 1, 8),
        ("[1,]", 1, 4),
        ("[1 2]", 1, 4),
        ("[", 1, 2),
        ("{\"a\":1,}", 1, 8),
        ("{\"a\" 1}", 1, 6),
        ("{a:1}", 1, 2),
        ("{'a':1}", 1, 2),
        ("{1:1}", 1, 2),
        ("{\"a\":}", 1, 6),
        ("{\"a\":1", 1, 7),
        ("/* */1", 1, 1),
        ("\"a", 1, 3),
        ("\"a\nb\"", 1, 3),
        ("\"\t\"", 1, 2),
        ("\"12345678\u{1f}\"", 1, 10),
        (r#""\x41""#, 1, 2),
        (r#""\u12""#, 1, 2),
        (r#""\u+123""#, 1, 2),
        (r#""\ud83d\u12""#, 1, 8),
        ("\"\\", 1, 2),
        ("\"\\u", 1, 2),
        ("+1", 1, 1),
        ("01", 1, 2),
        ("-01", 1, 3),
        ("-", 1, 2),
        (".5", 1, 1),
        ("1.", 1, 3),
        ("1.e5", 1, 3),
        ("1e", 1, 3),
        ("1e+", 1, 4),
        ("0x10", 1, 2),
        ("1_000", 1, 2),
        ("1\u{a0}", 1, 2),
        ("1\u{c}", 1, 2),
    ];
    for (text, line, column) in rows {
        match canonicalize(text.as_bytes()) {
            Err(JsonError::Syntax {
                line: at_line,
                column: at_column,
                ..
            }) => {
                assert_eq!((at_line, at_column), (line, column), "{text:?}");
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

#[test]
fn numbers_keep_their_value_or_are_refused() {
    for (literal, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e999999999999", "0"),
        ("-1", "-1"),
        ("1.0", "1"),
        ("1E2", "100"),
        ("123456789012345", "123456789012345"),
        ("-999999999999999", "-999999999999999"),
        ("9007199254740991", "9007199254740991"),
        ("9007199254740992", "9007199254740992"),
        ("-9007199254740992", "-9007199254740992"),
        ("9007199254740994", "9007199254740994"),
        ("9223372036854776000", "9223372036854776000"),
        ("-18446744073709552000", "-18446744073709552000"),
        ("100000000000000000000", "100000000000000000000"),
        ("295147905179352830000", "295147905179352830000"),
        ("1000000000000000000000", "1e+21"),
        ("-12300000000000000000000000", "-1.23e+25"),
        ("1e21", "1e+21"),
        ("1e-7", "1e-7"),
        ("0.000001", "0.000001"),
        ("5e-324", "5e-324"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        // A measurement is rounded, as the RFC's own example has it.
        ("333333333.33333329", "333333333.3333333"),
        ("9007199254740993.0", "9007199254740992"),
    ] {
        check(literal, expected);
    }
    for literal in [
        "9007199254740993",
        "-9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        // Doubles both, 2^63 and 2^68, but their canonical forms denote other integers.
        "9223372036854775808",
        "295147905179352825856",
        "1000000000000000000001",
        "10000000000000000000000000000000000000001",
        "1e309",
        "-1e309",
        "1e999999999999999999999",
        // These would become zero.
        "1e-400",
        "-0.0001e-330",
    ] {
        let start: String = literal.chars().take(40).collect();
        check_refused(literal, &not_exact("", &start));
        check_refused(
            format!(r#"{{"n":[0,{literal}]}}"#),
            &not_exact("/n/1", &start),
        );
    }
    let endless = "9".repeat(400);
    check_refused(&endless, &not_exact("", &"9".repeat(40)));
}

#[test]
fn integers_of_rust_follow_the_same_rule() {
    for integer in [
        0,
        1,
        -1,
        (1 << 53) - 1,
        1 << 53,
        (1 << 53) + 2,
        -(1 << 53),
        9_223_372_036_854_776_000,
        i64::from(i32::MIN).into(),
    ] {
        let integer: i128 = integer;
        assert_eq!(
            to_canonical(&integer).unwrap(),
            integer.to_string().into_bytes()
        );
    }
    assert_eq!(
        canonical(&json!(9_007_199_254_740_993_u64)),
        Err(not_exact("", "9007199254740993"))
    );
    assert_eq!(
        canonical(&json!({"a": [i64::MIN]})),
        Err(not_exact("/a/0", "-9223372036854775808"))
    );
    assert_eq!(
        canonical(&json!([null, u64::MAX])),
        Err(not_exact("/1", "18446744073709551615"))
    );
    assert_eq!(
        to_canonical(&u128::MAX),
        Err(not_exact("", "340282366920938463463374607431768211455"))
    );
    assert_eq!(to_canonical(&10_u128.pow(21)).unwrap(), b"1e+21");
    assert_eq!(canonical(&json!(-0.0)).unwrap(), b"0");
    assert_eq!(canonical(&json!(1e15)).unwrap(), b"1000000000000000");
}

#[test]
fn numbers_without_json_form_are_refused_not_nulled() {
    let not_finite = |pointer: &str| {
        Err(JsonError::NumberNotFinite {
            pointer: pointer.to_owned(),
        })
    };
    assert_eq!(to_canonical(&f64::NAN), not_finite(""));
    assert_eq!(to_canonical(&[0.0, f64::INFINITY]), not_finite("/1"));
    assert_eq!(
        to_canonical(&BTreeMap::from([("a", f32::NEG_INFINITY)])),
        not_finite("/a")
    );
}

#[test]
fn nesting_ends_below_the_limit() {
    let arrays = |depth| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    for text in [arrays(DEPTH_LIMIT - 1), objects(DEPTH_LIMIT - 1)] {
        check(&text, &text);
        // The plain reader of serde_json, which everybody uses for reading back, has the same limit.
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
    for text in [
        arrays(DEPTH_LIMIT),
        objects(DEPTH_LIMIT),
        "[".repeat(1_000_000),
    ] {
        check_refused(&text, &JsonError::TooDeep);
    }
    let value = (0..DEPTH_LIMIT).fold(json!(1), |value, _| json!([value]));
    assert_eq!(canonical(&value), Err(JsonError::TooDeep));
    // Depth is nesting, not the count of what was opened.
    let wide = format!("[{}]", ["[{}]"; 1000].join(","));
    check(&wide, &wide);
}

#[test]
fn strings_have_only_the_escapes_that_they_need() {
    check(
        r#""\u0000\u0008\u0009\u000A\u000B\u000C\u000D\u001F\u0020\u007f\u2028\u00E9\/\"\\""#,
        "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f \u{7f}\u{2028}é/\\\"\\\\\"",
    );
    // One special byte at each place of the eight that are looked at together.
    for place in 0..20 {
        for (special, escaped) in [
            ("\"", "\\\""),
            ("\\", "\\\\"),
            ("\u{1}", "\\u0001"),
            ("é\n", "é\\n"),
            ("!\u{80}", "!\u{80}"),
        ] {
            let text = "x".repeat(place) + special + "#[]\u{7f}ÿ";
            let expected = format!("\"{}\"", text.replace(special, escaped));
            assert_eq!(
                String::from_utf8(to_canonical(&text).unwrap()).unwrap(),
                expected
            );
            check(&expected, &expected);
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Step<'a> {
    run_id: &'a str,
    attempt: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    output: Option<Shape>,
    by_number: HashMap<i16, (Unit, u8)>,
    pair: (f32, char),
}

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Wrapped(u64);

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    Empty,
    One(i64),
    Two(i8, bool),
    Named { width: u64, height: Option<u64> },
}

#[test]
fn rust_types_have_the_form_of_their_value() {
    for output in [
        None,
        Some(Shape::Empty),
        Some(Shape::One(-7)),
        Some(Shape::Two(1, true)),
        Some(Shape::Named {
            width: 1,
            height: None,
        }),
    ] {
        let by_number = (-20..20).map(|key| (key, (Unit, 1))).collect();
        check_typed(&Step {
            run_id: "r-1",
            attempt: 3,
            note: None,
            output,
            by_number,
            pair: (0.1, '"'),
        });
    }
    check_typed(&Wrapped(5));
    check_typed(&BTreeMap::from([(true, 'x'), (false, '\n')]));
    check_typed(&BTreeMap::from([
        ('"', 1),
        ('é', 2),
        ('😀', 3),
        ('\u{FF20}', 4),
    ]));
    check_typed(&BTreeMap::from([(Shape::Empty, 1)]));
    check_typed(&std::path::Path::new("/tmp/x"));
    check_typed(&std::time::Duration::from_millis(1500));
}

#[test]
fn a_raw_value_is_read_as_strictly_as_text() {
    #[derive(Serialize)]
    struct Envelope<'a> {
        payload: &'a RawValue,
        kind: &'a str,
    }
    let envelope = |text: &'static str| {
        to_canonical(&Envelope {
            payload: serde_json::from_str(text).unwrap(),
            kind: "k",
        })
    };
    assert_eq!(
        envelope(r#"{"b": 1.0, "a": []}"#).unwrap(),
        br#"{"kind":"k","payload":{"a":[],"b":1}}"#
    );
    assert_eq!(envelope(r#"{"b":1,"b":2}"#), Err(duplicate("/payload/b")));
    assert_eq!(
        envelope("[9007199254740993]"),
        Err(not_exact("/payload/0", "9007199254740993"))
    );
    assert_eq!(envelope(r#""\ud800""#), Err(lone("/payload", 0xD800)));
}

#[test]
fn rust_values_that_lose_something_are_refused_where_they_are() {
    #[derive(Serialize)]
    struct Outer {
        a: u8,
        #[serde(flatten)]
        rest: BTreeMap<&'static str, u8>,
    }
    assert_eq!(
        to_canonical(&[Outer {
            a: 1,
            rest: BTreeMap::from([("a", 2)])
        }]),
        Err(duplicate("/0/a"))
    );
    let too_large = u64::MAX.to_string();
    assert_eq!(
        to_canonical(&Shape::One(i64::MAX)),
        Err(not_exact("/One", "9223372036854775807"))
    );
    assert_eq!(
        to_canonical(&(
            1,
            Shape::Named {
                width: u64::MAX,
                height: None
            }
        )),
        Err(not_exact("/1/Named/width", &too_large))
    );
    for refused in [
        to_canonical(&BTreeMap::from([((1, 2), 3)])),
        to_canonical(&BTreeMap::from([(Some("a"), 3)])),
    ] {
        assert!(
            matches!(refused, Err(JsonError::Unserializable { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn equal_values_parse_to_equal_values() {
    assert_eq!(
        parse(b"[1.0, -0, 1e2, 0.5, 9007199254740994]").unwrap(),
        json!([1, 0, 100, 0.5, 9_007_199_254_740_994_u64])
    );
    assert_eq!(parse(b"-0.0").unwrap(), json!(0));
}

#[test]
fn each_error_says_where_and_what_to_do() {
    let errors = [
        canonicalize(b"\"\xFF\"").unwrap_err(),
        canonicalize(b"{\n \"a\" 1}").unwrap_err(),
        canonicalize(br#"{"a":[{"k":1,"k":2}]}"#).unwrap_err(),
        canonicalize(br#"{"\u001b[2J":"\udc00"}"#).unwrap_err(),
        canonicalize(b"9007199254740993").unwrap_err(),
        to_canonical(&[f64::NAN]).unwrap_err(),
        canonicalize("[".repeat(DEPTH_LIMIT).as_bytes()).unwrap_err(),
        to_canonical(&BTreeMap::from([([1], 3)])).unwrap_err(),
    ];
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    the text is not UTF-8 from byte 1 on; send JSON as UTF-8
    line 2, column 6: not JSON: a colon should follow the key
    the key at "/a/0/k" is there twice in one object; keep one of the two
    the text at "/\u{1b}[2J" has half of a surrogate pair, `\udc00`; write both halves or U+FFFD
    the number 9007199254740993 at the top does not survive as an IEEE 754 double; send it as a string
    the number at "/0" is not finite; send null or a string
    arrays and objects are nested 128 deep or deeper; flatten the document
    the value cannot be written as JSON: a map key is no string, integer, boolean or character
    "#);
}
