//! Bounds the memory of a response before it is decoded: a message of two bytes becomes hundreds of bytes.

use bytes::Buf;
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The most resources of a response, and the most descriptors, names in `replaces` and values of metadata of all its
/// configurations together.
pub(super) const MAX_ITEMS: usize = 100_000;

/// The deepest nesting of messages, below the bound of the decoder.
const MAX_DEPTH: usize = 80;

/// Why a message is not decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadSize {
    #[error("it has more than {MAX_ITEMS} parts")]
    TooManyItems,
    #[error("its descriptors are nested too deeply")]
    TooDeep,
    #[error("it is malformed: {0}")]
    Malformed(#[from] DecodeError),
}

/// The messages that contain many others, or of which another one contains many.
#[derive(Clone, Copy)]
pub(super) enum MessageKind {
    Response,
    Resource,
    Config,
    Descriptor,
    Policy,
    Replace,
    Struct,
    Field,
    Value,
    List,
}

impl MessageKind {
    /// Returns the message in a field.
    fn in_field(self, number: u32) -> Option<Self> {
        match (self, number) {
            (Self::Response, 2) => Some(Self::Resource),
            (Self::Config, 3) | (Self::Descriptor, 4) => Some(Self::Descriptor),
            (Self::Descriptor, 3) => Some(Self::Policy),
            (Self::Descriptor, 8) | (Self::Value, 5) => Some(Self::Struct),
            (Self::Policy, 5) => Some(Self::Replace),
            (Self::Struct, 1) => Some(Self::Field),
            (Self::Field, 2) | (Self::List, 1) => Some(Self::Value),
            (Self::Value, 6) => Some(Self::List),
            _ => None,
        }
    }

    /// Counts the messages in this one. Adds them to `items`.
    ///
    /// # Errors
    /// See [`BadSize`].
    pub(super) fn count(self, mut message: &[u8], items: &mut usize, depth: usize) -> Result<(), BadSize> {
        if depth > MAX_DEPTH {
            return Err(BadSize::TooDeep);
        }
        while !message.is_empty() {
            let (number, wire_type) = decode_key(&mut message)?;
            let Some(inner_kind) = self.in_field(number).filter(|_| wire_type == WireType::LengthDelimited) else {
                skip_field(wire_type, number, &mut message, DecodeContext::default())?;
                continue;
            };
            *items += 1;
            if *items > MAX_ITEMS {
                return Err(BadSize::TooManyItems);
            }
            let length = usize::try_from(decode_varint(&mut message)?).unwrap_or(usize::MAX);
            // A message that is too short is an error of the decoder.
            let inner = message.get(..length).unwrap_or(message);
            inner_kind.count(inner, items, depth + 1)?;
            message.advance(inner.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::super::messages::{RateLimitConfig, RateLimitDescriptor};
    use super::*;

    fn count(message: &[u8]) -> Result<usize, String> {
        let mut items = 0;
        MessageKind::Config.count(message, &mut items, 0).map(|()| items).map_err(|error| error.to_string())
    }

    #[test]
    fn nested_messages_are_counted_and_bounded() {
        let mut config = RateLimitConfig::default();
        for _ in 0..60 {
            let descriptors = std::mem::take(&mut config.descriptors);
            config.descriptors = vec![RateLimitDescriptor { descriptors, ..RateLimitDescriptor::default() }; 1];
            config.descriptors.push(RateLimitDescriptor::default());
        }
        assert_eq!(count(&config.encode_to_vec()), Ok(120));
        let deep = (0..101).fold(Vec::new(), |inner: Vec<u8>, _| {
            let mut outer = vec![0x22];
            prost::encoding::encode_varint(inner.len() as u64, &mut outer);
            [outer, inner].concat()
        });
        let deep = RateLimitDescriptor::decode(&*deep).err().map(|_| deep).expect("the decoder has a bound, too");
        let mut items = 0;
        assert!(matches!(MessageKind::Descriptor.count(&deep, &mut items, 0), Err(BadSize::TooDeep)));
    }

    proptest! {
        #[test]
        fn hostile_configuration_never_panics(message in prop::collection::vec(any::<u8>(), 0..64)) {
            if count(&message).is_ok() {
                _ = RateLimitConfig::decode(&*message);
            }
        }
    }
}
