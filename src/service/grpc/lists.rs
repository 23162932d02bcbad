//! Counts the elements of a call's lists before the call is decoded, because decoding creates a value of 64 bytes for an element
//! of 2 bytes.

// The functions that derived messages use.
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::service::bad_call::BadCall;
use tidegate_service::{Call, CallError};

/// The numbers of the lists in a `RateLimitRequest` and in a `RateLimitDescriptor`.
const DESCRIPTORS: u32 = 2;
const ENTRIES: u32 = 1;

/// Checks the lengths of the lists in a `RateLimitRequest`. A malformed message passes as far as its first fault, at which
/// decoding ends, too.
///
/// # Errors
/// A list is too long.
pub(super) fn check(message: &[u8]) -> Result<(), BadCall> {
    let mut descriptors = 0;
    for descriptor in elements(message, DESCRIPTORS) {
        descriptors += 1;
        if descriptors > Call::MAX_DESCRIPTORS {
            return Err(CallError::TooManyDescriptors.into());
        }
        if elements(descriptor, ENTRIES).nth(Call::MAX_ENTRIES).is_some() {
            return Err(CallError::TooManyEntries.into());
        }
    }
    Ok(())
}

/// Returns the elements of the list with this number, up to the first malformed field.
fn elements(mut message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let (found, bytes) = next_field(&mut message)?;
            if found == number {
                return Some(bytes);
            }
        }
    })
}

/// Returns the number of the next field and its bytes, which are empty for a number. Returns `None` at the end and for a
/// malformed field.
fn next_field<'m>(message: &mut &'m [u8]) -> Option<(u32, &'m [u8])> {
    if message.is_empty() {
        return None;
    }
    let (number, wire_type) = decode_key(message).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, number, message, DecodeContext::default()).ok()?;
        return Some((number, &[]));
    }
    let length = usize::try_from(decode_varint(message).ok()?).ok()?;
    let (bytes, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some((number, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_errors_before_they_are_decoded() {
        let list = |count: usize| [&b"\x0a\x04edge\x18\x05"[..], &b"\x12\x00".repeat(count)].concat();
        assert!(check(&list(Call::MAX_DESCRIPTORS)).is_ok());
        let error = check(&list(Call::MAX_DESCRIPTORS + 1));
        assert!(matches!(error, Err(BadCall::Call(CallError::TooManyDescriptors))), "{error:?}");
        let descriptor = |entries: usize| {
            let length = u8::try_from(2 * entries).expect("a short list");
            [&[0x12, length][..], &b"\x0a\x00".repeat(entries)].concat()
        };
        assert!(check(&descriptor(Call::MAX_ENTRIES)).is_ok());
        let error = check(&descriptor(Call::MAX_ENTRIES + 1));
        assert!(matches!(error, Err(BadCall::Call(CallError::TooManyEntries))), "{error:?}");
    }

    #[test]
    fn malformed_message_passes_to_the_decoder() {
        for message in
            [&b"\x12\x7f"[..], b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x07", b"\x9b\x06", b"\xff"]
        {
            assert!(check(message).is_ok(), "{message:?}");
        }
    }
}
