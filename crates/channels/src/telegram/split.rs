//! How a document is cut into Telegram messages: as the decisions domain cuts it, which refuses a request that takes too many.
//!
//! Not here: the cutting, where the text comes from, and sending it.

pub use holdpoint_decisions::document::parts::{
    CAPACITY_UNITS, MESSAGE_UNITS_MAX, PARTS_MAX, Part, TooManyParts, join, split, units,
    without_controls,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FINGERPRINT: &str = "bb93c16b02b4";

    fn split_one(text: &str) -> Vec<Part> {
        split([text], FINGERPRINT).unwrap()
    }

    /// What must hold of every result, whatever the text.
    fn check(segments: &[String]) -> Result<usize, TooManyParts> {
        let parts = split(segments, FINGERPRINT)?;
        let clean: Vec<_> = segments
            .iter()
            .map(|segment| without_controls(segment))
            .filter(|segment| !segment.is_empty())
            .collect();
        assert_eq!(join(&parts), clean.join("\n\n"));
        for (index, part) in parts.iter().enumerate() {
            let header = format!(
                "Part {}/{}\nDecision {FINGERPRINT}\n\n",
                index + 1,
                parts.len()
            );
            assert!(part.text.starts_with(&header));
            assert_eq!(part.text.strip_prefix(&header).unwrap(), part.body());
            let sent: Vec<u16> = part.text.encode_utf16().collect();
            assert!(sent.len() <= MESSAGE_UNITS_MAX);
            // A lone half of a pair can't be in a `str`; it would show as a replacement that the content does not have.
            assert_eq!(String::from_utf16(&sent).unwrap(), part.text);
            assert!(parts.len() == 1 || !part.body().is_empty());
        }
        Ok(parts.len())
    }

    #[test]
    fn the_longest_header_and_the_capacity_fill_a_message() {
        let header = format!("Part 20/20\nDecision {FINGERPRINT}\n\n");
        assert_eq!(units(&header) + CAPACITY_UNITS, MESSAGE_UNITS_MAX);
    }

    #[test]
    fn channel_18_a_document_of_the_capacity_is_one_part_and_one_unit_more_are_two() {
        let full = "x".repeat(CAPACITY_UNITS);
        let one = split_one(&full);
        assert_eq!(one.len(), 1);
        assert!(
            one[0]
                .text
                .starts_with("Part 1/1\nDecision bb93c16b02b4\n\nx")
        );

        let two = split_one(&format!("{full}y"));
        let heads: Vec<_> = two
            .iter()
            .map(|part| part.text.lines().take(3).collect::<Vec<_>>())
            .collect();
        assert_eq!(
            heads,
            [
                ["Part 1/2", "Decision bb93c16b02b4", ""],
                ["Part 2/2", "Decision bb93c16b02b4", ""]
            ]
        );
        assert_eq!([two[0].body(), two[1].body()], [full.as_str(), "y"]);

        // The same with a pair across the border: it goes over whole.
        let pair = split_one(&format!("{}🚦", "x".repeat(CAPACITY_UNITS - 1)));
        assert_eq!(pair[1].body(), "🚦");
    }

    #[test]
    fn channel_19_five_thousand_emoji_are_all_there_and_no_pair_is_split() {
        let text = "🚦".repeat(5_000);
        let parts = split_one(&text);
        assert_eq!(parts.len(), 3);
        assert_eq!(join(&parts), text);
        for part in &parts {
            assert!(units(&part.text) <= MESSAGE_UNITS_MAX);
            assert!(part.body().chars().all(|c| c == '🚦'));
        }
    }

    #[test]
    fn channel_20_a_document_of_twenty_parts_passes_and_of_twenty_one_does_not() {
        let full = "x".repeat(CAPACITY_UNITS);
        let segments = |count: usize| vec![full.clone(); count];
        assert_eq!(check(&segments(PARTS_MAX)), Ok(PARTS_MAX));
        let refused = check(&segments(PARTS_MAX + 1));
        assert_eq!(refused, Err(TooManyParts { observed: 21 }));
        insta::assert_snapshot!(
            refused.unwrap_err(),
            @"the document needs 21 messages; the limit is 20"
        );
    }

    #[test]
    fn channel_21_markup_commands_and_mentions_stay_text() {
        let text = "<b> *x* /start @name &amp; [a](http://b)";
        assert_eq!(split_one(text)[0].body(), text);
    }

    #[test]
    fn a_long_segment_is_cut_behind_the_last_line_that_fits() {
        let lines = "0123456789\n".repeat(600);
        let parts = split_one(&lines);
        assert_eq!(parts.len(), 2);
        assert_eq!(units(parts[0].body()), CAPACITY_UNITS / 11 * 11);
        assert!(parts[0].body().ends_with("9\n") && parts[1].body().starts_with('0'));
        // What is left takes the next segment.
        let parts = split([lines.as_str(), "next"], FINGERPRINT).unwrap();
        assert_eq!(parts.len(), 2);
        assert!(parts[1].body().ends_with("9\n\n\nnext"));
    }

    #[test]
    fn a_segment_that_does_not_fit_starts_a_part_of_its_own() {
        let half = "x".repeat(CAPACITY_UNITS / 2);
        assert_eq!(check(&[half.clone(), half.clone()]), Ok(2));
        let just = "y".repeat(CAPACITY_UNITS - units(&half) - 2);
        assert_eq!(check(&[half.clone(), just.clone()]), Ok(1));
        assert_eq!(check(&[half, just + "y"]), Ok(2));
    }

    #[test]
    fn control_characters_are_shown_as_replaced() {
        let parts = split_one("a\u{0}b\rc\td\ne\u{7f}f\u{85}g\u{1b}[2J");
        assert_eq!(
            parts[0].body(),
            "a\u{fffd}b\u{fffd}c\td\ne\u{fffd}f\u{fffd}g\u{fffd}[2J"
        );
    }

    #[test]
    fn a_document_without_text_is_one_headed_part() {
        assert_eq!(check(&[]), Ok(1));
        assert_eq!(check(&[String::new(), String::new()]), Ok(1));
    }

    /// Texts as people and machines write them: words, long lines, emoji, combining marks, CRLF, controls.
    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[ -~]{0,80}",
            2 => "(🚦|👩‍👩‍👧|é|e\u{301}|漢|\u{10ffff}|ß){1,60}",
            2 => Just("\n".to_owned()),
            1 => Just("\r\n".to_owned()),
            1 => Just("\n\n".to_owned()),
            1 => any::<String>(),
            1 => (1_usize..6_000).prop_map(|count| "🚦x".repeat(count / 3)),
            1 => (1_usize..9_000).prop_map(|count| "x".repeat(count)),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases()))]

        #[test]
        fn joining_the_bodies_gives_the_content_back(segments in proptest::collection::vec(texts(), 0..8)) {
            let total: usize = segments.iter().map(|segment| units(segment) + "\n\n".len()).sum();
            match check(&segments) {
                Ok(count) => prop_assert!(count <= PARTS_MAX),
                Err(TooManyParts { observed }) => prop_assert!(PARTS_MAX < observed && observed <= total),
            }
        }
    }

    fn cases() -> u32 {
        std::env::var("HOLDPOINT_SPLIT_CASES")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(500)
    }
}
