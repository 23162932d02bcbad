//! Permits that were granted locally during an outage of the store and are still in use.
//!
//! They are charged to the store before its next decision, so that its windows include local grants. They are charged
//! in any case, as outcomes (`charge_on`) are: permits that a bucket lacks are its debt. So outages that follow each
//! other do not exceed the rate again and again. Only local grants of calendar windows leave no debt to the next
//! window. Grants in one time step are merged and dated at the latest of them, so that no permit returns too early.

mod transfer;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tidegate_limit::Quota;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::random::random;
use tidegate_rules::charge::{BucketId, Charge, ChargeKind, ClientId, Granted, Limiter};

/// The maximum number of buckets with local grants. Beyond it, grants to new buckets count as `uncharged` and are never
/// charged. Only an outage with very many different clients reaches this bound.
const MAX_BUCKETS: usize = 1 << 16;

/// The number of time steps in the retention of a permit. Grants in one step are merged.
const MERGE_STEPS: u64 = 16;

/// The maximum number of buckets in a late charge.
const MAX_CHARGED_BUCKETS: usize = 64;

/// The minimum time, in milliseconds, between two removals of expired permits from a full table.
const SWEEP_EVERY: u64 = 1_000;

/// The local grants of this gateway that the store is not charged with yet.
#[derive(Debug, Default)]
pub(crate) struct LocalGrants {
    by_bucket: HashMap<(BucketId, ChargeKind), BucketGrants>,
    /// The number of granted permits that were not recorded, for lack of capacity.
    pub uncharged: u64,
    next_sweep: Timestamp,
    pending: VecDeque<LateCharge>,
    /// How often [`form_late_charges`](Self::form_late_charges) was called.
    pub passes: u64,
}

/// Local grants that one call charges to the store. A late charge may be sent again: the store recognizes its id and
/// makes it once.
#[derive(Clone, Debug)]
pub struct LateCharge {
    pub id: u64,
    /// Grants of one kind, limiter and hash tag.
    pub buckets: Vec<BucketGrants>,
}

/// The local grants of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketGrants {
    pub limiter: Arc<Limiter>,
    pub client: Option<ClientId>,
    /// Whether the permits are charged in any case, or only if the bucket has them (`Take`).
    pub kind: ChargeKind,
    /// Oldest first.
    pub grants: Vec<LocalGrant>,
}

/// Local grants of one time step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalGrant {
    /// The time of the latest of them, by the clock of this gateway.
    pub at: Timestamp,
    /// The sum of their permits.
    pub permits: u32,
}

impl LocalGrants {
    /// Records permits that were granted locally.
    pub(crate) fn add(&mut self, granted: &[Granted], now: Timestamp) {
        for grant in granted.iter().filter(|grant| !grant.charge.shadow) {
            let kind = kind_of(&grant.charge);
            let key = (grant.charge.bucket_id(), kind);
            if !self.by_bucket.contains_key(&key) && !self.has_capacity(now) {
                self.uncharged += u64::from(grant.charge.permits);
                continue;
            }
            let Charge { limiter, client, .. } = &grant.charge;
            let limiter = Arc::clone(limiter);
            let empty =
                || BucketGrants { limiter: Arc::clone(&limiter), client: client.clone(), kind, grants: Vec::new() };
            let bucket = self.by_bucket.entry(key).or_insert_with(empty);
            bucket.limiter = Arc::clone(&limiter);
            if bucket.grants.len() as u64 > MERGE_STEPS {
                bucket.retain_live(now);
            }
            bucket.add(grant.at, grant.charge.permits);
        }
    }

    /// Removes refunded permits.
    pub(crate) fn remove_refunded(&mut self, granted: &[Granted]) {
        for grant in granted {
            let key = (grant.charge.bucket_id(), kind_of(&grant.charge));
            let Some(bucket) = self.by_bucket.get_mut(&key) else { continue };
            bucket.remove_refunded(grant.at, grant.charge.permits);
            if bucket.grants.is_empty() {
                self.by_bucket.remove(&key);
            }
        }
    }

    /// Returns the number of permits to charge. May include permits that have expired since.
    pub(crate) fn owed_permits(&self) -> u64 {
        self.by_bucket.values().map(BucketGrants::permits).sum::<u64>()
            + self.pending.iter().map(LateCharge::permits).sum::<u64>()
    }

