//! Properties over generated documents, and agreement with two independent readers and writers.

use std::fmt::Write as _;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Number, Value};

use crate::json::{JsonError, canonical, canonicalize, is_canonical, parse, to_canonical};

/// Text with what makes trouble: escapes, and characters on both sides of the surrogates.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c!# \"\\\\/\n\u{1}\u{7f}é\u{e000}\u{ff20}\u{ffff}\u{10000}😀]{0,5}",
        "[a-z_]{1,12}",
        any::<String>()
    ]
}

/// Numbers that have a canonical form.
fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        (-(1_i64 << 53)..=1 << 53).prop_map(Number::from),
        (-1000_i64..1000).prop_map(Number::from),
        any::<f64>().prop_filter_map("finite", Number::from_f64),
        (-1e6..1e6).prop_filter_map("finite", Number::from_f64),
    ]
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(Value::Number),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            btree_map(text(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes `value` in one of its many other forms, by `choices`: white space, escapes, order of members.
fn write_noisily(value: &Value, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    let mut choose = |count: u8| choices.next().unwrap_or(0) % count;
    out.push_str(["", " ", "\n\t", "\r\n  "][usize::from(choose(4))]);
    match value {
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
        Value::Number(number) => match number.as_i64() {
            Some(0) => out.push_str(["0", "-0", "0.0", "-0e7"][usize::from(choose(4))]),
            Some(integer) => {
                out.push_str(&integer.to_string());
                out.push_str(["", ".0", "e0", "E+00"][usize::from(choose(4))]);
            }
            None => match choose(2) {
                0 => out.push_str(&number.to_string()),
                _ => write!(out, "{:e}", number.as_f64().unwrap()).unwrap(),
            },
        },
        Value::String(string) => write_string_noisily(string, choices, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write_noisily(item, choices, out);
            }
            out.push_str("\n]");
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            for index in (1..members.len()).rev() {
                members.swap(index, usize::from(choose(u8::try_from(index + 1).unwrap())));
            }
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if index == 0 { " " } else { " , " });
                write_string_noisily(key, choices, out);
                out.push_str(" :");
                write_noisily(member, choices, out);
            }
            out.push('}');
        }
    }
    out.push_str(["", " "][usize::from(choices.next().unwrap_or(0) % 2)]);
}

fn write_string_noisily(string: &str, choices: &mut impl Iterator<Item = u8>, out: &mut String) {
    out.push('"');
    for character in string.chars() {
        let must_escape = character < ' ' || matches!(character, '"' | '\\');
        match choices.next().unwrap_or(0) % 4 {
            0 | 1 if !must_escape => out.push(character),
            2 if character == '/' => out.push_str("\\/"),
            choice => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    if choice == 3 {
                        write!(out, "\\u{unit:04X}").unwrap();
                    } else {
                        write!(out, "\\u{unit:04x}").unwrap();
                    }
                }
            }
        }
    }
    out.push('"');
}

/// The digits of an integer in canonical form, written out.
fn written_out(canonical: &str) -> String {
    let Some((mantissa, exponent)) = canonical.split_once("e+") else {
        return canonical.to_owned();
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    format!(
        "{whole}{fraction:0<width$}",
        width = exponent.parse().unwrap()
    )
}

proptest! {
    #[test]
    fn every_form_of_a_document_has_one_canonical_form(value in document(), choices in vec(any::<u8>(), 0..256)) {
        let expected = canonical(&value).unwrap();
        let mut noisy = String::new();
        write_noisily(&value, &mut choices.into_iter().cycle().take(10_000), &mut noisy);
        let found = canonicalize(noisy.as_bytes()).unwrap();
        prop_assert_eq!(String::from_utf8(found).unwrap(), String::from_utf8(expected.clone()).unwrap());
        prop_assert_eq!(parse(noisy.as_bytes()).unwrap(), parse(&expected).unwrap());
    }

    #[test]
    fn the_canonical_form_is_a_fixed_point(value in document()) {
        let once = canonical(&value).unwrap();
        prop_assert_eq!(&canonicalize(&once).unwrap(), &once);
        prop_assert!(is_canonical(&once));
        // What is read back is the same document, also by the plain reader.
        let parsed = parse(&once).unwrap();
        prop_assert_eq!(&canonical(&parsed).unwrap(), &once);
        prop_assert_eq!(serde_json::from_slice::<Value>(&once).unwrap(), parsed);
    }

    #[test]
    fn the_independent_writer_agrees(value in document()) {
        let theirs = serde_json_canonicalizer::to_vec(&value).unwrap();
        prop_assert_eq!(String::from_utf8(canonical(&value).unwrap()), String::from_utf8(theirs));
    }

    #[test]
    fn keys_stand_in_the_order_of_their_code_units(keys in btree_map(text(), 0..9_u8, 0..40)) {
        let mut by_units: Vec<(&String, &u8)> = keys.iter().collect();
        by_units.sort_by_key(|(key, _)| key.encode_utf16().collect::<Vec<u16>>());
        let members: Vec<String> =
            by_units.into_iter().map(|(key, value)| format!("{}:{value}", serde_json::to_string(key).unwrap())).collect();
        let expected = format!("{{{}}}", members.join(","));
        prop_assert_eq!(String::from_utf8(to_canonical(&keys).unwrap()).unwrap(), expected);
    }

    #[test]
    fn doubles_come_back_bit_by_bit(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        prop_assume!(number.is_finite() && number != 0.0);
        let ours = to_canonical(&number).unwrap();
        prop_assert_eq!(&ours, &serde_json_canonicalizer::to_vec(&number).unwrap());
        prop_assert_eq!(parse(&ours).unwrap().as_f64().unwrap().to_bits(), bits);
    }

    #[test]
    fn integers_survive_or_are_refused(literal in "-?[1-9][0-9]{0,24}|[1-9][0-9]{0,3}0{12,24}") {
        let nearest: f64 = literal.parse().unwrap();
        let printed = String::from_utf8(to_canonical(&nearest).unwrap()).unwrap();
        let survives = written_out(&printed) == literal;
        match canonicalize(literal.as_bytes()) {
            Ok(found) => {
                prop_assert!(survives);
                prop_assert_eq!(String::from_utf8(found).unwrap(), printed);
            }
            Err(JsonError::NumberNotExact { .. }) => prop_assert!(!survives),
            Err(error) => prop_assert!(false, "{}", error),
        }
        if let Ok(integer) = literal.parse::<i128>() {
            prop_assert_eq!(to_canonical(&integer).is_ok(), survives);
        }
        if let Ok(integer) = literal.parse::<u64>() {
            prop_assert_eq!(to_canonical(&integer).is_ok(), survives);
        }
    }

    /// On text that is nearly JSON, the grammar is that of `serde_json`; only the documented refusals come on top.
    #[test]
    fn the_independent_reader_agrees_about_the_grammar(
        text in r#"([\[\]{},: \n]|"[ab]?"|"\\[u"n/]?|"|\\u00e9|-|0|12|\.5|[eE][+-]?|1e3|true|null|fals|é){0,10}"#
    ) {
        let theirs = serde_json::from_str::<Value>(&text);
        match canonicalize(text.as_bytes()) {
            Ok(ours) => {
                let theirs = theirs.unwrap();
                prop_assert_eq!(canonical(&theirs).unwrap(), ours);
            }
            Err(JsonError::DuplicateKey { .. } | JsonError::NumberNotExact { .. }) => {}
            Err(_) => prop_assert!(theirs.is_err(), "serde_json reads {text:?}"),
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(found) = canonicalize(&bytes) {
            prop_assert!(is_canonical(&found));
        }
    }
}
