//! Distributes the buckets of a limiter over hash tags, so that the nodes of a cluster share its load: all keys with
//! one hash tag are on one node. A store in memory ignores this.

use std::sync::Arc;

use ipnet::IpNet;

use super::crc16::{HASH_SLOTS, crc16, crc16_continue};
use super::{Charge, ClientId, Limiter};
use tidegate_limit::{Mode, Quota};

/// The upper bound of the search for part numbers.
const NUMBERS: u32 = 1 << 20;

/// The distribution of a limiter's buckets over hash tags.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All buckets have the hash tag of the limiter's name.
    #[default]
    Undivided,
    /// PER_CLIENT: each client is in one of the partitions with these numbers, and still has one bucket.
    Partitions(Box<[u32]>),
    /// OVERALL: each of these shards has a bucket with a part of the quota. Together they grant at most the quota.
    Shards(Box<[Arc<Limiter>]>),
}

impl Limiter {
    /// Distributes the clients over this many partitions.
    #[must_use]
    pub fn partitioned(self, partitions: u32) -> Self {
        let has_hash_tag = self.name.contains('}');
        if partitions < 2 || !has_hash_tag {
            return Self { spread: Spread::Undivided, ..self };
        }
        Self { spread: Spread::Partitions(self.part_numbers(partitions).collect()), ..self }
    }

    /// Divides the quota into at most this many shards with at least one permit each.
    #[must_use]
    pub fn sharded(self, shards: u32) -> Self {
        let shards = shards.min(self.quota.rate()).min(self.quota.capacity());
        if shards < 2 {
            return self;
        }
        let quotas = (0..shards).map(|index| part_of(&self.quota, index, shards));
        let shard = |(number, quota)| Arc::new(Self::new(self.part_name(number), self.mode, quota));
        Self { spread: Spread::Shards(self.part_numbers(shards).zip(quotas).map(shard).collect()), ..self }
    }

    /// Returns the shards; empty if the limiter has none.
    pub fn shards(&self) -> &[Arc<Self>] {
        match &self.spread {
            Spread::Shards(shards) => shards,
            Spread::Undivided | Spread::Partitions(_) => &[],
        }
    }

    /// Returns the number of a client's partition, which is equal on all gateways; `None` without partitions, or if
    /// only the hash of the client is known.
    pub fn partition_of(&self, client: Option<&ClientId>) -> Option<u32> {
        let (client, Spread::Partitions(numbers)) = (client?, &self.spread) else { return None };
        if self.mode != Mode::PerClient {
            return None;
        }
        let hash = match client {
            ClientId::Address(IpNet::V4(network)) => crc16(&network.network().octets()),
            ClientId::Address(IpNet::V6(network)) => crc16(&network.network().octets()),
            ClientId::Value(value) => crc16(value),
            ClientId::Hash(_) => return None,
            ClientId::Instance(id) => crc16(id.as_bytes()),
        };
        numbers.get(usize::from(hash) % numbers.len()).copied()
    }

    /// Returns the number of partitions; `None` if there are no partitions.
    pub fn partitions(&self) -> Option<u32> {
        match &self.spread {
            Spread::Partitions(numbers) if self.mode == Mode::PerClient => u32::try_from(numbers.len()).ok(),
            _ => None,
        }
    }

