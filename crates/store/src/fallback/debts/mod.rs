//! Debts: permits that were granted locally during an outage of the store and are still in use.
//!
//! They are charged to the store before its next decision, so that its windows include local grants. They are settled, as
//! outcomes (`charge_on`), which are owed, too: permits that a bucket lacks are its debt. So outages that follow each other do
//! not exceed the rate again and again. Only local grants of calendar windows leave no debt to the next window. Grants in one
//! time step are merged and dated at the latest of them, so that no permit returns too early.

mod transfer;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tidegate_limit::clock::Timestamp;
use tidegate_limit::random::random;
use tidegate_limit::{BucketId, Charge, ChargeKind, ClientId, Granted, Limiter, Quota};

/// The maximum number of buckets with debts. Beyond it, grants to new buckets count as `uncharged` and are never
/// charged. Only an outage with very many different clients reaches this bound.
const MAX_BUCKETS: usize = 1 << 16;

/// The number of time steps in the retention of a permit. Grants in one step are merged.
const MERGE_STEPS: u64 = 16;

/// The maximum number of buckets in a payment.
const MAX_PAYMENT: usize = 64;

/// The minimum time, in milliseconds, between two removals of expired permits from a full table.
const SWEEP_EVERY: u64 = 1_000;

/// All debts of this gateway.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    by_bucket: HashMap<(BucketId, ChargeKind), Debt>,
    /// The number of granted permits that were not recorded, for lack of capacity.
    pub uncharged: u64,
    next_sweep: Timestamp,
    unpaid: VecDeque<Payment>,
    /// How often [`begin_payments`](Self::begin_payments) was called.
    pub rounds: u64,
}

/// Debts that one call charges to the store. A payment may be sent again: the store recognizes its id and charges it
/// once.
#[derive(Clone, Debug)]
pub struct Payment {
    pub id: u64,
    /// Debts of one kind to one limiter and one hash tag.
    pub debts: Vec<Debt>,
}

/// The debt to one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debt {
    pub limiter: Arc<Limiter>,
    pub client: Option<ClientId>,
    /// Whether the permits are settled, or only charged (`Take`).
    pub kind: ChargeKind,
    /// The time and the number of permits of each grant, oldest first.
    pub grants: Vec<(Timestamp, u32)>,
}

impl Debts {
    /// Records permits that were granted locally.
    pub(crate) fn add(&mut self, granted: &[Granted], now: Timestamp) {
        for grant in granted.iter().filter(|grant| !grant.charge.shadow) {
            let kind = kind_of(&grant.charge);
            let bucket = (grant.charge.bucket_id(), kind);
            if !self.by_bucket.contains_key(&bucket) && !self.has_capacity(now) {
                self.uncharged += u64::from(grant.charge.permits);
                continue;
            }
            let Charge { limiter, client, .. } = &grant.charge;
            let limiter = Arc::clone(limiter);
            let empty = || Debt { limiter: Arc::clone(&limiter), client: client.clone(), kind, grants: Vec::new() };
            let debt = self.by_bucket.entry(bucket).or_insert_with(empty);
            debt.limiter = Arc::clone(&limiter);
            if debt.grants.len() as u64 > MERGE_STEPS {
                debt.retain_live(now);
            }
            debt.add(grant.at, grant.charge.permits);
        }
    }

    /// Removes refunded permits.
    pub(crate) fn remove_refunded(&mut self, granted: &[Granted]) {
        for grant in granted {
            let bucket = (grant.charge.bucket_id(), kind_of(&grant.charge));
            let Some(debt) = self.by_bucket.get_mut(&bucket) else { continue };
            debt.remove_refunded(grant.at, grant.charge.permits);
            if debt.grants.is_empty() {
                self.by_bucket.remove(&bucket);
            }
        }
    }

    /// Returns the number of owed permits. May include permits that have expired since.
    pub(crate) fn owed(&self) -> u64 {
        let new = self.by_bucket.values().flat_map(|debt| &debt.grants).map(|(_, permits)| u64::from(*permits));
        new.sum::<u64>() + self.unpaid.iter().map(Payment::permits).sum::<u64>()
    }

    /// Removes the debts to buckets that match, since an operator has reset them.
    pub(crate) fn forgive(&mut self, is_reset: impl Fn(&Limiter, Option<&ClientId>) -> bool) {
        let is_owed = |debt: &Debt| !is_reset(&debt.limiter, debt.client.as_ref());
        self.by_bucket.retain(|_, debt| is_owed(debt));
        self.unpaid.iter_mut().for_each(|payment| payment.debts.retain(is_owed));
        self.unpaid.retain(|payment| !payment.debts.is_empty());
    }

