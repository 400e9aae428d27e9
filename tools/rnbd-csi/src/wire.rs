// SPDX-License-Identifier: GPL-2.0

//! Messages of protobuf (version 3), as far as CSI uses them.
//!
//! A message is a structure whose fields have the numbers of the public specification, given to
//! [`message!`]. The crate `protobuf` reads and writes the single values, and checks them: lengths,
//! UTF-8, numbers that are too long. A field of an unknown number, or of another kind than here, is
//! skipped, as protobuf wants it: so a newer client can talk to this program. A group, which
//! protobuf 3 does not have, is an error.

use std::collections::BTreeMap;

use protobuf::rt::WireType;
use protobuf::CodedInputStream;
use protobuf::CodedOutputStream;
use protobuf::Result;

/// A message. Nesting is bounded by the types: no message contains itself.
pub(crate) trait Message: Default {
    /// Reads the value of field `number`, if there is such a field of this kind.
    fn read_field(
        &mut self,
        number: u32,
        kind: WireType,
        input: &mut CodedInputStream<'_>,
    ) -> Result<bool>;

    /// Writes all fields but those that have their default values.
    fn write(&self, out: &mut CodedOutputStream<'_>) -> Result<()>;
}

/// The message that is in `bytes`. The error is in words.
pub(crate) fn decode<M: Message>(bytes: &[u8]) -> std::result::Result<M, String> {
    let mut message = M::default();
    match merge(&mut message, bytes) {
        Ok(()) => Ok(message),
        Err(error) => Err(error.to_string()),
    }
}

/// The bytes of a message. The error is in words; there is none unless memory is short.
pub(crate) fn encode<M: Message>(message: &M) -> std::result::Result<Vec<u8>, String> {
    write_nested(message).map_err(|error| error.to_string())
}

/// Reads all fields into `message`.
fn merge<M: Message>(message: &mut M, bytes: &[u8]) -> Result<()> {
    let mut input = CodedInputStream::from_bytes(bytes);
    while let Some(tag) = input.read_raw_tag_or_eof()? {
        // Three bits say what kind of value follows, the others the number of the field.
        let kind = match WireType::new(tag & 7) {
            // The end of a group that has not begun is an error of the crate's.
            None | Some(WireType::StartGroup) => WireType::EndGroup,
            Some(kind) => kind,
        };
        if !message.read_field(tag >> 3, kind, &mut input)? {
            input.skip_field(kind)?;
        }
    }
    Ok(())
}

fn write_nested<M: Message>(message: &M) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut out = CodedOutputStream::vec(&mut bytes);
    message.write(&mut out)?;
    out.flush()?;
    drop(out);
    Ok(bytes)
}

