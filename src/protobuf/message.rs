//! Writes the fields of a message.

use super::{LENGTH_DELIMITED, VARINT, WIRE_TYPE_BITS};

/// An encoded message. Fields are written in the order of the calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// Writes an integer, an enum or a bool. 0 is the default and is not written.
    pub(crate) fn number(&mut self, field: u64, number: u64) {
        if number > 0 {
            self.push_varint(field << WIRE_TYPE_BITS | VARINT);
            self.push_varint(number);
        }
    }

    /// Writes a text. An empty text is the default and is not written.
    pub(crate) fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// Writes bytes. No bytes are the default and are not written.
    pub(crate) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push_bytes(field, bytes);
        }
    }

    /// Writes a message, even if it is empty.
    pub(crate) fn message(&mut self, field: u64, message: &Self) {
        self.push_bytes(field, &message.0);
    }

    /// Returns the encoded message.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn push_bytes(&mut self, field: u64, bytes: &[u8]) {
        self.push_varint(field << WIRE_TYPE_BITS | LENGTH_DELIMITED);
        self.push_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn push_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}
