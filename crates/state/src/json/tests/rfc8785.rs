//! The vectors of RFC 8785, and those of the test data that it points to.

use super::check;
use crate::json::{JsonError, canonicalize, parse, to_canonical};

#[test]
fn numbers_of_appendix_b() {
    let rows: [(u64, &str); 24] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in rows {
        let number = f64::from_bits(bits);
        assert_eq!(
            String::from_utf8(to_canonical(&number).unwrap()).unwrap(),
            expected
        );
        check(expected, expected);
        let back = parse(expected.as_bytes()).unwrap().as_f64().unwrap();
        assert!(
            back.to_bits() == bits || number == 0.0,
            "{expected} came back as {back}"
        );
    }
    for bits in [0x7fff_ffff_ffff_ffff, 0x7ff0_0000_0000_0000] {
        assert!(matches!(
            to_canonical(&f64::from_bits(bits)),
            Err(JsonError::NumberNotFinite { .. })
        ));
    }
}

#[test]
fn example_of_sections_3_2_2_to_3_2_4() {
    let text = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    check(
        text,
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
    );
    let hexadecimal = "7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d 62 \
         65 72 73 22 3a 5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31 65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 \
         32 2c 31 65 2d 32 37 5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30 30 66 5c 6e 41 27 42 5c 22 5c 5c \
         5c 5c 5c 22 2f 22 7d";
    let bytes: Vec<u8> = hexadecimal
        .split(' ')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    assert_eq!(canonicalize(text.as_bytes()).unwrap(), bytes);
}

#[test]
fn key_order_of_section_3_2_3() {
    check(
        r#"{
            "\u20ac": "Euro Sign",
            "\r": "Carriage Return",
            "\ufb33": "Hebrew Letter Dalet With Dagesh",
            "1": "One",
            "\ud83d\ude00": "Emoji: Grinning Face",
            "\u0080": "Control",
            "\u00f6": "Latin Small Letter O With Diaeresis"
        }"#,
        concat!(
            r#"{"\r":"Carriage Return","1":"One",""#,
            "\u{80}",
            r#"":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","#,
            "\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        ),
    );
}

#[test]
fn files_of_the_test_data() {
    // weird.json
    check(
        r#"{
            "\u20ac": "Euro Sign",
            "\r": "Carriage Return",
            "\u000a": "Newline",
            "1": "One",
            "\u0080": "Control\u007f",
            "\ud83d\ude02": "Smiley",
            "\u00f6": "Latin Small Letter O With Diaeresis",
            "\ufb33": "Hebrew Letter Dalet With Dagesh",
            "</script>": "Browser Challenge"
        }"#,
        concat!(
            r#"{"\n":"Newline","\r":"Carriage Return","1":"One","</script>":"Browser Challenge","#,
            "\"\u{80}\":\"Control\u{7f}\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",",
            "\"😂\":\"Smiley\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        ),
    );
    // structures.json
    check(
        r#"{
            "1": {"f": {"f": "hi","F": 5} ,"\n": 56.0},
            "10": { },
            "": "empty",
            "a": { },
            "111": [ {"e": "yes","E": "no" } ],
            "A": { }
        }"#,
        r#"{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}"#,
    );
    // arrays.json, french.json, unicode.json
    check(
        r#"[ 56, { "d": true, "10": null, "1": [ ] } ]"#,
        r#"[56,{"1":[],"10":null,"d":true}]"#,
    );
    check(
        r#"{"peach":1,"péché":2,"pêche":3,"sin":4}"#,
        r#"{"peach":1,"péché":2,"pêche":3,"sin":4}"#,
    );
    check(
        r#"{"Unnormalized Unicode":"A\u030a"}"#,
        "{\"Unnormalized Unicode\":\"A\u{30a}\"}",
    );
}
