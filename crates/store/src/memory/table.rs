//! The buckets of one limit in one lock shard.

use std::mem::discriminant;
use std::slice;
use std::sync::Arc;

use hashbrown::hash_table::OccupiedEntry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::capacity::{BucketCapacity, LimitCapacity};
use super::lookup::{self, Lookup};
use super::owner::Owner;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{BucketState, Quota};
use tidegate_rules::charge::Limiter;

/// The buckets of one limit, by owner.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name_hash: u64,
    /// The latest limiter with this name; a reload creates a new one.
    limiter: Arc<Limiter>,
    slowest: SlowestQuotas,
    /// The capacity of the limit; `None` for an OVERALL limit.
    limit_capacity: Option<Arc<LimitCapacity>>,
    buckets: HashTable<Bucket>,
}

/// The quotas with the lowest rate and with the longest interval that used a table. Clients with other quotas share the
/// table, and by a faster quota a bucket in use would look full. Some algorithms depend on the rate, others on the
/// interval.
#[derive(Debug)]
struct SlowestQuotas([Quota; 2]);

/// The data that is stored for a client.
#[derive(Debug)]
struct Bucket {
    owner: Owner,
    state: BucketState,
}

// === impl Table ===

impl Table {
    pub(super) fn new(lookup: &Lookup<'_>, capacity: &BucketCapacity) -> Self {
        let limiter = Arc::clone(&lookup.charge.limiter);
        let limit_capacity = (!lookup.owner.is_overall()).then(|| capacity.limit_capacity_of(&limiter));
        let slowest = SlowestQuotas([limiter.quota; 2]);
        Self { name_hash: lookup.name_hash, limiter, slowest, limit_capacity, buckets: HashTable::new() }
    }

    /// Returns `true` if the table has the name, algorithm and mode of the lookup.
    pub(super) fn is_of(&self, lookup: &Lookup<'_>) -> bool {
        let (own, requested) = (&self.limiter, &lookup.charge.limiter);
        let alike = || discriminant(&own.quota.algorithm()) == discriminant(&requested.quota.algorithm());
        let same = Arc::ptr_eq(own, requested) || (own.name == requested.name && alike());
        same && self.limit_capacity.is_none() == lookup.owner.is_overall()
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the bytes of the table. Buckets that were used more than once have additional heap memory.
    #[cfg(test)]
    pub(super) fn occupied(&self) -> usize {
        self.buckets.allocation_size()
    }

    pub(super) fn limit_capacity(&self) -> Option<&Arc<LimitCapacity>> {
        self.limit_capacity.as_ref()
    }

    /// Returns the index of the bucket. It is valid until a bucket is added or the table is swept.
    pub(super) fn index(&self, lookup: &Lookup<'_>) -> Option<usize> {
        self.buckets.find_bucket_index(lookup.hash, |bucket| bucket.owner == lookup.owner)
    }

    pub(super) fn state(&self, index: usize) -> Option<&BucketState> {
        self.buckets.get_bucket(index).map(|bucket| &bucket.state)
    }

    pub(super) fn state_mut(&mut self, index: usize) -> Option<&mut BucketState> {
        self.buckets.get_bucket_mut(index).map(|bucket| &mut bucket.state)
    }

    /// Adds a bucket and returns its index.
    pub(super) fn add(&mut self, lookup: &Lookup<'_>, state: BucketState, hasher: &DefaultHashBuilder) -> usize {
        let bucket = Bucket { owner: lookup.owner, state };
        let rehash = |bucket: &Bucket| lookup::hash(bucket.owner, hasher);
        self.buckets.insert_unique(lookup.hash, bucket, rehash).bucket_index()
    }

    /// Removes the bucket at this index. Returns `false` if the bucket does not exist.
    pub(super) fn remove(&mut self, index: usize) -> bool {
        self.buckets.get_bucket_entry(index).map(OccupiedEntry::remove).is_ok()
    }

    /// Passes the limiter, the slowest quotas, and the owner and the state of each bucket in use to `each`.
    pub(super) fn each_in_use(&self, now: Timestamp, each: &mut impl FnMut(&Limiter, &[Quota], Owner, &BucketState)) {
        let quotas = self.slowest.distinct();
        let in_use = self.buckets.iter().filter(|bucket| bucket.is_in_use(quotas, now));
        in_use.for_each(|bucket| each(&self.limiter, quotas, bucket.owner, &bucket.state));
    }

    /// Keeps buckets that are in use by one of these quotas, as if they had used the table.
    pub(super) fn add_quotas(&mut self, quotas: &[Quota]) {
        quotas.iter().for_each(|quota| self.slowest.add(quota));
    }

    /// Uses this limiter, and so its quota, from this call on.
    pub(super) fn update_limiter(&mut self, limiter: &Arc<Limiter>) {
        if !Arc::ptr_eq(&self.limiter, limiter) {
            self.slowest.add(&limiter.quota);
            self.limiter = Arc::clone(limiter);
        }
    }

    /// Removes full buckets and releases their capacity. Returns `false` if no bucket is left.
    pub(super) fn sweep(&mut self, capacity: &BucketCapacity, now: Timestamp) -> bool {
        let (before, quotas) = (self.buckets.len(), self.slowest.distinct());
        self.buckets.retain(|bucket| bucket.is_in_use(quotas, now));
        if let Some(limit_capacity) = &self.limit_capacity {
            capacity.release(limit_capacity, before - self.buckets.len());
        }
        !self.buckets.is_empty()
    }
}

// === impl SlowestQuotas ===

impl SlowestQuotas {
    fn add(&mut self, quota: &Quota) {
        let [lowest_rate, longest] = &mut self.0;
        if is_slower(quota, lowest_rate) {
            *lowest_rate = *quota;
        }
        if quota.interval() > longest.interval() {
            *longest = *quota;
        }
    }

    /// Returns both quotas, or one if they are equal.
    fn distinct(&self) -> &[Quota] {
        let [lowest_rate, longest] = &self.0;
        if lowest_rate == longest { slice::from_ref(longest) } else { &self.0 }
    }
}

// === impl Bucket ===

impl Bucket {
    /// Returns `true` if the bucket is not full by one of these quotas.
    fn is_in_use(&self, quotas: &[Quota], now: Timestamp) -> bool {
        quotas.iter().any(|quota| self.state.full_at(quota) > now)
    }
}

/// Returns `true` if `quota` has a lower rate per time than `other`.
fn is_slower(quota: &Quota, other: &Quota) -> bool {
    let cross = |quota: &Quota, other: &Quota| u64::from(quota.rate()).saturating_mul(other.interval());
    cross(quota, other) < cross(other, quota)
}
