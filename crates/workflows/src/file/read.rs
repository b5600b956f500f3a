//! Gives a tree to serde and keeps the place of every mistake.
//!
//! [`Marked`] carries the index of its value in the tree out of serde, for what is checked later.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::Number;

use super::error::{Problem, did_you_mean};
use super::tree::{Content, Key, NodeIndex, Position, Tree};

/// The name by which [`Marked`] asks the deserializer for its index.
const MARK: &str = "$holdpoint::Marked";

/// A value with its index in the tree.
#[derive(Debug, Clone)]
pub(super) struct Marked<T> {
    pub(super) index: NodeIndex,
    pub(super) value: T,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Marked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MarkedVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MarkedVisitor<T> {
            type Value = Marked<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a workflow file")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Marked<T>, A::Error> {
                let missing = || de::Error::custom("BUG: only a workflow file has marked values");
                let index = parts.next_element::<u64>()?.ok_or_else(missing)?;
                let value = parts.next_element()?.ok_or_else(missing)?;
                Ok(Marked {
                    index: usize::try_from(index).unwrap_or(usize::MAX),
                    value,
                })
            }
        }
        deserializer.deserialize_newtype_struct(MARK, MarkedVisitor(std::marker::PhantomData))
    }
}

/// A mistake and, once it is known, its place.
#[derive(Debug)]
pub(super) struct ReadError {
    at: Option<Position>,
    path: Vec<String>,
    message: Message,
}

#[derive(Debug)]
enum Message {
    Text(String),
    UnknownField(Box<Problem>),
}

impl ReadError {
    /// The innermost value that a mistake passes on its way out is where it is.
    fn located(mut self, at: Position) -> Self {
        self.at.get_or_insert(at);
        self
    }

    /// The mistake is in this member or item of the value around it.
    fn under(mut self, step: &str) -> Self {
        self.path.insert(0, step.to_owned());
        self
    }

