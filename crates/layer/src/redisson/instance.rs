//! The ids of program instances, each of which has its own bucket under PER_CLIENT.

use std::fmt;
use std::sync::Arc;

use tidegate_limit::random::random;
use tidegate_limit::text::hex;

/// The maximum length of an id.
const MAX_LENGTH: usize = 128;

/// The id of an instance: the suffix of its PER_CLIENT keys. Like a Redisson client, a limiter from
/// [`RateLimiter::new`](super::RateLimiter::new) has a new id. A program that sets its id keeps its permits across
/// restarts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InstanceId(Arc<str>);

/// The error of [`InstanceId::new`]: the text is empty, longer than 128 bytes, or has a forbidden character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("an instance id is 1 to {MAX_LENGTH} visible ASCII characters other than `{{` and `}}`")]
pub struct InstanceIdError;

impl InstanceId {
    /// Generates a random id: a UUID of version 4, as Java formats it.
    pub fn random() -> Self {
        // Without randomness, instances would share a bucket: less would be granted, never more.
        let mut bytes: [u8; 16] = random();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex = hex::encode(&bytes);
        let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Self(groups.join("-").into())
    }

    /// Creates an id from 1 to 128 visible ASCII characters. Braces are not allowed, since they would change the hash
    /// slot.
    ///
    /// # Errors
    /// The text is not a valid id.
    pub fn new(id: &str) -> Result<Self, InstanceIdError> {
        let valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
        match (1..=MAX_LENGTH).contains(&id.len()) && id.bytes().all(valid) {
            true => Ok(Self(id.into())),
            false => Err(InstanceIdError),
        }
    }

    pub(super) fn to_arc(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_id_is_a_new_uuid() {
        let (first, second) = (InstanceId::random().to_string(), InstanceId::random().to_string());
        assert_ne!(first, second);
        let groups: Vec<_> = first.split('-').collect();
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(groups[2].starts_with('4') && groups[3].starts_with(['8', '9', 'a', 'b']), "{first}");
        assert!(
            first.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)),
            "{first}"
        );
    }

    #[test]
    fn id_with_braces_is_invalid() {
        for id in ["", "a b", "{a}", "a}", "\n", "\u{e9}", &"x".repeat(129)] {
            assert_eq!(InstanceId::new(id), Err(InstanceIdError), "{id:?}");
        }
        assert_eq!(InstanceId::new("worker:7").map(|id| id.to_string()), Ok("worker:7".into()));
    }
}
