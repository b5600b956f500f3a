use proptest::prelude::*;

use super::*;

/// Case 98: every family of sequences that a terminal obeys, and what hides in plain text.
#[test]
fn case_098_text_that_drives_the_terminal() {
    let table = [
        ("window title", "\u{1b}]0;owned\u{7}"),
        ("clipboard", "\u{1b}]52;c;ZWNobw==\u{1b}\\"),
        ("link", "\u{1b}]8;;http://x\u{1b}\\y\u{1b}]8;;\u{1b}\\"),
        ("cursor and colour", "\u{1b}[2J\u{1b}[1;1H\u{1b}[31m"),
        ("reset", "\u{1b}c"),
        ("device query", "\u{1b}[c\u{1b}[6n\u{1b}P+q\u{1b}\\"),
        ("8-bit forms", "\u{9b}2J\u{9d}0;x\u{9c}\u{90}q"),
        ("unterminated", "\u{1b}]0;never"),
        ("lone escape", "\u{1b}"),
        ("backspace over", "safe\u{8}\u{8}\u{8}\u{8}evil"),
        ("carriage return", "safe\revil"),
        ("line feed", "one\ntwo"),
        ("tab", "a\tb"),
        ("delete and null", "\u{7f}\0"),
        ("right to left", "gpj.\u{202e}exe\u{2069}"),
        ("marks", "\u{200e}a\u{200f}\u{61c}"),
        ("zero width", "pass\u{200b}word\u{feff}\u{2060}"),
        ("separators", "a\u{2028}b\u{2029}c"),
        ("tags", "x\u{e0041}\u{e0042}"),
        ("soft hyphen", "ad\u{ad}min"),
        ("fillers", "\u{3164}\u{115f}\u{ffa0}"),
        ("joiner in ASCII", "a\u{200d}b\u{fe0f}"),
    ];
    let lines: Vec<String> = table
        .iter()
        .map(|(name, text)| format!("{name}: {}", Safe::line(text)))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

/// Case 100: characters whose cells are not what their bytes say.
#[test]
fn case_100_wide_joined_and_zero_width_characters() {
    let table = [
        "abc",
        "日本語テキスト",
        "ﾊﾟﾋﾟﾌﾟ",
        "e\u{301}e\u{301}e\u{301}",
        "👨‍👩‍👧‍👦👩‍🚀",
        "🇩🇪🇫🇷",
        "👍🏽☺\u{fe0f}",
        "नमस्ते",
        "می\u{200c}خواهم",
        "각각",
        "Z\u{351}\u{36b}\u{343}\u{36a}\u{302}\u{36b}\u{33d}\u{34f}\u{334}\u{319}\u{324}\u{31e}\u{349}\u{35a}\u{32f}a",
    ];
    let lines: Vec<String> = table
        .iter()
        .map(|text| {
            let safe = Safe::line(text);
            let cuts: Vec<String> = (0..=4)
                .map(|width| format!("{}|", safe.fill(width)))
                .collect();
            format!("{} ({}): {}", safe, safe.width(), cuts.join(" "))
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn lines_are_broken_where_words_end() {
    let check = |text: &str, width: usize| {
        Safe::wrapped(text, width)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("|")
    };
    let table = [
        check("one two three", 8),
        check("one two three", 7),
        check("abcdefghij", 4),
        check("日本語", 3),
        check("日本語", 1),
        check("a\r\nb\n\nc\n", 9),
        check("", 5),
        check("x y", 0),
    ];
    insta::assert_snapshot!(table.join("\n"));
}

/// Text as hostile as it gets: any character, with those that matter often.
fn hostile() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        any::<char>(),
        (0_u32..0xa0).prop_filter_map("a character", char::from_u32),
        (0x2000_u32..0x2070).prop_filter_map("a character", char::from_u32),
        (0x300_u32..0x370).prop_filter_map("a character", char::from_u32),
        prop::sample::select(vec![
            '👩', '\u{200d}', '🚀', '\u{fe0f}', '🏽', '🇩', 'ﾟ', '日', ' ', 'a'
        ]),
    ];
    prop::collection::vec(character, 0..40).prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn nothing_that_steers_survives(text in hostile()) {
        for line in Safe::lines(&text).iter().chain([&Safe::line(&text)]) {
            prop_assert!(!line.as_str().chars().any(|c| c.is_control() || is_unseen(c)), "{line:?}");
        }
    }

    #[test]
    fn no_line_is_wider_than_its_area(text in hostile(), width in 0_usize..30) {
        let line = Safe::line(&text);
        prop_assert!(line.cut(width).width() <= width);
        prop_assert_eq!(line.fill(width).width(), width);
        for wrapped in Safe::wrapped(&text, width) {
            prop_assert!(wrapped.width() <= width, "{:?}", wrapped);
        }
    }

    #[test]
    fn making_safe_twice_changes_nothing(text in hostile()) {
        let once = Safe::line(&text);
        prop_assert_eq!(Safe::line(once.as_str()), once.clone());
    }
}
