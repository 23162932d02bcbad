//! Reads the fields of a message.

use super::{FIXED_32, FIXED_64, LENGTH_DELIMITED, VARINT, WIRE_TYPE_BITS};

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub(crate) struct Malformed;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'m> {
    /// An integer, an enum or a bool.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'m [u8]),
    /// A value of a fixed length.
    Fixed,
}

/// The fields of a message in their order, each with its number. An error ends them.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'m>(&'m [u8]);

impl<'m> Fields<'m> {
    pub(crate) fn new(message: &'m [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self) -> Option<(u64, Value<'m>)> {
        let key = self.read_varint()?;
        let value = match key & ((1 << WIRE_TYPE_BITS) - 1) {
            VARINT => Value::Number(self.read_varint()?),
            LENGTH_DELIMITED => {
                let length = usize::try_from(self.read_varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED_64 => self.take(8).map(|_| Value::Fixed)?,
            FIXED_32 => self.take(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        let number = key >> WIRE_TYPE_BITS;
        (number > 0).then_some((number, value))
    }

    fn take(&mut self, length: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads seven bits of each byte, until the highest bit of a byte is 0.
    fn read_varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for position in 0..10 {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(first & 0x7f) << (7 * position);
            if first & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u64, Value<'m>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read().ok_or(Malformed);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}
