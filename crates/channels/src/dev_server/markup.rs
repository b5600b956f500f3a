//! What the Bot API refuses in a text and in what stands below it.
//!
//! Not here: what is done with a message that passes.

use serde_json::Value;

/// How long a text may be, in UTF-16 code units.
const TEXT_UNITS_MAX: usize = 4_096;

/// How long the data of a button may be, in bytes.
const DATA_BYTES_MAX: usize = 64;

/// How many buttons a keyboard may have.
const BUTTONS_MAX: usize = 100;

/// The tags that the HTML style knows.
const TAGS: &[&str] = &[
    "b",
    "strong",
    "i",
    "em",
    "u",
    "ins",
    "s",
    "strike",
    "del",
    "span",
    "tg-spoiler",
    "a",
    "tg-emoji",
    "code",
    "pre",
    "blockquote",
];

/// What the `MarkdownV2` style wants escaped wherever it is no markup.
const RESERVED: &str = ">#+-=|{}.!";

/// A refusal, in the words of the Bot API.
pub(super) type Refused = String;

/// Checks a text and gives what is shown: the Bot API takes blanks off both ends.
pub(super) fn text(parameters: &Value) -> Result<String, Refused> {
    let text = match parameters.get("text") {
        Some(Value::String(text)) => text,
        Some(Value::Null) | None => return Err("message text is empty".to_owned()),
        Some(_) => return Err("text must be a String".to_owned()),
    };
    match parameters.get("parse_mode") {
        None | Some(Value::Null) => {}
        Some(Value::String(mode)) => entities(text, mode)?,
        Some(_) => return Err("parse_mode must be a String".to_owned()),
    }
    let shown = text.trim();
    if shown.is_empty() {
        return Err("message text is empty".to_owned());
    }
    let units = text.encode_utf16().count();
    if TEXT_UNITS_MAX < units {
        return Err("message is too long".to_owned());
    }
    if let Some(entities) = parameters.get("entities") {
        let within = |entity: &Value| {
            let number = |name: &str| entity.get(name).and_then(Value::as_u64);
            entity.get("type").is_some_and(Value::is_string)
                && matches!((number("offset"), number("length")), (Some(offset), Some(length))
                    if offset.checked_add(length).is_some_and(|end| end <= units as u64))
        };
        let all = entities.as_array().map(Vec::as_slice);
        if !all.is_some_and(|all| all.iter().all(within)) {
            return Err("can't parse entities: an entity is outside of the text".to_owned());
        }
    }
    Ok(shown.to_owned())
}

fn entities(text: &str, mode: &str) -> Result<(), Refused> {
    match mode.to_ascii_lowercase().as_str() {
        "html" => html(text),
        "markdownv2" => markdown_v2(text),
        "markdown" => {
            let open = |mark: char| text.chars().filter(|c| *c == mark).count() % 2 == 1;
            match ['*', '_', '`'].into_iter().find(|mark| open(*mark)) {
                Some(_) => Err("can't parse entities: Can't find end of the entity".to_owned()),
                None => Ok(()),
            }
        }
        _ => Err("unsupported parse_mode".to_owned()),
    }
}

fn html(text: &str) -> Result<(), Refused> {
    let mut open = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((tag, behind)) = after.split_once('>') else {
            return Err("can't parse entities: Unclosed start tag".to_owned());
        };
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name.trim()) {
                return Err("can't parse entities: Unexpected end tag".to_owned());
            }
            continue;
        }
        let name = tag.split_whitespace().next().unwrap_or_default();
        if !TAGS.contains(&name) {
            return Err(format!(
                "can't parse entities: Unsupported start tag \"{name}\""
            ));
        }
        open.push(name);
    }
    match open.pop() {
        Some(name) => Err(format!(
            "can't parse entities: Can't find end tag corresponding to start tag \"{name}\""
        )),
        None => Ok(()),
    }
}

fn markdown_v2(text: &str) -> Result<(), Refused> {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if RESERVED.contains(letter) {
            return Err(format!(
                "can't parse entities: Character '{letter}' is reserved and must be escaped with the preceding '\\'"
            ));
        }
    }
    Ok(())
}

/// What stands below a message.
pub(super) enum Below {
    Nothing,
    Keyboard(Value),
    ForceReply,
}

