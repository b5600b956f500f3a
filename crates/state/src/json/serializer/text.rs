//! The places where only text may stand: keys of maps, and text that is JSON already. Everything else is refused.

use serde::Serialize;
use serde::ser::{self, Impossible};

use crate::json::JsonError;
use crate::json::parser::Parser;
use crate::json::writer::Writer;

/// Takes what may be a key, or carries JSON text, and nothing else.
pub(super) struct TextSerializer<'w> {
    writer: &'w mut Writer,
    is_json: bool,
}

impl<'w> TextSerializer<'w> {
    /// For the key of a map.
    pub(super) fn key(writer: &'w mut Writer) -> Self {
        Self {
            writer,
            is_json: false,
        }
    }

    /// For text that is JSON already.
    pub(super) fn json(writer: &'w mut Writer) -> Self {
        Self {
            writer,
            is_json: true,
        }
    }

    fn display(self, value: impl std::fmt::Display) -> Result<(), JsonError> {
        ser::Serializer::serialize_str(self, &value.to_string())
    }

    fn refused<T>() -> Result<T, JsonError> {
        let message = "a map key is no string, integer, boolean or character".to_owned();
        Err(JsonError::Unserializable { message })
    }
}

impl ser::Serializer for TextSerializer<'_> {
    type Ok = ();
    type Error = JsonError;
    type SerializeSeq = Impossible<(), JsonError>;
    type SerializeTuple = Impossible<(), JsonError>;
    type SerializeTupleStruct = Impossible<(), JsonError>;
    type SerializeTupleVariant = Impossible<(), JsonError>;
    type SerializeMap = Impossible<(), JsonError>;
    type SerializeStruct = Impossible<(), JsonError>;
    type SerializeStructVariant = Impossible<(), JsonError>;

    fn serialize_str(self, value: &str) -> Result<(), JsonError> {
        if self.is_json {
            return Parser::new(value, self.writer).document();
        }
        self.writer.string(value);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_bool(self, value: bool) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_i8(self, value: i8) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_i16(self, value: i16) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_i32(self, value: i32) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_i64(self, value: i64) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_i128(self, value: i128) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_u8(self, value: u8) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_u16(self, value: u16) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_u32(self, value: u32) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_u64(self, value: u64) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_u128(self, value: u128) -> Result<(), JsonError> {
        self.display(value)
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), JsonError> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_f32(self, _value: f32) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_f64(self, _value: f64) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_bytes(self, _value: &[u8]) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_none(self) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _value: &T) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_unit(self) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<(), JsonError> {
        Self::refused()
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Self::SerializeSeq, JsonError> {
        Self::refused()
    }

    fn serialize_tuple(self, _length: usize) -> Result<Self::SerializeTuple, JsonError> {
        Self::refused()
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleStruct, JsonError> {
        Self::refused()
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeTupleVariant, JsonError> {
        Self::refused()
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Self::SerializeMap, JsonError> {
        Self::refused()
    }

    fn serialize_struct(
        self,
        _name: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStruct, JsonError> {
        Self::refused()
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant, JsonError> {
        Self::refused()
    }
}