    /// Place and problem; `code` says the check for the path of the place.
    pub(super) fn into_problem(
        self,
        code: impl FnOnce(&[String]) -> &'static str,
    ) -> (Position, Problem) {
        let code = code(&self.path);
        let at = self.at.unwrap_or(Position { line: 1, column: 1 });
        match self.message {
            Message::Text(message) => (at, Problem::Shape { code, message }),
            Message::UnknownField(problem) => (at, *problem),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Message::Text(text) => f.write_str(text),
            Message::UnknownField(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            at: None,
            path: Vec::new(),
            message: Message::Text(message.to_string()),
        }
    }

    fn missing_field(field: &'static str) -> Self {
        let error = Self::custom(format_args!("{field} is missing"));
        // The place is that of the object, the check is that of the member.
        error.under(field)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = match expected.to_string().as_str() {
            "a sequence" => "a list".to_owned(),
            "u32" => "a whole number from 0 to 4294967295".to_owned(),
            other => other.to_owned(),
        };
        Self::custom(format_args!("expected {expected}, found {}", words(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(given: &str, expected: &'static [&'static str]) -> Self {
        let allowed: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        let meant = did_you_mean(given, &allowed)
            .map_or_else(String::new, |meant| format!(", did you mean {meant:?}?"));
        Self::custom(format_args!(
            "unknown word {given:?}{meant}; allowed are {}",
            allowed.join(", ")
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let allowed: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        let meant = did_you_mean(field, &allowed);
        Self {
            at: None,
            path: Vec::new(),
            message: Message::UnknownField(Box::new(Problem::UnknownField {
                field: field.to_owned(),
                allowed,
                meant,
            })),
        }
    }
}

/// A value that does not fit, in the words of the file.
fn words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        Unexpected::Bool(flag) => flag.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => number.to_string(),
        Unexpected::Str(text) => {
            format!("the text {:?}", text.chars().take(40).collect::<String>())
        }
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        other => other.to_string(),
    }
}

/// Reads the whole document.
pub(super) fn document<'de, T: Deserialize<'de>>(tree: &'de Tree) -> Result<T, ReadError> {
    let root = tree
        .root()
        .ok_or_else(|| de::Error::custom("the file is empty"))?;
    T::deserialize(Reader { tree, index: root })
}

/// Reads one value of the document.
pub(super) fn value<'de, T: Deserialize<'de>>(
    tree: &'de Tree,
    index: NodeIndex,
) -> Result<T, ReadError> {
    T::deserialize(Reader { tree, index })
}

#[derive(Clone, Copy)]
struct Reader<'de> {
    tree: &'de Tree,
    index: NodeIndex,
}

impl<'de> Reader<'de> {
    fn parts(self) -> Result<(Position, &'de Content), ReadError> {
        let node = self.tree.node(self.index);
        node.map(|node| (node.at, &node.content))
            .ok_or_else(|| de::Error::custom("BUG: the tree has no such value"))
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let (at, content) = self.parts()?;
        let tree = self.tree;
        let result = match content {
            Content::Null => visitor.visit_unit(),
            Content::Bool(flag) => visitor.visit_bool(*flag),
            Content::Number(number) => visit_number(number, visitor),
            Content::Text(text) => visitor.visit_borrowed_str(text),
            Content::List(items) => {
                let mut items = items.iter();
                visitor.visit_seq(Items {
                    tree,
                    items: &mut items,
                })
            }
            Content::Map(fields) => {
                let mut fields = fields.iter();
                visitor.visit_map(Fields {
                    tree,
                    left: &mut fields,
                    value: None,
                })
            }
        };
        result.map_err(|error| error.located(at))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let (at, content) = self.parts()?;
        match content {
            Content::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
        .map_err(|error: ReadError| error.located(at))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let (at, _) = self.parts()?;
        if name == MARK {
            visitor.visit_seq(Mark {
                reader: self,
                part: 0,
            })
        } else {
            visitor.visit_newtype_struct(self)
        }
        .map_err(|error| error.located(at))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let (at, content) = self.parts()?;
        match content {
            Content::Text(text) => {
                let text: StringDeserializer<ReadError> = text.clone().into_deserializer();
                visitor.visit_enum(text)
            }
            other => Err(de::Error::custom(format_args!(
                "expected a text, found {}",
                other.kind()
            ))),
        }
        .map_err(|error| error.located(at))
    }

    /// Serde would read a struct from a list as well; a workflow file has names for everything.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.parts()? {
            (at, Content::List(_)) => {
                let error: ReadError = de::Error::invalid_type(Unexpected::Seq, &visitor);
                Err(error.located(at))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

fn visit_number<'de, V: Visitor<'de>>(number: &Number, visitor: V) -> Result<V::Value, ReadError> {
    if let Some(integer) = number.as_u64() {
        visitor.visit_u64(integer)
    } else if let Some(integer) = number.as_i64() {
        visitor.visit_i64(integer)
    } else {
        visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN))
    }
}

struct Items<'i, 'de> {
    tree: &'de Tree,
    items: &'i mut std::slice::Iter<'de, NodeIndex>,
}

impl<'de> de::SeqAccess<'de> for Items<'_, 'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some(index) = self.items.next() else {
            return Ok(None);
        };
        let reader = Reader {
            tree: self.tree,
            index: *index,
        };
        seed.deserialize(reader)
            .map(Some)
            .map_err(|error| error.under("*"))
    }
}

struct Fields<'i, 'de> {
    tree: &'de Tree,
    left: &'i mut std::slice::Iter<'de, (Key, NodeIndex)>,
    value: Option<&'de (Key, NodeIndex)>,
}

impl<'de> de::MapAccess<'de> for Fields<'_, 'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        let tree = self.tree;
        let Some(field) = self.left.find(|(_, index)| !tree.is_hidden(*index)) else {
            return Ok(None);
        };
        self.value = Some(field);
        let (key, _) = field;
        let name: StringDeserializer<ReadError> = key.name.clone().into_deserializer();
        seed.deserialize(name)
            .map(Some)
            .map_err(|error| error.located(key.at))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        let (key, index) = self
            .value
            .take()
            .ok_or_else(|| <ReadError as de::Error>::custom("BUG: no key"))?;
        let reader = Reader {
            tree: self.tree,
            index: *index,
        };
        seed.deserialize(reader)
            .map_err(|error| error.under(&key.name))
    }
}

struct Mark<'de> {
    reader: Reader<'de>,
    part: u8,
}

impl<'de> de::SeqAccess<'de> for Mark<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        self.part += 1;
        match self.part {
            1 => seed
                .deserialize((self.reader.index as u64).into_deserializer())
                .map(Some),
            2 => seed.deserialize(self.reader).map(Some),
            _ => Ok(None),
        }
    }
}