    /// Removes grants until this time from the debts to buckets that match. Returns `true` if no later grants are left.
    pub(crate) fn forgive_until(
        &mut self,
        until: Timestamp,
        is_reset: impl Fn(&Limiter, Option<&ClientId>) -> bool,
    ) -> bool {
        let mut is_all = true;
        let mut is_owed = |debt: &mut Debt| {
            if !is_reset(&debt.limiter, debt.client.as_ref()) {
                return true;
            }
            debt.grants.retain(|(at, _)| *at > until);
            is_all &= debt.grants.is_empty();
            !debt.grants.is_empty()
        };
        self.by_bucket.retain(|_, debt| is_owed(debt));
        self.unpaid.iter_mut().for_each(|payment| payment.debts.retain_mut(&mut is_owed));
        self.unpaid.retain(|payment| !payment.debts.is_empty());
        is_all
    }

    /// Returns `true` if there are no debts.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_bucket.is_empty() && self.unpaid.is_empty()
    }

    /// Returns the next payment that has a debt to a bucket that matches `owns` and is not postponed. Repeats a payment
    /// until it is [`paid`](Self::paid), has expired or is forgiven.
    ///
    /// `owns` returns `true` for the buckets of the node that is charged. `postponed` has the ids of payments that this
    /// settlement has left to another one.
    pub(crate) fn next_payment(
        &mut self,
        now: Timestamp,
        owns: impl Fn(&Limiter, Option<&ClientId>) -> bool,
        postponed: &[u64],
    ) -> Option<Payment> {
        self.unpaid.iter_mut().for_each(|payment| payment.debts.retain_mut(|debt| debt.retain_live(now)));
        self.unpaid.retain(|payment| !payment.debts.is_empty());
        let is_next = |payment: &&Payment| {
            !postponed.contains(&payment.id) && payment.debts.iter().any(|debt| debt.is_owed_to(&owns))
        };
        if !self.unpaid.iter().any(|payment| is_next(&payment)) {
            self.begin_payments(now, &owns);
        }
        self.unpaid.iter().find(is_next).cloned()
    }

    /// Removes a payment that is not sent again: it was charged, or cannot be charged.
    pub(crate) fn paid(&mut self, id: u64) {
        self.unpaid.retain(|payment| payment.id != id);
    }

    /// Turns debts to buckets that match `owns` into payments: to at most [`MAX_PAYMENT`] buckets each, with one hash
    /// tag, one quota and one kind. In a handover, a payment is serialized with one limiter.
    #[expect(clippy::mutable_key_type, reason = "calendars are hashed by their address")]
    fn begin_payments(&mut self, now: Timestamp, owns: &impl Fn(&Limiter, Option<&ClientId>) -> bool) {
        self.rounds += 1;
        let mut by_hash_tag: HashMap<(String, Quota, Option<u32>, ChargeKind), Vec<Debt>> = HashMap::new();
        let owed = self.by_bucket.extract_if(|_, debt| debt.is_owed_to(owns));
        for (_, mut debt) in owed {
            if debt.retain_live(now) {
                let partition = debt.limiter.partition_of(debt.client.as_ref());
                let hash_tag = (debt.limiter.name.clone(), debt.limiter.quota, partition, debt.kind);
                by_hash_tag.entry(hash_tag).or_default().push(debt);
            }
        }
        let first = u64::from(u32::from_le_bytes(random()));
        for debts in by_hash_tag.into_values().flat_map(|debts| Debt::divide_by_shards(debts, first)) {
            if debts.iter().any(|debt| debt.is_owed_to(owns)) {
                let payment = |debts: &[Debt]| Payment { id: u64::from_le_bytes(random()), debts: debts.to_vec() };
                self.unpaid.extend(debts.chunks(MAX_PAYMENT).map(payment));
            } else {
                // Debts to other shards, whose node may be unreachable for long.
                debts.into_iter().for_each(|debt| self.keep(debt, now));
            }
        }
    }

    /// Keeps the debt to a shard, together with earlier debts to it.
    fn keep(&mut self, debt: Debt, now: Timestamp) {
        let bucket = ((debt.limiter.name.clone(), debt.client.clone()), debt.kind);
        match self.by_bucket.get_mut(&bucket) {
            Some(present) => {
                _ = present.retain_live(now);
                debt.grants.into_iter().for_each(|(at, permits)| present.add(at, permits));
            }
            None => _ = self.by_bucket.insert(bucket, debt),
        }
    }

    fn has_capacity(&mut self, now: Timestamp) -> bool {
        if self.by_bucket.len() >= MAX_BUCKETS && now >= self.next_sweep {
            self.next_sweep = now.plus_millis(SWEEP_EVERY);
            self.by_bucket.retain(|_, debt| debt.retain_live(now));
        }
        self.by_bucket.len() < MAX_BUCKETS
    }
}

