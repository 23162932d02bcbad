//! The messages in the body of a gRPC call (gRPC's PROTOCOL-HTTP2.md).

use prost::Message;

/// The length of the prefix of a message: whether it is compressed, and its length.
pub(crate) const PREFIX: usize = 5;

/// The body is not a single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The message is compressed, which needs an agreement.
    #[error("compressed messages are not supported")]
    Compressed,
    /// The body has no message, several, or a part of one.
    #[error("the body is not a single message")]
    Malformed,
}

/// Returns the body with this message.
pub fn frame(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], &message].concat()
}

/// Returns the only message of a body.
///
/// # Errors
/// See [`BadFrame`].
pub fn only_message(body: &[u8]) -> Result<&[u8], BadFrame> {
    let (prefix, message) = body.split_at_checked(PREFIX).ok_or(BadFrame::Malformed)?;
    let length = prefix[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    match prefix[0] {
        _ if message.len() != length => Err(BadFrame::Malformed),
        0 => Ok(message),
        _ => Err(BadFrame::Compressed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_has_exactly_one_message() {
        let body = frame(&"message".to_owned());
        assert_eq!(body, b"\0\0\0\0\x09\x0a\x07message");
        assert_eq!(only_message(&body), Ok(&b"\x0a\x07message"[..]));
        assert_eq!(only_message(b"\0\0\0\0\0"), Ok(&b""[..]));
        assert_eq!(only_message(b"\x01\0\0\0\x01x"), Err(BadFrame::Compressed));
        let two = body.repeat(2);
        for body in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x02x", &two] {
            assert_eq!(only_message(body), Err(BadFrame::Malformed), "{}", body.escape_ascii());
        }
    }
}