/// Checks what stands below a message. It may come as JSON within a text.
pub(super) fn below(parameters: &Value) -> Result<Below, Refused> {
    let parsed;
    let markup = match parameters.get("reply_markup") {
        None | Some(Value::Null) => return Ok(Below::Nothing),
        Some(Value::String(text)) => {
            let Ok(value) = serde_json::from_str::<Value>(text) else {
                return Err("can't parse reply keyboard markup JSON object".to_owned());
            };
            parsed = value;
            &parsed
        }
        Some(markup) => markup,
    };
    let Some(fields) = markup.as_object() else {
        return Err("object expected as reply markup".to_owned());
    };
    if let Some(rows) = fields.get("inline_keyboard") {
        keyboard(rows)?;
        let has_buttons = rows.as_array().is_some_and(|rows| {
            rows.iter()
                .any(|row| row.as_array().is_some_and(|row| !row.is_empty()))
        });
        return Ok(if has_buttons {
            Below::Keyboard(markup.clone())
        } else {
            Below::Nothing
        });
    }
    if fields.get("force_reply") == Some(&Value::Bool(true)) {
        return Ok(Below::ForceReply);
    }
    if fields.contains_key("keyboard") || fields.contains_key("remove_keyboard") {
        return Ok(Below::Nothing);
    }
    Err("reply markup is of no known kind".to_owned())
}

fn keyboard(rows: &Value) -> Result<(), Refused> {
    let expected = || {
        "field \"inline_keyboard\" of the InlineKeyboardMarkup should be an Array of Arrays"
            .to_owned()
    };
    let rows = rows.as_array().ok_or_else(expected)?;
    let mut count = 0;
    for row in rows {
        for button in row.as_array().ok_or_else(expected)? {
            count += 1;
            let Some(fields) = button.as_object() else {
                return Err("object expected as inline keyboard button".to_owned());
            };
            let text = fields
                .get("text")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if text.trim().is_empty() {
                return Err("text buttons are unallowed in the inline keyboard".to_owned());
            }
            match fields.get("callback_data").map(Value::as_str) {
                Some(Some(data)) if (1..=DATA_BYTES_MAX).contains(&data.len()) => {}
                Some(_) => return Err("BUTTON_DATA_INVALID".to_owned()),
                None if fields.len() == 2 => {}
                None => return Err("BUTTON_TYPE_INVALID".to_owned()),
            }
        }
    }
    if BUTTONS_MAX < count {
        return Err("reply markup is too long".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_refused_as_the_provider_refuses_them() {
        let mut table = String::new();
        for parameters in [
            json!({"text": "<b>*x*</b> /start @name"}),
            json!({"text": " \n kept  \n"}),
            json!({"text": " \n\t"}),
            json!({}),
            json!({"text": 7}),
            json!({"text": "🚦".repeat(2_048)}),
            json!({"text": "🚦".repeat(2_048) + "x"}),
            json!({"text": "a <b>bold</b> word", "parse_mode": "HTML"}),
            json!({"text": "a <c> d", "parse_mode": "HTML"}),
            json!({"text": "a <b> d", "parse_mode": "HTML"}),
            json!({"text": "1 < 2", "parse_mode": "HTML"}),
            json!({"text": "a.b", "parse_mode": "MarkdownV2"}),
            json!({"text": "a\\.b", "parse_mode": "MarkdownV2"}),
            json!({"text": "snake_case", "parse_mode": "Markdown"}),
            json!({"text": "x", "parse_mode": "BBCode"}),
            json!({"text": "xy", "entities": [{"type": "bold", "offset": 0, "length": 2}]}),
            json!({"text": "xy", "entities": [{"type": "bold", "offset": 1, "length": 2}]}),
        ] {
            let shown: String = parameters.to_string().chars().take(60).collect();
            let verdict = text(&parameters).map(|text| text.chars().take(24).collect::<String>());
            writeln!(table, "{shown} -> {verdict:?}").unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn keyboards_are_refused_as_the_provider_refuses_them() {
        let one = |button: Value| json!({"reply_markup": {"inline_keyboard": [[button]]}});
        let mut table = String::new();
        for parameters in [
            json!({}),
            one(json!({"text": "Go", "callback_data": "x".repeat(64)})),
            one(json!({"text": "Go", "callback_data": "x".repeat(65)})),
            one(json!({"text": "Go", "callback_data": ""})),
            one(json!({"text": "Go", "callback_data": 7})),
            one(json!({"text": "Go"})),
            one(json!({"text": " ", "callback_data": "x"})),
            one(json!("Go")),
            json!({"reply_markup": {"inline_keyboard": [{"text": "Go", "callback_data": "x"}]}}),
            json!({"reply_markup": {"inline_keyboard": []}}),
            json!({"reply_markup": {"force_reply": true}}),
            json!({"reply_markup": "{\"force_reply\":true}"}),
            json!({"reply_markup": "{"}),
            json!({"reply_markup": {}}),
            json!({"reply_markup": []}),
        ] {
            let shown: String = parameters.to_string().chars().take(60).collect();
            let verdict = match below(&parameters) {
                Ok(Below::Nothing) => "nothing".to_owned(),
                Ok(Below::Keyboard(_)) => "keyboard".to_owned(),
                Ok(Below::ForceReply) => "force reply".to_owned(),
                Err(refused) => format!("refused: {refused}"),
            };
            writeln!(table, "{shown} -> {verdict}").unwrap();
        }
        insta::assert_snapshot!(table);
    }
}