impl Payment {
    /// Returns the number of permits.
    pub fn permits(&self) -> u64 {
        self.debts.iter().flat_map(|debt| &debt.grants).map(|(_, permits)| u64::from(*permits)).sum()
    }
}

impl Debt {
    fn add(&mut self, at: Timestamp, permits: u32) {
        let step = self.limiter.quota.retention_millis().div_ceil(MERGE_STEPS);
        match self.grants.last_mut() {
            Some((last, sum)) if last.as_millis() / step == at.as_millis() / step => {
                *last = at.max(*last);
                *sum = sum.saturating_add(permits);
            }
            _ => self.grants.push((at, permits)),
        }
    }

    /// Returns `true` if the bucket matches `owns`. For a limiter in shards, one shard is enough.
    fn is_owed_to(&self, owns: &impl Fn(&Limiter, Option<&ClientId>) -> bool) -> bool {
        match self.limiter.shards() {
            [] => owns(&self.limiter, self.client.as_ref()),
            shards => shards.iter().any(|shard| owns(shard, None)),
        }
    }

    /// Divides the debts to a limiter among its shards, since local grants have no shard. The permits are numbered from
    /// `first` on, and shard `number` gets each permit whose number has this remainder: single permits would otherwise
    /// all be charged to one shard.
    fn divide_by_shards(debts: Vec<Self>, first: u64) -> Vec<Vec<Self>> {
        let Some(shards) = debts.first().map(|debt| debt.limiter.shards()).filter(|shards| !shards.is_empty()) else {
            return vec![debts];
        };
        (0..)
            .zip(shards)
            .map(|(number, shard)| debts.iter().filter_map(|debt| debt.part_for_shard(shard, number, first)).collect())
            .collect()
    }

    /// Returns the part of the debt to one of the shards.
    fn part_for_shard(&self, shard: &Arc<Limiter>, number: u64, first: u64) -> Option<Self> {
        let shards = self.limiter.shards().len() as u64;
        let part_below = |end: u64| (end + shards - 1 - number) / shards;
        let mut next = first;
        let part = |(at, permits): &(Timestamp, u32)| {
            let begin = next;
            next += u64::from(*permits);
            (*at, u32::try_from(part_below(next) - part_below(begin)).unwrap_or(u32::MAX))
        };
        let grants: Vec<_> = self.grants.iter().map(part).filter(|(_, permits)| *permits > 0).collect();
        (!grants.is_empty()).then(|| Self {
            limiter: Arc::clone(shard),
            client: self.client.clone(),
            kind: self.kind,
            grants,
        })
    }

    fn remove_refunded(&mut self, at: Timestamp, mut permits: u32) {
        for (_, sum) in self.grants.iter_mut().rev().filter(|(granted, _)| *granted >= at) {
            let taken = permits.min(*sum);
            (*sum, permits) = (*sum - taken, permits - taken);
        }
        self.grants.retain(|(_, sum)| *sum > 0);
    }

    /// Removes expired permits. Returns `false` if nothing is left.
    fn retain_live(&mut self, now: Timestamp) -> bool {
        let retention = self.limiter.quota.retention_millis();
        self.grants.retain(|(at, _)| at.plus_millis(retention) > now);
        !self.grants.is_empty()
    }
}

/// Returns how a debt for this charge is charged.
fn kind_of(charge: &Charge) -> ChargeKind {
    let is_calendar = charge.limiter.quota.algorithm().calendar().is_some();
    if is_calendar { charge.kind } else { ChargeKind::Settle }
}