    /// Removes the grants of buckets that match, since an operator has reset them.
    pub(crate) fn remove_reset(&mut self, is_reset: impl Fn(&Limiter, Option<&ClientId>) -> bool) {
        let is_kept = |bucket: &BucketGrants| !is_reset(&bucket.limiter, bucket.client.as_ref());
        self.by_bucket.retain(|_, bucket| is_kept(bucket));
        self.pending.iter_mut().for_each(|late_charge| late_charge.buckets.retain(is_kept));
        self.pending.retain(|late_charge| !late_charge.buckets.is_empty());
    }

    /// Removes the grants of buckets that match until this time. Returns `true` if no later grants are left.
    pub(crate) fn remove_reset_until(
        &mut self,
        until: Timestamp,
        is_reset: impl Fn(&Limiter, Option<&ClientId>) -> bool,
    ) -> bool {
        let mut is_all = true;
        let mut is_kept = |bucket: &mut BucketGrants| {
            if !is_reset(&bucket.limiter, bucket.client.as_ref()) {
                return true;
            }
            bucket.grants.retain(|grant| grant.at > until);
            is_all &= bucket.grants.is_empty();
            !bucket.grants.is_empty()
        };
        self.by_bucket.retain(|_, bucket| is_kept(bucket));
        self.pending.iter_mut().for_each(|late_charge| late_charge.buckets.retain_mut(&mut is_kept));
        self.pending.retain(|late_charge| !late_charge.buckets.is_empty());
        is_all
    }

    /// Returns `true` if there is nothing to charge.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_bucket.is_empty() && self.pending.is_empty()
    }

    /// Returns the next late charge with a bucket that matches `owns`, unless it is postponed. Repeats a late charge
    /// until it is removed, has expired or was reset.
    ///
    /// `owns` returns `true` for the buckets of the node that is charged. `postponed` lists the ids of the charges that
    /// this charger has left to another one.
    pub(crate) fn next_late_charge(
        &mut self,
        now: Timestamp,
        owns: impl Fn(&Limiter, Option<&ClientId>) -> bool,
        postponed: &[u64],
    ) -> Option<LateCharge> {
        self.pending
            .iter_mut()
            .for_each(|late_charge| late_charge.buckets.retain_mut(|bucket| bucket.retain_live(now)));
        self.pending.retain(|late_charge| !late_charge.buckets.is_empty());
        let is_next = |late_charge: &&LateCharge| {
            !postponed.contains(&late_charge.id) && late_charge.buckets.iter().any(|bucket| bucket.matches(&owns))
        };
        if !self.pending.iter().any(|late_charge| is_next(&late_charge)) {
            self.form_late_charges(now, &owns);
        }
        self.pending.iter().find(is_next).cloned()
    }

    /// Removes a late charge that is not sent again: it was made, or cannot be charged.
    pub(crate) fn remove_late_charge(&mut self, id: u64) {
        self.pending.retain(|late_charge| late_charge.id != id);
    }

    /// Turns the grants of buckets that match `owns` into late charges of at most [`MAX_CHARGED_BUCKETS`] buckets each,
    /// with one hash tag, one quota and one kind. In a handover, a late charge is serialized with one limiter.
    #[expect(clippy::mutable_key_type, reason = "calendars are hashed by their address")]
    fn form_late_charges(&mut self, now: Timestamp, owns: &impl Fn(&Limiter, Option<&ClientId>) -> bool) {
        self.passes += 1;
        let mut by_hash_tag: HashMap<(String, Quota, Option<u32>, ChargeKind), Vec<BucketGrants>> = HashMap::new();
        let matching = self.by_bucket.extract_if(|_, bucket| bucket.matches(owns));
        for (_, mut bucket) in matching {
            if bucket.retain_live(now) {
                let partition = bucket.limiter.partition_of(bucket.client.as_ref());
                let hash_tag = (bucket.limiter.name.clone(), bucket.limiter.quota, partition, bucket.kind);
                by_hash_tag.entry(hash_tag).or_default().push(bucket);
            }
        }
        let first = u64::from(u32::from_le_bytes(random()));
        for buckets in by_hash_tag.into_values().flat_map(|buckets| BucketGrants::divide_by_shards(buckets, first)) {
            if buckets.iter().any(|bucket| bucket.matches(owns)) {
                let late_charge = |buckets: &[BucketGrants]| LateCharge {
                    id: u64::from_le_bytes(random()),
                    buckets: buckets.to_vec(),
                };
                self.pending.extend(buckets.chunks(MAX_CHARGED_BUCKETS).map(late_charge));
            } else {
                // The grants of other shards, whose node may be unreachable for long.
                buckets.into_iter().for_each(|bucket| self.keep(bucket, now));
            }
        }
    }

    /// Keeps the grants of a shard, together with its earlier grants.
    fn keep(&mut self, bucket: BucketGrants, now: Timestamp) {
        let key = ((bucket.limiter.name.clone(), bucket.client.clone()), bucket.kind);
        match self.by_bucket.get_mut(&key) {
            Some(present) => {
                _ = present.retain_live(now);
                bucket.grants.into_iter().for_each(|grant| present.add(grant.at, grant.permits));
            }
            None => _ = self.by_bucket.insert(key, bucket),
        }
    }

    fn has_capacity(&mut self, now: Timestamp) -> bool {
        if self.by_bucket.len() >= MAX_BUCKETS && now >= self.next_sweep {
            self.next_sweep = now.plus_millis(SWEEP_EVERY);
            self.by_bucket.retain(|_, bucket| bucket.retain_live(now));
        }
        self.by_bucket.len() < MAX_BUCKETS
    }
}

