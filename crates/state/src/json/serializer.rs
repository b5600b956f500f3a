//! Serde's data model on the writer, with the shapes that `serde_json` gives to Rust types.

mod text;

use serde::Serialize;
use serde::ser::{self, SerializeMap as _, SerializeSeq as _};

use self::text::TextSerializer;
use super::writer::{Object, Writer};
use super::{JsonError, number};

/// The struct names by which `serde_json` passes text that is JSON already.
const JSON_TEXT_NAMES: [&str; 2] = [
    "$serde_json::private::RawValue",
    "$serde_json::private::Number",
];

/// An array under construction; for a tuple variant, inside the object that names the variant.
pub(super) struct ArrayWriter<'w> {
    writer: &'w mut Writer,
    count: usize,
    variant: Option<Object>,
}

/// An object under construction; for a struct variant, inside the object that names the variant.
pub(super) struct ObjectWriter<'w> {
    writer: &'w mut Writer,
    object: Object,
    variant: Option<Object>,
}

/// A struct, or the one-field struct that carries JSON text.
pub(super) enum StructWriter<'w> {
    Object(ObjectWriter<'w>),
    JsonText(&'w mut Writer),
}

impl Writer {
    fn begin_variant(&mut self, variant: &str) -> Result<Object, JsonError> {
        let mut object = self.begin_object()?;
        self.begin_member(&mut object);
        self.string(variant);
        self.end_key(&mut object);
        Ok(object)
    }

    fn end_variant(&mut self, variant: Option<Object>) -> Result<(), JsonError> {
        match variant {
            Some(object) => {
                self.end_member(&object);
                self.end_object(&object)
            }
            None => Ok(()),
        }
    }

    /// `error` as seen from the object that names the variant, if there is one.
    fn under_variant(&self, variant: Option<&Object>, error: JsonError) -> JsonError {
        match variant {
            Some(object) => self.under_current(object, error),
            None => error,
        }
    }
}

impl<'w> ser::Serializer for &'w mut Writer {
    type Ok = ();
    type Error = JsonError;
    type SerializeSeq = ArrayWriter<'w>;
    type SerializeTuple = ArrayWriter<'w>;
    type SerializeTupleStruct = ArrayWriter<'w>;
    type SerializeTupleVariant = ArrayWriter<'w>;
    type SerializeMap = ObjectWriter<'w>;
    type SerializeStruct = StructWriter<'w>;
    type SerializeStructVariant = ObjectWriter<'w>;

    fn serialize_bool(self, value: bool) -> Result<(), JsonError> {
        self.out
            .extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result<(), JsonError> {
        self.serialize_i64(i64::from(value))
    }

    fn serialize_i16(self, value: i16) -> Result<(), JsonError> {
        self.serialize_i64(i64::from(value))
    }

    fn serialize_i32(self, value: i32) -> Result<(), JsonError> {
        self.serialize_i64(i64::from(value))
    }

    fn serialize_i64(self, value: i64) -> Result<(), JsonError> {
        number::write_integer(&mut self.out, value)
    }

    fn serialize_i128(self, value: i128) -> Result<(), JsonError> {
        number::write_integer(&mut self.out, value)
    }

    fn serialize_u8(self, value: u8) -> Result<(), JsonError> {
        self.serialize_u64(u64::from(value))
    }

    fn serialize_u16(self, value: u16) -> Result<(), JsonError> {
        self.serialize_u64(u64::from(value))
    }

    fn serialize_u32(self, value: u32) -> Result<(), JsonError> {
        self.serialize_u64(u64::from(value))
    }

    fn serialize_u64(self, value: u64) -> Result<(), JsonError> {
        number::write_integer(&mut self.out, value)
    }

    fn serialize_u128(self, value: u128) -> Result<(), JsonError> {
        number::write_integer(&mut self.out, value)
    }

    fn serialize_f32(self, value: f32) -> Result<(), JsonError> {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), JsonError> {
        number::write_double(&mut self.out, value)
    }

    fn serialize_char(self, value: char) -> Result<(), JsonError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), JsonError> {
        self.string(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), JsonError> {
        let mut array = self.serialize_seq(Some(value.len()))?;
        for byte in value {
            array.serialize_element(byte)?;
        }
        ser::SerializeSeq::end(array)
    }

    fn serialize_none(self) -> Result<(), JsonError> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), JsonError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), JsonError> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), JsonError> {
        self.serialize_unit()
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

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        let object = self.begin_variant(variant)?;
        if let Err(error) = value.serialize(&mut *self) {
            return Err(self.under_current(&object, error));
        }
        self.end_variant(Some(object))
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<ArrayWriter<'w>, JsonError> {
        self.begin_array()?;
        Ok(ArrayWriter {
            writer: self,
            count: 0,
            variant: None,
        })
    }

    fn serialize_tuple(self, length: usize) -> Result<ArrayWriter<'w>, JsonError> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        length: usize,
    ) -> Result<ArrayWriter<'w>, JsonError> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<ArrayWriter<'w>, JsonError> {
        let variant = self.begin_variant(variant)?;
        self.begin_array()?;
        Ok(ArrayWriter {
            writer: self,
            count: 0,
            variant: Some(variant),
        })
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<ObjectWriter<'w>, JsonError> {
        let object = self.begin_object()?;
        Ok(ObjectWriter {
            writer: self,
            object,
            variant: None,
        })
    }

    fn serialize_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<StructWriter<'w>, JsonError> {
        if JSON_TEXT_NAMES.contains(&name) {
            return Ok(StructWriter::JsonText(self));
        }
        self.serialize_map(Some(length)).map(StructWriter::Object)
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<ObjectWriter<'w>, JsonError> {
        let variant = self.begin_variant(variant)?;
        let object = self.begin_object()?;
        Ok(ObjectWriter {
            writer: self,
            object,
            variant: Some(variant),
        })
    }
}