/// Returns a random id for a gateway.
pub(crate) fn random_id() -> String {
    format!("{:016x}", u64::from_le_bytes(random()))
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

    fn payments(debts: &mut Debts, now: u64) -> Vec<(u64, u32)> {
        let mut grants_sent = Vec::new();
        while let Some(payment) = debts.next_payment(Timestamp::from_millis(now), |_, _| true, &[]) {
            let grants = payment.debts.iter().flat_map(|debt| &debt.grants);
            grants_sent.extend(grants.map(|(at, permits)| (at.as_millis(), *permits)));
            debts.paid(payment.id);
        }
        grants_sent
    }

    #[test]
    fn grants_of_a_time_step_are_merged_at_the_latest() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        for at in [1_000, 1_010, 1_099, 1_100, 1_250] {
            debts.add(&[granted(&limiter, at, 2)], Timestamp::from_millis(at));
        }
        assert_eq!(payments(&mut debts, 1_300), [(1_099, 6), (1_100, 2), (1_250, 2)]);
        assert!(debts.is_empty());
    }

    #[test]
    fn returned_permits_are_not_owed() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        for at in 0..100_000 {
            debts.add(&[granted(&limiter, at, 1)], Timestamp::from_millis(at));
        }
        let owed = payments(&mut debts, 100_000);
        assert!(owed.len() <= 17, "{owed:?}");
        assert_eq!(owed.iter().map(|(_, permits)| permits).sum::<u32>(), 1_600);
    }

    /// A burst above the rate takes longer than an interval to return, and a segment ends after its last grant.
    #[test]
    fn debt_lasts_as_long_as_its_permits_count() {
        let (burst, segments) = (Algorithm::Gcra { burst: 4 }, Algorithm::SlidingWindow { segments: 2 });
        for (algorithm, retention) in [(Algorithm::TokenBucket, 1_000), (burst, 2_000), (segments, 1_500)] {
            let quota = Quota::new(2, 1_000, algorithm).expect("a quota");
            let limiter = Arc::new(Limiter::new("a".into(), Mode::Overall, quota));
            let owed = |now| {
                let mut debts = Debts::default();
                debts.add(&[granted(&limiter, 1_000, 1)], Timestamp::from_millis(1_000));
                payments(&mut debts, now).len()
            };
            assert_eq!([owed(999 + retention), owed(1_000 + retention)], [1, 0], "{algorithm:?}");
        }
    }

    #[test]
    fn unconfirmed_payment_is_repeated_with_its_id() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        debts.add(&[granted(&limiter, 1_000, 1)], Timestamp::from_millis(1_000));
        let first = debts.next_payment(Timestamp::from_millis(1_000), |_, _| true, &[]).expect("a payment");
        debts.add(&[granted(&limiter, 1_010, 1)], Timestamp::from_millis(1_010));
        let again = debts.next_payment(Timestamp::from_millis(1_010), |_, _| true, &[]).expect("a payment");
        assert_eq!((again.id, &again.debts), (first.id, &first.debts));
        debts.paid(first.id);
        assert_eq!(payments(&mut debts, 1_010), [(1_010, 1)]);
    }

    #[test]
    fn debt_to_a_limiter_in_shards_is_divided_evenly() {
        let quota = Quota::new(100, 1_600, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("{a}:b".into(), Mode::Overall, quota).sharded(3));
        // Regression test: the first shard was charged for all of these single permits.
        let single = (0..12).map(|step| (1_000 + 100 * step, 1)).collect::<Vec<_>>();
        for (grants, evenly) in [(vec![(1_000, 7), (1_200, 1)], [2, 3, 3]), (single, [4, 4, 4])] {
            let mut debts = Debts::default();
            for (at, permits) in grants {
                debts.add(&[granted(&limiter, at, permits)], Timestamp::from_millis(at));
            }
            let mut owed = Vec::new();
            while let Some(payment) = debts.next_payment(Timestamp::from_millis(2_100), |_, _| true, &[]) {
                let names: Vec<&str> = payment.debts.iter().map(|debt| debt.limiter.name.as_str()).collect();
                assert_eq!(names.len(), 1, "one hash tag in a call");
                assert!(limiter.shards().iter().any(|shard| shard.name == names[0]));
                owed.push(payment.permits());
                debts.paid(payment.id);
            }
            owed.sort_unstable();
            assert_eq!(owed, evenly);
        }
    }

    /// A shard may be on a node that is unreachable for long.
    #[test]
    fn debt_to_an_unreachable_shard_stays_merged() {
        let quota = Quota::new(100, 1_600, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("{a}:b".into(), Mode::Overall, quota).sharded(2));
        let (mut debts, mut paid) = (Debts::default(), 0);
        for at in 1_000..1_100 {
            let now = Timestamp::from_millis(at);
            debts.add(&[granted(&limiter, at, 2)], now);
            while let Some(payment) = debts.next_payment(now, |shard, _| shard.name == "{a:0}:b", &[]) {
                paid += payment.permits();
                debts.paid(payment.id);
            }
        }
        assert_eq!((paid, debts.unpaid.len(), debts.by_bucket.len()), (100, 0, 1));
        assert_eq!(payments(&mut debts, 1_100), [(1_099, 100)]);
    }

    #[test]
    fn refund_reduces_the_debt() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        debts.add(&[granted(&limiter, 1_000, 3)], Timestamp::from_millis(1_000));
        debts.remove_refunded(&[granted(&limiter, 1_000, 1)]);
        assert_eq!(payments(&mut debts, 1_000), [(1_000, 2)]);
    }

    #[test]
    fn debts_of_a_flood_are_bounded() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        for client in 0..MAX_BUCKETS as u64 + 10 {
            let mut grant = granted(&limiter, 1_000, 1);
            grant.charge.client = Some(ClientId::Value(client.to_le_bytes().into()));
            debts.add(&[grant], Timestamp::from_millis(1_000));
        }
        assert_eq!((payments(&mut debts, 1_000).len(), debts.uncharged), (MAX_BUCKETS, 10));
    }
}