impl LateCharge {
    /// Returns the number of permits.
    pub fn permits(&self) -> u64 {
        self.buckets.iter().map(BucketGrants::permits).sum()
    }
}

impl BucketGrants {
    fn permits(&self) -> u64 {
        self.grants.iter().map(|grant| u64::from(grant.permits)).sum()
    }

    fn add(&mut self, at: Timestamp, permits: u32) {
        let step = self.limiter.quota.retention_millis().div_ceil(MERGE_STEPS);
        match self.grants.last_mut() {
            Some(last) if last.at.as_millis() / step == at.as_millis() / step => {
                last.at = at.max(last.at);
                last.permits = last.permits.saturating_add(permits);
            }
            _ => self.grants.push(LocalGrant { at, permits }),
        }
    }

    /// Returns `true` if the bucket matches `owns`. For a limiter in shards, one shard is enough.
    fn matches(&self, owns: &impl Fn(&Limiter, Option<&ClientId>) -> bool) -> bool {
        match self.limiter.shards() {
            [] => owns(&self.limiter, self.client.as_ref()),
            shards => shards.iter().any(|shard| owns(shard, None)),
        }
    }

    /// Divides the grants of a limiter among its shards, since a local decision has no shard. The permits are numbered
    /// from `first` on, and shard `number` gets each permit whose number has this remainder: single permits would
    /// otherwise all be charged to one shard.
    fn divide_by_shards(buckets: Vec<Self>, first: u64) -> Vec<Vec<Self>> {
        let shards = buckets.first().map_or(&[][..], |bucket| bucket.limiter.shards());
        if shards.is_empty() {
            return vec![buckets];
        }
        let of_shard = |(number, shard): (u64, &Arc<Limiter>)| {
            buckets.iter().filter_map(|bucket| bucket.part_of_shard(shard, number, first)).collect()
        };
        (0..).zip(shards).map(of_shard).collect()
    }

    /// Returns the part of the grants for one of the shards.
    fn part_of_shard(&self, shard: &Arc<Limiter>, number: u64, first: u64) -> Option<Self> {
        let shards = self.limiter.shards().len() as u64;
        let part_below = |end: u64| (end + shards - 1 - number) / shards;
        let mut next = first;
        let part = |grant: &LocalGrant| {
            let begin = next;
            next += u64::from(grant.permits);
            let permits = u32::try_from(part_below(next) - part_below(begin)).unwrap_or(u32::MAX);
            LocalGrant { at: grant.at, permits }
        };
        let grants: Vec<_> = self.grants.iter().map(part).filter(|grant| grant.permits > 0).collect();
        (!grants.is_empty()).then(|| Self {
            limiter: Arc::clone(shard),
            client: self.client.clone(),
            kind: self.kind,
            grants,
        })
    }

