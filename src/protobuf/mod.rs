//! The encoding of Protocol Buffers (protobuf.dev/programming-guides/encoding), for messages with few fields.
//!
//! Read by hand, because the messages come from clients: a generated decoder first creates a value for each field, and a
//! field of two bytes can need 88 bytes of memory. Texts are borrowed from the message.

mod fields;
mod message;

pub(crate) use self::fields::{Fields, Malformed, Value};
pub(crate) use self::message::Message;

/// The wire types of values.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED_32: u64 = 5;

/// The bits of a field's key that hold the wire type.
const WIRE_TYPE_BITS: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u64, Value<'_>)>, Malformed> {
        Fields::new(message).collect()
    }

    #[test]
    fn written_fields_are_read_again() {
        let mut inner = Message::default();
        inner.number(1, 300);
        let mut message = Message::default();
        message.text(1, "edge");
        message.number(2, u64::MAX);
        message.message(3, &inner);
        // A default value is not written, except for a message.
        message.number(4, 0);
        message.text(5, "");
        message.message(16, &Message::default());
        let expected = [
            (1, Value::Bytes(b"edge")),
            (2, Value::Number(u64::MAX)),
            (3, Value::Bytes(b"\x08\xac\x02")),
            (16, Value::Bytes(b"")),
        ];
        assert_eq!(fields(&message.into_bytes()).as_deref(), Ok(&expected[..]));
    }

    #[test]
    fn unknown_fields_are_skipped_by_their_wire_type() {
        let message = [&b"\x08\x01"[..], b"\x11\0\0\0\0\0\0\0\0", b"\x1d\0\0\0\0", b"\x22\x01x"].concat();
        let expected = [(1, Value::Number(1)), (2, Value::Fixed), (3, Value::Fixed), (4, Value::Bytes(b"x"))];
        assert_eq!(fields(&message).as_deref(), Ok(&expected[..]));
    }

    #[test]
    fn malformed_message_is_an_error() {
        let too_long_number = [&b"\x08"[..], &[0x80; 10], b"\x01"].concat();
        for message in
            [&b"\x08"[..], b"\x0a\x02x", b"\x0b", b"\x0e", b"\x11\0", b"\x1d\0\0", b"\x00\x01", &too_long_number]
        {
            assert_eq!(fields(message), Err(Malformed), "{}", message.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn hostile_message_never_panics(message in prop::collection::vec(any::<u8>(), 0..64)) {
            let count = Fields::new(&message).take_while(Result::is_ok).count();
            prop_assert!(count <= message.len());
        }
    }
}
