//! Names the buckets of all limits for the store that has them, and distributes them over the nodes of a Redis Cluster.

use std::collections::BTreeMap;

use super::Rules;
use crate::charge::{Limiter, Spread};
use crate::limits::rule::Limit;
use crate::settings::store::BucketNames;
use tidegate_limit::{Algorithm, Mode};

/// The default number of partitions with a Redis Cluster.
const DEFAULT_PARTITIONS: u32 = 64;

impl Rules {
    /// Renames the buckets for another store than the one of the rule file.
    #[doc(hidden)]
    pub fn rename_buckets(&mut self, from: &BucketNames, to: &BucketNames) {
        self.map_limits(|limit, _| limit.clone().with_limiters(|limiter| renamed(limiter, limit, from, to)));
        for concurrency in self.routes.iter_mut().filter_map(|route| route.concurrency.as_mut()) {
            if let Some(name) = from.name_in(to, &concurrency.name) {
                concurrency.name = name.into();
            }
        }
        self.distribute(to);
    }

    /// Partitions limits over the nodes of a Redis Cluster, unless the rule file sets `partitions`. The own limits of a
    /// route must all be PER_CLIENT with the same client. Then they share their partitions, and a single script call
    /// still decides all of them.
    #[doc(hidden)]
    pub fn distribute(&mut self, names: &BucketNames) {
        if !names.is_cluster {
            return;
        }
        let can_be_partitioned = |limit: &Limit| {
            let is_named = names.name_in(names, &limit.limiter.name).is_some();
            let is_own = is_named && !matches!(limit.limiter.quota.algorithm(), Algorithm::Redisson(_));
            is_own && limit.mode() == Mode::PerClient && !limit.sets_partitions
        };
        self.map_limits(|limit, limits| {
            let is_like = |other: &Limit| can_be_partitioned(other) && other.client == limit.client;
            match can_be_partitioned(limit)
                && (limit.is_shared || limits.iter().filter(|other| !other.is_shared).all(is_like))
            {
                true => limit.clone().with_limiters(|limiter| limiter.clone_whole().partitioned(DEFAULT_PARTITIONS)),
                false => limit.clone(),
            }
        });
    }

    /// Replaces each limit. `map` gets the limit and all limits of its route. A shared limit is mapped once.
    fn map_limits(&mut self, map: impl Fn(&Limit, &[Limit]) -> Limit) {
        let mut shared_limits = BTreeMap::<String, Limit>::new();
        for route in self.routes.iter_mut() {
            let limits = std::mem::take(&mut route.limits);
            let mapped = limits.iter().map(|limit| match limit.is_shared {
                true => shared_limits.entry(limit.name.clone()).or_insert_with(|| map(limit, &limits)).clone(),
                false => map(limit, &limits),
            });
            route.limits = mapped.collect();
        }
    }
}

/// Returns the limiter with the name in another store, in as many partitions or shards. The default partitions of a
/// Redis Cluster are omitted.
fn renamed(limiter: &Limiter, limit: &Limit, from: &BucketNames, to: &BucketNames) -> Limiter {
    let whole = limiter.clone_whole();
    let whole = match from.name_in(to, &limiter.name) {
        Some(name) if !matches!(limiter.quota.algorithm(), Algorithm::Redisson(_)) => {
            Limiter::new(name, limiter.mode, limiter.quota)
        }
        _ => whole,
    };
    let count = |parts: usize| u32::try_from(parts).unwrap_or(1);
    match &limiter.spread {
        Spread::Partitions(numbers) if limit.sets_partitions => whole.partitioned(count(numbers.len())),
        Spread::Shards(shards) => whole.sharded(count(shards.len())),
        Spread::Undivided | Spread::Partitions(_) => whole,
    }
}