    fn remove_refunded(&mut self, at: Timestamp, mut permits: u32) {
        for grant in self.grants.iter_mut().rev().filter(|grant| grant.at >= at) {
            let taken = permits.min(grant.permits);
            (grant.permits, permits) = (grant.permits - taken, permits - taken);
        }
        self.grants.retain(|grant| grant.permits > 0);
    }

    /// Removes expired permits. Returns `false` if nothing is left.
    fn retain_live(&mut self, now: Timestamp) -> bool {
        let retention = self.limiter.quota.retention_millis();
        self.grants.retain(|grant| grant.at.plus_millis(retention) > now);
        !self.grants.is_empty()
    }
}

/// Returns how the store is charged with a local grant of this charge.
fn kind_of(charge: &Charge) -> ChargeKind {
    if charge.limiter.quota.algorithm().calendar().is_some() { charge.kind } else { ChargeKind::Unconditional }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_limit::{Algorithm, Mode};

    fn granted(limiter: &Arc<Limiter>, at: u64, permits: u32) -> Granted {
        let charge = Charge::new(Arc::clone(limiter), None, permits);
        Granted { charge, at: Timestamp::from_millis(at), overflow: false }
    }

    fn limiter() -> Arc<Limiter> {
        let quota = Quota::new(100_000, 1_600, Algorithm::TokenBucket).expect("a quota");
        Arc::new(Limiter::new("a".into(), Mode::Overall, quota))
    }

    fn late_charges(local_grants: &mut LocalGrants, now: u64) -> Vec<(u64, u32)> {
        let mut grants_sent = Vec::new();
        while let Some(late_charge) = local_grants.next_late_charge(Timestamp::from_millis(now), |_, _| true, &[]) {
            let grants = late_charge.buckets.iter().flat_map(|bucket| &bucket.grants);
            grants_sent.extend(grants.map(|grant| (grant.at.as_millis(), grant.permits)));
            local_grants.remove_late_charge(late_charge.id);
        }
        grants_sent
    }

    #[test]
    fn grants_of_a_time_step_are_merged_at_the_latest() {
        let (limiter, mut local_grants) = (limiter(), LocalGrants::default());
        for at in [1_000, 1_010, 1_099, 1_100, 1_250] {
            local_grants.add(&[granted(&limiter, at, 2)], Timestamp::from_millis(at));
        }
        assert_eq!(late_charges(&mut local_grants, 1_300), [(1_099, 6), (1_100, 2), (1_250, 2)]);
        assert!(local_grants.is_empty());
    }

    #[test]
    fn returned_permits_are_not_charged() {
        let (limiter, mut local_grants) = (limiter(), LocalGrants::default());
        for at in 0..100_000 {
            local_grants.add(&[granted(&limiter, at, 1)], Timestamp::from_millis(at));
        }
        let charged = late_charges(&mut local_grants, 100_000);
        assert!(charged.len() <= 17, "{charged:?}");
        assert_eq!(charged.iter().map(|(_, permits)| permits).sum::<u32>(), 1_600);
    }

    /// A burst above the rate takes longer than an interval to return, and a segment ends after its last grant.
    #[test]
    fn grant_is_charged_as_long_as_its_permits_count() {
        let (burst, segments) = (Algorithm::Gcra { burst: 4 }, Algorithm::SlidingWindow { segments: 2 });
        for (algorithm, retention) in [(Algorithm::TokenBucket, 1_000), (burst, 2_000), (segments, 1_500)] {
            let quota = Quota::new(2, 1_000, algorithm).expect("a quota");
            let limiter = Arc::new(Limiter::new("a".into(), Mode::Overall, quota));
            let charged = |now| {
                let mut local_grants = LocalGrants::default();
                local_grants.add(&[granted(&limiter, 1_000, 1)], Timestamp::from_millis(1_000));
                late_charges(&mut local_grants, now).len()
            };
            assert_eq!([charged(999 + retention), charged(1_000 + retention)], [1, 0], "{algorithm:?}");
        }
    }

    #[test]
    fn unconfirmed_charge_is_repeated_with_its_id() {
        let (limiter, mut local_grants) = (limiter(), LocalGrants::default());
        local_grants.add(&[granted(&limiter, 1_000, 1)], Timestamp::from_millis(1_000));
        let first =
            local_grants.next_late_charge(Timestamp::from_millis(1_000), |_, _| true, &[]).expect("a late charge");
        local_grants.add(&[granted(&limiter, 1_010, 1)], Timestamp::from_millis(1_010));
        let again =
            local_grants.next_late_charge(Timestamp::from_millis(1_010), |_, _| true, &[]).expect("a late charge");
        assert_eq!((again.id, &again.buckets), (first.id, &first.buckets));
        local_grants.remove_late_charge(first.id);
        assert_eq!(late_charges(&mut local_grants, 1_010), [(1_010, 1)]);
    }

    #[test]
    fn grants_of_a_limiter_in_shards_are_divided_evenly() {
        let quota = Quota::new(100, 1_600, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("{a}:b".into(), Mode::Overall, quota).sharded(3));
        // Regression test: the first shard was charged for all of these single permits.
        let single = (0..12).map(|step| (1_000 + 100 * step, 1)).collect::<Vec<_>>();
        for (grants, evenly) in [(vec![(1_000, 7), (1_200, 1)], [2, 3, 3]), (single, [4, 4, 4])] {
            let mut local_grants = LocalGrants::default();
            for (at, permits) in grants {
                local_grants.add(&[granted(&limiter, at, permits)], Timestamp::from_millis(at));
            }
            let mut charged = Vec::new();
            while let Some(late_charge) = local_grants.next_late_charge(Timestamp::from_millis(2_100), |_, _| true, &[])
            {
                let names: Vec<&str> = late_charge.buckets.iter().map(|bucket| bucket.limiter.name.as_str()).collect();
                assert_eq!(names.len(), 1, "one hash tag in a call");
                assert!(limiter.shards().iter().any(|shard| shard.name == names[0]));
                charged.push(late_charge.permits());
                local_grants.remove_late_charge(late_charge.id);
            }
            charged.sort_unstable();
            assert_eq!(charged, evenly);
        }
    }

    /// A shard may be on a node that is unreachable for long.
    #[test]
    fn grants_of_an_unreachable_shard_stay_merged() {
        let quota = Quota::new(100, 1_600, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("{a}:b".into(), Mode::Overall, quota).sharded(2));
        let (mut local_grants, mut charged) = (LocalGrants::default(), 0);
        for at in 1_000..1_100 {
            let now = Timestamp::from_millis(at);
            local_grants.add(&[granted(&limiter, at, 2)], now);
            while let Some(late_charge) = local_grants.next_late_charge(now, |shard, _| shard.name == "{a:0}:b", &[]) {
                charged += late_charge.permits();
                local_grants.remove_late_charge(late_charge.id);
            }
        }
        assert_eq!((charged, local_grants.pending.len(), local_grants.by_bucket.len()), (100, 0, 1));
        assert_eq!(late_charges(&mut local_grants, 1_100), [(1_099, 100)]);
    }

    #[test]
    fn refund_reduces_the_late_charge() {
        let (limiter, mut local_grants) = (limiter(), LocalGrants::default());
        local_grants.add(&[granted(&limiter, 1_000, 3)], Timestamp::from_millis(1_000));
        local_grants.remove_refunded(&[granted(&limiter, 1_000, 1)]);
        assert_eq!(late_charges(&mut local_grants, 1_000), [(1_000, 2)]);
    }

    #[test]
    fn local_grants_of_a_flood_are_bounded() {
        let (limiter, mut local_grants) = (limiter(), LocalGrants::default());
        for client in 0..MAX_BUCKETS as u64 + 10 {
            let mut grant = granted(&limiter, 1_000, 1);
            grant.charge.client = Some(ClientId::Value(client.to_le_bytes().into()));
            local_grants.add(&[grant], Timestamp::from_millis(1_000));
        }
        assert_eq!((late_charges(&mut local_grants, 1_000).len(), local_grants.uncharged), (MAX_BUCKETS, 10));
    }
}
