use super::*;

fn check(text: &str, expected: &str) {
    let canonical = canonicalize(text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(canonical).unwrap(), expected);
}

#[test]
fn example_of_section_3_2_2() {
    check(
        r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#,
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
    );
}
