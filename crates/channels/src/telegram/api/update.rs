//! What an update says, read field by field: a value that is unknown here must not cost an answer.
//!
//! Not here: who may answer, and what a token means.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::protocol::INTEGER_MAX;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Grows from update to update.
    pub id: u64,
    /// What happened.
    pub event: Event,
}

/// What happened, as far as it can be an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Somebody pressed a button.
    Callback(Callback),
    /// Somebody replied to a message with a text.
    Reply(Reply),
    /// Anything else, and what can't be read.
    Other,
}

/// A pressed button. Users and chats are decimal text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// The provider's name of the press.
    pub id: String,
    /// Who pressed.
    pub user: String,
    /// In which chat.
    pub chat: String,
    /// What the button carries.
    pub data: String,
}

/// A text in reply to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Who wrote.
    pub user: String,
    /// In which chat.
    pub chat: String,
    /// The message within the chat.
    pub message: u64,
    /// The text, exactly as it was written.
    pub text: String,
    /// The message that it replies to.
    pub to: Repliable,
}

/// A message that was replied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repliable {
    /// Who sent it.
    pub sender: i64,
    /// Whether that is a bot.
    pub is_bot: bool,
    /// Its text.
    pub text: String,
}

#[derive(Deserialize)]
struct Numbered {
    update_id: u64,
}

impl Update {
    /// Reads one update; none if it has no number, and then nothing can be done with it.
    pub(super) fn read(raw: &RawValue) -> Option<Self> {
        let value: Option<Value> = serde_json::from_str(raw.get()).ok();
        let id = match &value {
            Some(value) => value.get("update_id")?.as_u64()?,
            // Parts of it are no JSON text, for example half of a surrogate pair. Its number may still be readable.
            None => serde_json::from_str::<Numbered>(raw.get()).ok()?.update_id,
        };
        let event = value.as_ref().and_then(event).unwrap_or(Event::Other);
        // The cursor behind it must be a number that every reader carries.
        (id < INTEGER_MAX).then_some(Self { id, event })
    }
}

fn event(value: &Value) -> Option<Event> {
    if let Some(pressed) = value.get("callback_query") {
        return Some(Event::Callback(Callback {
            id: text(pressed, "/id")?,
            user: number(pressed, "/from/id")?.to_string(),
            chat: number(pressed, "/message/chat/id")?.to_string(),
            data: text(pressed, "/data")?,
        }));
    }
    let written = value.get("message")?;
    Some(Event::Reply(Reply {
        user: number(written, "/from/id")?.to_string(),
        chat: number(written, "/chat/id")?.to_string(),
        message: written.get("message_id")?.as_u64()?,
        text: text(written, "/text")?,
        to: Repliable {
            sender: number(written, "/reply_to_message/from/id")?,
            is_bot: written.pointer("/reply_to_message/from/is_bot")? == &Value::Bool(true),
            text: text(written, "/reply_to_message/text")?,
        },
    }))
}

fn text(value: &Value, path: &str) -> Option<String> {
    value.pointer(path)?.as_str().map(str::to_owned)
}

fn number(value: &Value, path: &str) -> Option<i64> {
    value.pointer(path)?.as_i64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Option<Update> {
        Update::read(serde_json::from_str::<&RawValue>(text).unwrap())
    }

    #[test]
    fn an_update_is_read_field_by_field() {
        let pressed = json!({
            "update_id": 7,
            "callback_query": {
                "id": "cb-1", "from": {"id": 100, "is_bot": false, "first_name": "A"},
                "message": {"message_id": 5, "chat": {"id": -100_200, "type": "unheard-of"}, "date": 0},
                "chat_instance": "1", "data": "pw:x", "a field of tomorrow": {"deep": [1, 2.5]},
            },
        });
        assert_eq!(
            read(&pressed.to_string()).unwrap(),
            Update {
                id: 7,
                event: Event::Callback(Callback {
                    id: "cb-1".to_owned(),
                    user: "100".to_owned(),
                    chat: "-100200".to_owned(),
                    data: "pw:x".to_owned(),
                }),
            }
        );
    }

    #[test]
    fn channel_24_a_press_without_its_message_is_nothing() {
        let pressed = json!({"update_id": 7, "callback_query": {"id": "cb-1", "from": {"id": 100}, "data": "pw:x"}});
        assert_eq!(read(&pressed.to_string()).unwrap().event, Event::Other);
    }

    #[test]
    fn what_can_not_be_read_still_has_its_number() {
        for (text, expected) in [
            (r#"{"update_id":7,"message":{"text":"\ud800"}}"#, Some(7)),
            (r#"{"update_id":7,"message":[]}"#, Some(7)),
            (r#"{"update_id":7}"#, Some(7)),
            (r#"{"update_id":-7}"#, None),
            (r#"{"update_id":7.5}"#, None),
            (r#"{"update_id":"7"}"#, None),
            (r#"{"update_id":9007199254740991}"#, None),
            (r#"{"message":{}}"#, None),
            ("[]", None),
            ("null", None),
        ] {
            let update = read(text);
            assert_eq!(update.as_ref().map(|update| update.id), expected, "{text}");
            assert!(update.is_none_or(|update| update.event == Event::Other));
        }
    }

    /// Any JSON, with the names of the Bot API among its keys.
    pub(crate) fn hostile() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            Just(Value::from("Reply token: x")),
        ];
        leaf.prop_recursive(5, 48, 8, |inner| {
            let key = proptest::sample::select(vec![
                "update_id",
                "callback_query",
                "message",
                "reply_to_message",
                "from",
                "chat",
                "id",
                "data",
                "text",
                "message_id",
                "is_bot",
                "entities",
            ]);
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(key, inner, 0..8).prop_map(|fields| {
                    Value::Object(
                        fields
                            .into_iter()
                            .map(|(key, value)| (key.to_owned(), value))
                            .collect(),
                    )
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_update_breaks_the_reader(value in hostile(), id in any::<u64>()) {
            let text = value.to_string();
            if let Some(update) = read(&text) {
                prop_assert_eq!(Some(update.id), value.get("update_id").and_then(Value::as_u64));
            }
            let mut numbered = value;
            if let Some(fields) = numbered.as_object_mut() {
                fields.insert("update_id".to_owned(), id.into());
                prop_assert_eq!(read(&numbered.to_string()).map(|update| update.id), (id < INTEGER_MAX).then_some(id));
            }
        }
    }
}