    /// Returns a number for each part, so that their hash tags are distributed evenly over the hash slots. For each
    /// part it is the first number with a hash slot in the middle of the part's own range of hash slots. For example,
    /// three nodes with equal shares get 3, 3 and 2 of 8 parts; with the numbers 0 to 7, one node would get 4.
    fn part_numbers(&self, parts: u32) -> impl Iterator<Item = u32> {
        let (mut numbers, mut missing) = (vec![None; usize::try_from(parts).unwrap_or_default()], parts);
        for number in 0..NUMBERS {
            let range = central_range_of(self.hash_slot_of_part(number), parts);
            if let Some(place @ None) = range.and_then(|range| numbers.get_mut(range)) {
                *place = Some(number);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        numbers.into_iter().zip(NUMBERS..).map(|(number, any)| number.unwrap_or(any))
    }

    /// Returns the hash slot of the partition or shard with this number: 0 to [`HASH_SLOTS`] - 1.
    pub fn hash_slot_of_part(&self, number: u32) -> u16 {
        let [tag, _] = self.split_at_part_number();
        let tag = tag.split_once('{').map_or(tag, |(_, tag)| tag);
        let before = crc16_continue(crc16(tag.as_bytes()), b":");
        crc16_continue(before, itoa::Buffer::new().format(number).as_bytes()) % HASH_SLOTS
    }

    /// Returns the name with the number of a part in the hash tag: `{tidegate:rest:7}:all`.
    fn part_name(&self, number: u32) -> String {
        let [tag, rest] = self.split_at_part_number();
        format!("{tag}:{number}{rest}")
    }

    /// Splits the name at the position of the part number.
    pub fn split_at_part_number(&self) -> [&str; 2] {
        let end = self.name.find('}').unwrap_or(self.name.len());
        let (tag, rest) = self.name.split_at(end);
        [tag, rest]
    }
}

/// Divides all hash slots into equal ranges and returns the range whose middle eighth contains `hash_slot`, if there is
/// one. So for up to 8 nodes with equal shares of the hash slots, the numbers of parts per node differ by at most one.
fn central_range_of(hash_slot: u16, ranges: u32) -> Option<usize> {
    let (all, scaled) = (u64::from(HASH_SLOTS), u64::from(hash_slot) * u64::from(ranges));
    let is_middle = (scaled % all).abs_diff(all / 2) * 16 < all;
    usize::try_from(scaled / all).ok().filter(|_| is_middle)
}

impl Charge {
    /// Returns the charge on each bucket that it may use: on each shard of its limiter; in each partition if only the
    /// hash of the client is known; otherwise on the one bucket.
    pub fn on_all_buckets(&self) -> Vec<Self> {
        let on = |limiter: Arc<Limiter>| Self { limiter, ..self.clone() };
        match (&self.limiter.spread, &self.client) {
            (Spread::Shards(shards), _) => shards.iter().map(|shard| on(Arc::clone(shard))).collect(),
            (Spread::Partitions(numbers), Some(ClientId::Hash(_))) => {
                let Limiter { mode, quota, .. } = *self.limiter;
                let partition = |number: &u32| Limiter::new(self.limiter.part_name(*number), mode, quota);
                numbers.iter().map(|number| on(Arc::new(partition(number)))).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// Returns the charge on a shard of its limiter; on the limiter itself without shards.
    pub fn on_shard(&self, shard: Option<u16>) -> Self {
        let part = shard.and_then(|shard| self.limiter.shards().get(usize::from(shard)));
        Self { limiter: Arc::clone(part.unwrap_or(&self.limiter)), ..self.clone() }
    }
}

/// Returns the quota of one part; the quotas of all parts add up to the whole.
fn part_of(whole: &Quota, number: u32, parts: u32) -> Quota {
    let part = |permits: u32| permits / parts + u32::from(number < permits % parts);
    whole.scaled(part, part)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use tidegate_limit::{Algorithm, examples};

    fn limiter(rate: u32, algorithm: Algorithm) -> Limiter {
        let quota = Quota::new(rate.into(), 1_000, algorithm).expect("a quota");
        Limiter::new("{tidegate:rest}:all".to_owned(), Mode::Overall, quota)
    }

    #[test]
    fn hash_tag_contains_the_part_number() {
        let names = limiter(100, Algorithm::TokenBucket).sharded(2);
        let names: Vec<&str> = names.shards().iter().map(|shard| shard.name.as_str()).collect();
        assert_eq!(names, ["{tidegate:rest:51}:all", "{tidegate:rest:53}:all"]);
    }

    #[test]
    fn clients_are_distributed_over_all_partitions() {
        let limiter = Limiter { mode: Mode::PerClient, ..limiter(1, Algorithm::TokenBucket) }.partitioned(64);
        let mut counts = BTreeMap::new();
        for client in 0..64_000_u32 {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + client);
            let client = ClientId::Address(std::net::IpAddr::V4(address).into());
            let partition = limiter.partition_of(Some(&client)).expect("a partition");
            *counts.entry(partition).or_insert(0) += 1;
        }
        assert!(counts.len() == 64 && counts.values().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    /// Generates algorithms with any burst.
    fn algorithm() -> impl Strategy<Value = Algorithm> {
        (1..=10_000_u32, any::<prop::sample::Index>()).prop_map(|(permits, index)| {
            let examples: Vec<_> = examples(permits).collect();
            *index.get(&examples)
        })
    }

    proptest! {
        #[test]
        fn parts_are_distributed_evenly_over_hash_slots(route in "[a-z-]{1,30}", parts in 2..=400_u32) {
            let limiter = Limiter { name: format!("{{tidegate:{route}}}:all"), ..limiter(1, Algorithm::TokenBucket) };
            let slots: Vec<usize> =
                limiter.part_numbers(parts).map(|number| limiter.hash_slot_of_part(number).into()).collect();
            for nodes in 2..=8 {
                let of_node = |node| slots.iter().filter(|hash_slot| *hash_slot * nodes / usize::from(HASH_SLOTS) == node).count();
                let (counts, even): (Vec<usize>, _) =
                    ((0..nodes).map(of_node).collect(), slots.len() / nodes..=slots.len().div_ceil(nodes));
                prop_assert!(counts.iter().all(|count| even.contains(count)), "{counts:?}");
            }
        }

        #[test]
        fn shards_add_up_to_the_quota(
            rate in 1..=10_000_u32, algorithm in algorithm(), shards in 0..=300_u32
        ) {
            let sharded = limiter(rate, algorithm).sharded(shards);
            let (parts, capacity) = (sharded.shards(), sharded.quota.capacity());
            prop_assert_eq!(parts.is_empty(), shards.min(rate).min(capacity) < 2);
            if !parts.is_empty() {
                let sum = |amount: fn(&Quota) -> u32| parts.iter().map(|part| amount(&part.quota)).sum::<u32>();
                prop_assert_eq!((sum(Quota::rate), sum(Quota::capacity)), (rate, capacity));
                prop_assert!(parts.iter().all(|part| part.quota.rate() > 0 && part.quota.capacity() > 0));
            }
        }
    }
}
