//! The hash slots of a cluster. All keys of a hash slot are on one node; a call concerns the keys of one hash slot.

pub(super) use tidegate_rules::charge::crc16::HASH_SLOTS;
use tidegate_rules::charge::crc16::crc16;
use tidegate_rules::charge::{ClientId, Limiter};

/// Returns the hash slot of a bucket.
pub(super) fn hash_slot_of(limiter: &Limiter, client: Option<&ClientId>) -> u16 {
    match limiter.partition_of(client) {
        Some(partition) => limiter.hash_slot_of_part(partition),
        None => hash_slot_of_key(&limiter.name),
    }
}

/// Returns the hash slot of a key. Only its hash tag counts: the text between the first `{` and the next `}`, if not
/// empty.
pub(super) fn hash_slot_of_key(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % HASH_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_limit::{Algorithm, Mode, Quota};

    /// Compares with the results of `CLUSTER KEYSLOT`.
    #[test]
    fn hash_slot_depends_only_on_the_hash_tag() {
        assert_eq!(
            [hash_slot_of_key("foo"), hash_slot_of_key("{foo}:bar"), hash_slot_of_key("a{foo}{b}")],
            [12_182; 3]
        );
        assert_eq!(hash_slot_of_key("{}foo"), crc16(b"{}foo") % HASH_SLOTS);
        assert_eq!(hash_slot_of_key("foo{"), crc16(b"foo{") % HASH_SLOTS);
        assert_eq!(hash_slot_of_key("{tidegate:rest}:all"), hash_slot_of_key("tidegate:rest"));
    }

    #[test]
    fn bucket_and_its_key_have_the_same_hash_slot() {
        let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = || Limiter::new("{tidegate:rest}:own".to_owned(), Mode::PerClient, quota);
        let client = ClientId::Instance("a".into());
        assert_eq!(hash_slot_of(&limiter(), Some(&client)), hash_slot_of_key("tidegate:rest"));
        let parts = limiter().partitioned(64);
        let partition = parts.partition_of(Some(&client)).expect("a partition");
        assert_eq!(
            hash_slot_of(&parts, Some(&client)),
            hash_slot_of_key(&format!("{{tidegate:rest:{partition}}}:own:a"))
        );
    }
}