impl ser::SerializeSeq for ArrayWriter<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        if 0 < self.count {
            self.writer.out.push(b',');
        }
        if let Err(error) = value.serialize(&mut *self.writer) {
            return Err(self
                .writer
                .under_variant(self.variant.as_ref(), error.under_index(self.count)));
        }
        self.count += 1;
        Ok(())
    }

    fn end(self) -> Result<(), JsonError> {
        self.writer.end_array();
        self.writer.end_variant(self.variant)
    }
}

impl ser::SerializeTuple for ArrayWriter<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), JsonError> {
        ser::SerializeSeq::end(self)
    }
}

impl ser::SerializeTupleStruct for ArrayWriter<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), JsonError> {
        ser::SerializeSeq::end(self)
    }
}

impl ser::SerializeTupleVariant for ArrayWriter<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), JsonError> {
        ser::SerializeSeq::end(self)
    }
}

impl ser::SerializeMap for ObjectWriter<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), JsonError> {
        self.writer.begin_member(&mut self.object);
        key.serialize(TextSerializer::key(self.writer))?;
        self.writer.end_key(&mut self.object);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), JsonError> {
        if let Err(error) = value.serialize(&mut *self.writer) {
            let error = self.writer.under_current(&self.object, error);
            return Err(self.writer.under_variant(self.variant.as_ref(), error));
        }
        self.writer.end_member(&self.object);
        Ok(())
    }

    fn end(self) -> Result<(), JsonError> {
        if let Err(error) = self.writer.end_object(&self.object) {
            return Err(self.writer.under_variant(self.variant.as_ref(), error));
        }
        self.writer.end_variant(self.variant)
    }
}

impl ser::SerializeStructVariant for ObjectWriter<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        self.writer.begin_member(&mut self.object);
        self.writer.string(key);
        self.writer.end_key(&mut self.object);
        self.serialize_value(value)
    }

    fn end(self) -> Result<(), JsonError> {
        ser::SerializeMap::end(self)
    }
}

impl ser::SerializeStruct for StructWriter<'_> {
    type Ok = ();
    type Error = JsonError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), JsonError> {
        match self {
            Self::Object(object) => {
                ser::SerializeStructVariant::serialize_field(object, key, value)
            }
            Self::JsonText(writer) => value.serialize(TextSerializer::json(writer)),
        }
    }

    fn end(self) -> Result<(), JsonError> {
        match self {
            Self::Object(object) => ser::SerializeMap::end(object),
            Self::JsonText(_) => Ok(()),
        }
    }
}
