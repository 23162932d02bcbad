//! Reads the call from a `RateLimitRequest`, whose fields have the numbers of `envoy/service/ratelimit/v3/rls.proto` and
//! `envoy/extensions/common/ratelimit/v3/ratelimit.proto`.
//!
//! A call that exceeds a bound ends the reading, so that no long list is created first.

use crate::protobuf::{Fields, Malformed, Value};
use crate::service::bad_call::BadCall;
use crate::service::unit;
use tidegate_service::{Call, CallError, Descriptor, Entry, Override};

/// Reads a `RateLimitRequest`.
///
/// # Errors
/// The message is malformed or too large, or has a limit without a unit.
pub(super) fn read(message: &[u8]) -> Result<Call<'_>, BadCall> {
    let mut call = Call::default();
    for field in Fields::new(message) {
        match field? {
            (1, Value::Bytes(domain)) => call.domain = text(domain)?,
            (2, Value::Bytes(_)) if call.descriptors.len() == Call::MAX_DESCRIPTORS => {
                return Err(CallError::TooManyDescriptors.into());
            }
            (2, Value::Bytes(bytes)) => call.descriptors.push(descriptor(bytes)?),
            (3, Value::Number(hits)) => call.hits_addend = saturated(hits),
            _ => {}
        }
    }
    Ok(call)
}

/// Reads a `RateLimitDescriptor`.
fn descriptor(message: &[u8]) -> Result<Descriptor<'_>, BadCall> {
    let (mut descriptor, mut limit) = (Descriptor::default(), None);
    for field in Fields::new(message) {
        match field? {
            (1, Value::Bytes(_)) if descriptor.entries.len() == Call::MAX_ENTRIES => {
                return Err(CallError::TooManyEntries.into());
            }
            (1, Value::Bytes(bytes)) => descriptor.entries.push(entry(bytes)?),
            // Messages that are sent several times are merged.
            (2, Value::Bytes(bytes)) => limit = Some(rate(bytes, limit.unwrap_or_default())?),
            (3, Value::Bytes(bytes)) => descriptor.hits_addend = Some(wrapped(bytes)?),
            (4, Value::Number(1..)) => return Err(BadCall::NegativeHits),
            _ => {}
        }
    }
    descriptor.limit = limit.map(|(requests_per_unit, number)| override_of(requests_per_unit, number)).transpose()?;
    Ok(descriptor)
}

/// Reads a `RateLimitDescriptor.Entry`.
fn entry(message: &[u8]) -> Result<Entry<'_>, BadCall> {
    let mut entry = Entry { key: "", value: "" };
    for field in Fields::new(message) {
        match field? {
            (1, Value::Bytes(key)) => entry.key = text(key)?,
            (2, Value::Bytes(value)) => entry.value = text(value)?,
            _ => {}
        }
    }
    Ok(entry)
}

/// Reads the requests and the unit of a `RateLimitDescriptor.RateLimitOverride`.
fn rate(message: &[u8], (mut requests_per_unit, mut unit): (u32, u64)) -> Result<(u32, u64), Malformed> {
    for field in Fields::new(message) {
        match field? {
            (1, Value::Number(requests)) => requests_per_unit = saturated(requests),
            (2, Value::Number(number)) => unit = number,
            _ => {}
        }
    }
    Ok((requests_per_unit, unit))
}

fn override_of(requests_per_unit: u32, number: u64) -> Result<Override, BadCall> {
    let unit = unit::numbered(number).ok_or(BadCall::UnknownUnit)?;
    Ok(Override { requests_per_unit, unit })
}

/// Reads a `google.protobuf.UInt64Value`.
fn wrapped(message: &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for field in Fields::new(message) {
        if let (1, Value::Number(value)) = field? {
            number = value;
        }
    }
    Ok(number)
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_service::Unit;

    use super::*;
    use crate::protobuf::Message;

    fn message(write: impl FnOnce(&mut Message)) -> Message {
        let mut message = Message::default();
        write(&mut message);
        message
    }

    fn read_descriptor(write: impl FnOnce(&mut Message)) -> Result<Descriptor<'static>, BadCall> {
        descriptor(message(write).into_bytes().leak())
    }

    #[test]
    fn call_is_read_with_all_its_fields() {
        let entry = |key: &str, value: &str| {
            message(|entry| {
                entry.text(1, key);
                entry.text(2, value);
            })
        };
        let first = message(|descriptor| {
            descriptor.message(1, &entry("user", "ann"));
            descriptor.message(1, &entry("path", "/\u{e9}"));
        });
        let second = message(|descriptor| {
            descriptor.message(1, &entry("user", ""));
            descriptor.message(2, &message(|limit| limit.number(1, 7)));
            descriptor.message(2, &message(|limit| limit.number(2, 3)));
            descriptor.message(3, &Message::default());
            descriptor.number(4, 0);
            descriptor.text(99, "unknown");
        });
        let bytes = message(|call| {
            call.text(1, "edge");
            call.message(2, &first);
            call.message(2, &second);
            call.number(3, 5);
        });
        let bytes = bytes.into_bytes();
        let call = read(&bytes).expect("a call");
        assert_eq!((call.domain, call.hits_addend, call.descriptors.len()), ("edge", 5, 2));
        let [first, second] = &call.descriptors[..] else { panic!("{call:?}") };
        let entries = [Entry { key: "user", value: "ann" }, Entry { key: "path", value: "/\u{e9}" }];
        assert_eq!((&first.entries[..], first.limit, first.hits_addend), (&entries[..], None, None));
        let limit = Override { requests_per_unit: 7, unit: Unit::HOUR };
        assert_eq!((second.limit, second.hits_addend), (Some(limit), Some(0)));
    }

    #[test]
    fn bounds_are_checked_before_the_rest_is_read() {
        let many = message(|call| (0..10_000).for_each(|_| call.message(2, &Message::default()))).into_bytes();
        assert!(matches!(read(&many), Err(BadCall::Call(CallError::TooManyDescriptors))));
        let entries = read_descriptor(|descriptor| (0..33).for_each(|_| descriptor.message(1, &Message::default())));
        assert!(matches!(entries, Err(BadCall::Call(CallError::TooManyEntries))), "{entries:?}");
    }

    #[test]
    fn meaningless_descriptors_are_errors() {
        let unit = read_descriptor(|descriptor| descriptor.message(2, &message(|limit| limit.number(1, 7))));
        assert!(matches!(unit, Err(BadCall::UnknownUnit)), "{unit:?}");
        let negative = read_descriptor(|descriptor| descriptor.number(4, 1));
        assert!(matches!(negative, Err(BadCall::NegativeHits)), "{negative:?}");
        let text = read(b"\x0a\x01\xff");
        assert!(matches!(text, Err(BadCall::Message(Malformed))), "{text:?}");
        let huge = message(|call| call.number(3, u64::MAX)).into_bytes();
        assert_eq!(read(&huge).expect("a call").hits_addend, u32::MAX);
    }

    proptest! {
        #[test]
        fn hostile_message_never_panics(message in prop::collection::vec(any::<u8>(), 0..256)) {
            _ = read(&message);
        }
    }
}