/// The value of a field.
pub(crate) trait Field {
    /// Reads it, or gives false if a value of that kind does not belong here.
    fn read(&mut self, kind: WireType, input: &mut CodedInputStream<'_>) -> Result<bool>;

    /// Writes it with its number, unless it has its default value.
    fn write(&self, number: u32, out: &mut CodedOutputStream<'_>) -> Result<()>;
}

/// A field of one number or truth value.
macro_rules! scalar {
    ($type:ty, $read:ident, $write:ident) => {
        impl Field for $type {
            fn read(&mut self, kind: WireType, input: &mut CodedInputStream<'_>) -> Result<bool> {
                if kind != WireType::Varint {
                    return Ok(false);
                }
                *self = input.$read()?;
                Ok(true)
            }

            fn write(&self, number: u32, out: &mut CodedOutputStream<'_>) -> Result<()> {
                match *self == <$type>::default() {
                    true => Ok(()),
                    false => out.$write(number, *self),
                }
            }
        }
    };
}

scalar!(bool, read_bool, write_bool);
scalar!(i32, read_int32, write_int32);
scalar!(i64, read_int64, write_int64);

impl Field for String {
    fn read(&mut self, kind: WireType, input: &mut CodedInputStream<'_>) -> Result<bool> {
        if kind != WireType::LengthDelimited {
            return Ok(false);
        }
        *self = input.read_string()?;
        Ok(true)
    }

    fn write(&self, number: u32, out: &mut CodedOutputStream<'_>) -> Result<()> {
        match self.is_empty() {
            true => Ok(()),
            false => out.write_string(number, self),
        }
    }
}

impl Field for Vec<String> {
    fn read(&mut self, kind: WireType, input: &mut CodedInputStream<'_>) -> Result<bool> {
        let mut one = String::new();
        let is_one = one.read(kind, input)?;
        if is_one {
            self.push(one);
        }
        Ok(is_one)
    }

    fn write(&self, number: u32, out: &mut CodedOutputStream<'_>) -> Result<()> {
        // An empty string is an entry like any other.
        self.iter()
            .try_for_each(|one| out.write_string(number, one))
    }
}

impl<M: Message> Field for Option<M> {
    fn read(&mut self, kind: WireType, input: &mut CodedInputStream<'_>) -> Result<bool> {
        if kind != WireType::LengthDelimited {
            return Ok(false);
        }
        let bytes = input.read_bytes()?;
        // A message that comes in several parts is one message.
        merge(self.get_or_insert_with(M::default), &bytes)?;
        Ok(true)
    }

    fn write(&self, number: u32, out: &mut CodedOutputStream<'_>) -> Result<()> {
        match self {
            None => Ok(()),
            Some(message) => out.write_bytes(number, &write_nested(message)?),
        }
    }
}

impl<M: Message> Field for Vec<M> {
    fn read(&mut self, kind: WireType, input: &mut CodedInputStream<'_>) -> Result<bool> {
        let mut one: Option<M> = None;
        let is_one = one.read(kind, input)?;
        self.extend(one.filter(|_| is_one));
        Ok(is_one)
    }

    fn write(&self, number: u32, out: &mut CodedOutputStream<'_>) -> Result<()> {
        self.iter()
            .try_for_each(|one| out.write_bytes(number, &write_nested(one)?))
    }
}

/// A map is written as messages of a key and a value.
impl Field for BTreeMap<String, String> {
    fn read(&mut self, kind: WireType, input: &mut CodedInputStream<'_>) -> Result<bool> {
        let mut one: Option<Entry> = None;
        let is_one = one.read(kind, input)?;
        self.extend(one.filter(|_| is_one).map(|entry| (entry.key, entry.value)));
        Ok(is_one)
    }

    fn write(&self, number: u32, out: &mut CodedOutputStream<'_>) -> Result<()> {
        self.iter().try_for_each(|(key, value)| {
            let entry = Entry {
                key: key.clone(),
                value: value.clone(),
            };
            out.write_bytes(number, &write_nested(&entry)?)
        })
    }
}

/// Defines a message: its fields with their types and the numbers of the specification.
macro_rules! message {
    (
        $(#[$about:meta])*
        $name:ident {
            $($(#[$about_field:meta])* $field:ident: $type:ty = $number:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$about_field])* pub(crate) $field: $type,)+
        }

        impl $crate::wire::Message for $name {
            fn read_field(
                &mut self,
                number: u32,
                kind: protobuf::rt::WireType,
                input: &mut protobuf::CodedInputStream<'_>,
            ) -> protobuf::Result<bool> {
                match number {
                    $($number => $crate::wire::Field::read(&mut self.$field, kind, input),)+
                    _ => Ok(false),
                }
            }

            fn write(&self, out: &mut protobuf::CodedOutputStream<'_>) -> protobuf::Result<()> {
                $($crate::wire::Field::write(&self.$field, $number, out)?;)+
                Ok(())
            }
        }
    };
}
pub(crate) use message;

message! {
    /// An entry of a map.
    Entry {
        key: String = 1,
        value: String = 2,
    }
}

/// A message without fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}

impl Message for Empty {
    fn read_field(
        &mut self,
        _number: u32,
        _kind: WireType,
        _input: &mut CodedInputStream<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    fn write(&self, _out: &mut CodedOutputStream<'_>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    message! {
        Inner {
            text: String = 1,
        }
    }

    message! {
        Outer {
            number: i64 = 1,
            flag: bool = 2,
            words: Vec<String> = 3,
            inner: Option<Inner> = 4,
            many: Vec<Inner> = 5,
            map: BTreeMap<String, String> = 16,
        }
    }

    /// What any implementation of protobuf writes for this message.
    const BYTES: &[u8] = &[
        0x08, 0x96, 0x01, 0x10, 0x01, 0x1a, 0x01, b'a', 0x1a, 0x00, 0x22, 0x03, 0x0a, 0x01, b'x',
        0x2a, 0x00, 0x2a, 0x03, 0x0a, 0x01, b'y', 0x82, 0x01, 0x06, 0x0a, 0x01, b'k', 0x12, 0x01,
        b'v',
    ];

    fn message() -> Outer {
        let inner = |text: &str| Inner { text: text.into() };
        Outer {
            number: 150,
            flag: true,
            words: vec!["a".into(), String::new()],
            inner: Some(inner("x")),
            many: vec![inner(""), inner("y")],
            map: BTreeMap::from([("k".into(), "v".into())]),
        }
    }

    #[test]
    fn bytes_are_those_of_protobuf() {
        assert_eq!(encode(&message()).unwrap(), BYTES);
        assert_eq!(decode::<Outer>(BYTES).unwrap(), message());
        assert!(encode(&Outer::default()).unwrap().is_empty());
        assert_eq!(decode::<Outer>(&[]).unwrap(), Outer::default());
    }

    #[test]
    fn negative_numbers_have_ten_bytes() {
        let bytes = encode(&Outer {
            number: -1,
            ..Outer::default()
        });
        let bytes = bytes.unwrap();
        assert_eq!(bytes.len(), 11);
        assert_eq!(decode::<Outer>(&bytes).unwrap().number, -1);
    }

    #[test]
    fn what_is_not_known_is_skipped() {
        // Field 7 of each kind, and field 1 as a string.
        let mut bytes = vec![0x38, 0x05, 0x3a, 0x01, b'z', 0x3d, 1, 2, 3, 4];
        bytes.extend([0x39, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0x01, b'q']);
        bytes.extend(BYTES);
        assert_eq!(decode::<Outer>(&bytes).unwrap(), message());
    }

    #[test]
    fn bad_bytes_are_refused() {
        for bytes in [
            &[0x08][..],
            &[0x1a, 0x05, b'a'],
            &[0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f],
            &[0x1a, 0x01, 0xff],
            &[0x0b],
            &[0x3b, 0x3b, 0x3b],
            &[0x0e],
            &[
                0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ],
            &[0x22, 0x02, 0x0a, 0x05],
            &[0x22, 0x01, 0x0b],
        ] {
            assert!(decode::<Outer>(bytes).is_err(), "{bytes:x?}");
        }
        // Whatever is cut off somewhere is refused or is another message; nothing else happens.
        for len in 0..BYTES.len() {
            let _ = decode::<Outer>(&BYTES[..len]);
        }
    }
}
