//! Reads the call from a `RateLimitRequest`.

use super::messages::{self, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
use crate::service::bad_call::BadCall;
use crate::service::unit;
use tidegate_service::{Call, CallError, Descriptor, Entry, Override};

impl RateLimitRequest {
    /// Returns the call.
    ///
    /// # Errors
    /// A list is too long, a limit has no unit, or hits are negative.
    pub(super) fn call(&self) -> Result<Call<'_>, BadCall> {
        // Before a second list of this length.
        if self.descriptors.len() > Call::MAX_DESCRIPTORS {
            return Err(CallError::TooManyDescriptors.into());
        }
        Ok(Call {
            domain: &self.domain,
            descriptors: self.descriptors.iter().map(RateLimitDescriptor::read).collect::<Result<_, _>>()?,
            hits_addend: self.hits_addend,
        })
    }
}

impl RateLimitDescriptor {
    fn read(&self) -> Result<Descriptor<'_>, BadCall> {
        if self.entries.len() > Call::MAX_ENTRIES {
            return Err(CallError::TooManyEntries.into());
        }
        if self.is_negative_hits {
            return Err(BadCall::NegativeHits);
        }
        Ok(Descriptor {
            entries: self.entries.iter().map(messages::Entry::read).collect(),
            limit: self.limit.as_ref().map(RateLimitOverride::read).transpose()?,
            hits_addend: self.hits_addend,
        })
    }
}

impl messages::Entry {
    fn read(&self) -> Entry<'_> {
        Entry { key: &self.key, value: &self.value }
    }
}

impl RateLimitOverride {
    fn read(&self) -> Result<Override, BadCall> {
        let unit = unit::numbered(self.unit).ok_or(BadCall::UnknownUnit)?;
        Ok(Override { requests_per_unit: self.requests_per_unit, unit })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;
    use tidegate_service::Unit;

    use super::*;

    /// A descriptor of this many empty entries.
    fn of_entries(count: usize) -> RateLimitDescriptor {
        RateLimitDescriptor { entries: vec![messages::Entry::default(); count], ..RateLimitDescriptor::default() }
    }

    #[test]
    fn call_is_read_with_all_its_fields() {
        // A second limit is merged into the first, an empty wrapper is 0, and field 99 is unknown.
        let second = b"\x0a\x06\x0a\x04user\x12\x02\x08\x07\x12\x02\x10\x03\x1a\x00\x20\x00\x9a\x06\x01x";
        let first = b"\x0a\x0b\x0a\x04user\x12\x03ann\x0a\x0a\x0a\x04path\x12\x02\xc3\xa9";
        let lengths = [first.len(), second.len()].map(|length| u8::try_from(length).expect("a short message"));
        let bytes = [&b"\x0a\x04edge\x12"[..], &lengths[..1], first, b"\x12", &lengths[1..], second, b"\x18\x05"];
        let request = RateLimitRequest::decode(&*bytes.concat()).expect("a message");
        let call = request.call().expect("a call");
        assert_eq!((call.domain, call.hits_addend, call.descriptors.len()), ("edge", 5, 2));
        let [first, second] = &call.descriptors[..] else { panic!("{call:?}") };
        let entries = [Entry { key: "user", value: "ann" }, Entry { key: "path", value: "\u{e9}" }];
        assert_eq!((&first.entries[..], first.limit, first.hits_addend), (&entries[..], None, None));
        let limit = Override { requests_per_unit: 7, unit: Unit::HOUR };
        assert_eq!((second.limit, second.hits_addend), (Some(limit), Some(0)));
    }

    #[test]
    fn long_lists_are_errors_before_they_are_read() {
        let request = |descriptors| RateLimitRequest { descriptors, ..RateLimitRequest::default() };
        let many = request(vec![of_entries(0); Call::MAX_DESCRIPTORS + 1]);
        assert!(matches!(many.call(), Err(BadCall::Call(CallError::TooManyDescriptors))));
        let long = of_entries(Call::MAX_ENTRIES + 1);
        assert!(matches!(long.read(), Err(BadCall::Call(CallError::TooManyEntries))));
        assert!(request(vec![of_entries(Call::MAX_ENTRIES); Call::MAX_DESCRIPTORS]).call().is_ok());
    }

    #[test]
    fn decoded_message_has_bounded_memory() {
        // The shortest element of each list takes 2 bytes of a call.
        assert!(size_of::<RateLimitDescriptor>() <= 64, "{}", size_of::<RateLimitDescriptor>());
        assert!(size_of::<messages::Entry>() <= 64, "{}", size_of::<messages::Entry>());
    }

    #[test]
    fn meaningless_descriptors_are_errors() {
        let limit = Some(RateLimitOverride { requests_per_unit: 7, unit: 0 });
        let unit = RateLimitDescriptor { limit, ..RateLimitDescriptor::default() };
        assert!(matches!(unit.read(), Err(BadCall::UnknownUnit)));
        let negative = RateLimitDescriptor { is_negative_hits: true, ..RateLimitDescriptor::default() };
        assert!(matches!(negative.read(), Err(BadCall::NegativeHits)));
    }

    #[test]
    fn malformed_messages_are_errors() {
        let nested = [0x0b; 1_000];
        for message in [&b"\x0a\x01\xff"[..], b"\x0a\x02x", b"\x08", b"\x12\x02\x0a\x05", b"\x00\x01", &nested] {
            let error = RateLimitRequest::decode(message).map(|_| ()).map_err(|error| BadCall::from(error).grpc_code());
            assert_eq!(error, Err(13), "{}", message.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn hostile_message_never_panics(message in prop::collection::vec(any::<u8>(), 0..256)) {
            _ = RateLimitRequest::decode(&*message).map(|request| request.call().is_ok());
        }
    }
}
