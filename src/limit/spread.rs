//! How the buckets of a limiter are spread, so that the nodes of a cluster share its load: what lies under one hash tag lies on
//! one node. A store in one process has no use for it.

use std::sync::Arc;

use ipnet::IpNet;

use super::crc16::crc16;
use super::{Algorithm, Charge, ClientId, Limiter, Mode, Quota, leaky_bucket};

/// Over how many hash tags.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All buckets lie under the hash tag of the limiter's name.
    #[default]
    Whole,
    /// PER_CLIENT: each client is in one of so many partitions. It has one bucket, so nothing else changes.
    Partitions(u32),
    /// OVERALL: so many buckets that each grant a part of the quota. Together they grant the quota, and never more.
    Shards(Box<[Arc<Limiter>]>),
}

impl Limiter {
    /// The same, with its clients in so many partitions.
    #[must_use]
    pub fn partitioned(self, partitions: u32) -> Self {
        let has_hash_tag = self.name.contains('}');
        let spread = if partitions > 1 && has_hash_tag { Spread::Partitions(partitions) } else { Spread::Whole };
        Self { spread, ..self }
    }

    /// The same, with its quota in so many shards: as many as have a permit at least.
    #[must_use]
    pub fn sharded(self, shards: u32) -> Self {
        let shards = shards.min(self.quota.rate()).min(self.quota.capacity());
        if shards < 2 {
            return self;
        }
        let shard = |number| Arc::new(Self::new(self.name_of_part(number), self.mode, self.quota.part(number, shards)));
        Self { spread: Spread::Shards((0..shards).map(shard).collect()), ..self }
    }

    /// Its shards, if it is spread over some.
    pub fn shards(&self) -> &[Arc<Self>] {
        match &self.spread {
            Spread::Shards(shards) => shards,
            Spread::Whole | Spread::Partitions(_) => &[],
        }
    }

    /// The partition of a client, if there are some: the same on every gateway.
    pub(crate) fn partition_of(&self, client: Option<&ClientId>) -> Option<u32> {
        let hash = match client? {
            ClientId::Address(IpNet::V4(network)) => crc16(&network.network().octets()),
            ClientId::Address(IpNet::V6(network)) => crc16(&network.network().octets()),
            ClientId::Value(value) => crc16(value),
            ClientId::Instance(id) => crc16(id.as_bytes()),
        };
        self.partitions().map(|partitions| u32::from(hash) % partitions)
    }

    /// How many partitions its clients are in, if they are in some.
    pub fn partitions(&self) -> Option<u32> {
        match self.spread {
            Spread::Partitions(partitions) if self.mode == Mode::PerClient => Some(partitions),
            _ => None,
        }
    }

    /// Its name with the number of a part in its hash tag: `{tidegate:rest:7}:all`.
    fn name_of_part(&self, number: u32) -> String {
        let [tag, rest] = self.around_part();
        format!("{tag}:{number}{rest}")
    }

    /// What stands before the number of a part in a name, and what stands after it.
    pub(crate) fn around_part(&self) -> [&str; 2] {
        let end = self.name.find('}').unwrap_or(self.name.len());
        let (tag, rest) = self.name.split_at(end);
        [tag, rest]
    }
}

impl Charge {
    /// The same on a shard of its limiter, or on the limiter itself if it has none.
    pub(crate) fn on_shard(&self, shard: Option<u16>) -> Self {
        let part = shard.and_then(|shard| self.limiter.shards().get(usize::from(shard)));
        Self { limiter: Arc::clone(part.unwrap_or(&self.limiter)), ..self.clone() }
    }
}

impl Quota {
    /// The part of this number, of so many that together are the whole.
    fn part(&self, number: u32, parts: u32) -> Self {
        let part = |permits: u32| permits / parts + u32::from(number < permits % parts);
        let algorithm = match self.algorithm {
            Algorithm::Gcra { burst } => Algorithm::Gcra { burst: part(burst) },
            Algorithm::LeakyBucket(queue) => {
                Algorithm::LeakyBucket(leaky_bucket::Queue { length: part(queue.length), ..queue })
            }
            same => same,
        };
        Self { rate: part(self.rate), algorithm, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limiter(rate: u32, algorithm: Algorithm) -> Limiter {
        let quota = Quota::new(rate.into(), 1_000, algorithm).expect("a quota");
        Limiter::new("{tidegate:rest}:all".to_owned(), Mode::Overall, quota)
    }

    #[test]
    fn the_number_of_a_part_stands_in_the_hash_tag() {
        let names = limiter(100, Algorithm::TokenBucket).sharded(2);
        let names: Vec<&str> = names.shards().iter().map(|shard| shard.name.as_str()).collect();
        assert_eq!(names, ["{tidegate:rest:0}:all", "{tidegate:rest:1}:all"]);
    }

    #[test]
    fn clients_are_spread_over_all_partitions() {
        let limiter = Limiter { mode: Mode::PerClient, ..limiter(1, Algorithm::TokenBucket) }.partitioned(64);
        let mut counts = [0; 64];
        for client in 0..64_000_u32 {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + client);
            let client = ClientId::Address(std::net::IpAddr::V4(address).into());
            let partition = limiter.partition_of(Some(&client)).expect("a partition");
            counts[usize::try_from(partition).expect("an index")] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn shards_have_the_quota_together_and_each_a_permit_at_least(
            rate in 1..=10_000_u32, burst in 1..=10_000_u32, shards in 0..=300_u32
        ) {
            let of = limiter(rate, Algorithm::Gcra { burst }).sharded(shards);
            let parts = of.shards();
            prop_assert_eq!(parts.is_empty(), shards.min(rate).min(burst) < 2);
            if !parts.is_empty() {
                let sum = |of: fn(&Quota) -> u32| parts.iter().map(|part| of(&part.quota)).sum::<u32>();
                prop_assert_eq!((sum(Quota::rate), sum(Quota::capacity)), (rate, burst));
                prop_assert!(parts.iter().all(|part| part.quota.rate() > 0 && part.quota.capacity() > 0));
            }
        }
    }
}
