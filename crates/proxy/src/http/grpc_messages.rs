//! The messages of a gRPC stream, whose data arrives in pieces (gRPC's PROTOCOL-HTTP2.md).

use bytes::{Buf, Bytes, BytesMut};

use super::grpc::PREFIX;

/// Splits the data of a stream into messages.
#[derive(Debug)]
pub struct Messages {
    buffer: BytesMut,
    /// The longest message, in bytes.
    max: usize,
}

/// The data is not a message that this program accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// The message is compressed, which needs an agreement.
    #[error("a message is compressed, which is not supported")]
    Compressed,
    /// The message is longer than the bound.
    #[error("a message has {length} bytes, more than {max}")]
    TooLong {
        /// The length of the message, in bytes.
        length: usize,
        /// The bound.
        max: usize,
    },
}

impl Messages {
    /// Accepts messages of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { buffer: BytesMut::new(), max }
    }

    /// Adds the next data.
    pub fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// Removes and returns the first message. Returns `None` if it is not complete.
    ///
    /// # Errors
    /// See [`BadMessage`]. The stream cannot be read further.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, BadMessage> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else { return Ok(None) };
        let (is_compressed, max) = (prefix[0] != 0, self.max);
        let length = prefix[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if is_compressed {
            return Err(BadMessage::Compressed);
        }
        if length > max {
            return Err(BadMessage::TooLong { length, max });
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a message with its prefix.
    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0, 0, 0, 0, message.len().try_into().unwrap()], message].concat()
    }

    #[test]
    fn messages_are_independent_of_the_pieces() {
        let data = [framed(b"first"), framed(b""), framed(b"third")].concat();
        for size in 1..=data.len() {
            let (mut messages, mut found) = (Messages::new(5), Vec::new());
            for piece in data.chunks(size) {
                messages.push(piece);
                while let Some(message) = messages.next_message().expect("valid messages") {
                    found.push(message);
                }
            }
            assert_eq!(found, [&b"first"[..], b"", b"third"], "{size}");
        }
    }

    #[test]
    fn long_or_compressed_message_is_an_error() {
        let mut messages = Messages::new(5);
        messages.push(b"\0\0\0\0\x06");
        assert_eq!(messages.next_message(), Err(BadMessage::TooLong { length: 6, max: 5 }), "before its data arrives");
        let mut messages = Messages::new(5);
        messages.push(b"\x01\0\0\0\x01x");
        assert_eq!(messages.next_message(), Err(BadMessage::Compressed));
    }
}
