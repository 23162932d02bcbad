//! What was granted while the store could not be asked, as far as it is still in use.
//!
//! When the store is back it is charged with this before it is asked anything else, so that its windows count what
//! clients were granted. Grants that lie close together are told as one, dated at the latest: it is never free too early.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::limit::{ClientId, Granted, Limiter};

/// Buckets that are owed to at most. Beyond, grants are not told to the store: those of a flood of clients that were never
/// seen before, each with a bucket of its own.
const MAX_BUCKETS: usize = 1 << 16;

/// Into how many slots an interval is cut; grants of one slot are told as one.
const SLOTS: u64 = 16;

/// How often what has returned is looked for where there is no room, in milliseconds.
const SWEEP_EVERY: u64 = 1_000;

/// All that is owed.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    by_bucket: HashMap<Bucket, Debt>,
    /// Permits that were granted and are not told of.
    pub(crate) untold: u64,
    next_sweep: Timestamp,
}

/// A limiter's name and a client.
type Bucket = (String, Option<ClientId>);

/// What is owed to a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Debt {
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) client: Option<ClientId>,
    /// Permits and when they were granted, the oldest first.
    pub(crate) grants: Vec<(Timestamp, u32)>,
}

impl Debts {
    /// Notes what was granted; `now` is the present.
    pub(crate) fn add(&mut self, granted: &[Granted], now: Timestamp) {
        for one in granted.iter().filter(|one| !one.charge.shadow) {
            let bucket = bucket(one);
            if !self.by_bucket.contains_key(&bucket) && !self.has_room(now) {
                self.untold += u64::from(one.charge.permits);
                continue;
            }
            let (limiter, client) = (&one.charge.limiter, &one.charge.client);
            let empty = || Debt { limiter: Arc::clone(limiter), client: client.clone(), grants: Vec::new() };
            let debt = self.by_bucket.entry(bucket).or_insert_with(empty);
            debt.limiter = Arc::clone(limiter);
            if debt.grants.len() as u64 > SLOTS {
                debt.is_live(now);
            }
            debt.add(one.at, one.charge.permits);
        }
    }

    /// Forgets what was given back.
    pub(crate) fn take_out(&mut self, granted: &[Granted]) {
        for one in granted {
            let bucket = bucket(one);
            let Some(debt) = self.by_bucket.get_mut(&bucket) else { continue };
            debt.take_out(one.at, one.charge.permits);
            if debt.grants.is_empty() {
                self.by_bucket.remove(&bucket);
            }
        }
    }

    /// Is nothing owed?
    pub(crate) fn is_empty(&self) -> bool {
        self.by_bucket.is_empty()
    }

    /// Takes all that is owed and still in use.
    pub(crate) fn drain(&mut self, now: Timestamp) -> Vec<Debt> {
        let mut debts: Vec<Debt> = self.by_bucket.drain().map(|(_, debt)| debt).collect();
        debts.retain_mut(|debt| debt.is_live(now));
        debts
    }

    /// Puts back what could not be told.
    pub(crate) fn put_back(&mut self, debts: Vec<Debt>) {
        for debt in debts {
            let bucket = (debt.limiter.name.clone(), debt.client.clone());
            match self.by_bucket.get_mut(&bucket) {
                None => _ = self.by_bucket.insert(bucket, debt),
                Some(newer) => {
                    let since = std::mem::replace(&mut newer.grants, debt.grants);
                    since.into_iter().for_each(|(at, permits)| newer.add(at, permits));
                }
            }
        }
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.by_bucket.len() >= MAX_BUCKETS && now >= self.next_sweep {
            self.next_sweep = now.plus_millis(SWEEP_EVERY);
            self.by_bucket.retain(|_, debt| debt.is_live(now));
        }
        self.by_bucket.len() < MAX_BUCKETS
    }
}

impl Debt {
    fn add(&mut self, at: Timestamp, permits: u32) {
        let slot = self.limiter.quota.interval().div_ceil(SLOTS);
        match self.grants.last_mut() {
            Some((last, sum)) if last.as_millis() / slot == at.as_millis() / slot => {
                *last = at.max(*last);
                *sum = sum.saturating_add(permits);
            }
            _ => self.grants.push((at, permits)),
        }
    }

    fn take_out(&mut self, at: Timestamp, mut permits: u32) {
        for (_, sum) in self.grants.iter_mut().rev().filter(|(granted, _)| *granted >= at) {
            let taken = permits.min(*sum);
            (*sum, permits) = (*sum - taken, permits - taken);
        }
        self.grants.retain(|(_, sum)| *sum > 0);
    }

    /// Forgets what has returned; is anything left?
    fn is_live(&mut self, now: Timestamp) -> bool {
        let interval = self.limiter.quota.interval();
        self.grants.retain(|(at, _)| at.plus_millis(interval) > now);
        !self.grants.is_empty()
    }
}

fn bucket(granted: &Granted) -> Bucket {
    (granted.charge.limiter.name.clone(), granted.charge.client.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, Charge, Mode, Quota};

    fn granted(limiter: &Arc<Limiter>, at: u64, permits: u32) -> Granted {
        let charge = Charge { limiter: Arc::clone(limiter), client: None, permits, shadow: false };
        Granted { charge, at: Timestamp::from_millis(at), overflow: false }
    }

    fn limiter() -> Arc<Limiter> {
        let quota = Quota::new(100_000, 1_600, Algorithm::TokenBucket).expect("a quota");
        Arc::new(Limiter { name: "a".into(), mode: Mode::Overall, quota })
    }

    fn told(debts: &mut Debts, now: u64) -> Vec<(u64, u32)> {
        let debts = debts.drain(Timestamp::from_millis(now));
        debts.iter().flat_map(|debt| &debt.grants).map(|(at, permits)| (at.as_millis(), *permits)).collect()
    }

    #[test]
    fn grants_of_a_slot_are_told_as_one_dated_at_the_latest() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        for at in [1_000, 1_010, 1_099, 1_100, 1_250] {
            debts.add(&[granted(&limiter, at, 2)], Timestamp::from_millis(at));
        }
        assert_eq!(told(&mut debts, 1_300), [(1_099, 6), (1_100, 2), (1_250, 2)]);
        assert!(debts.is_empty());
    }

    #[test]
    fn what_has_returned_is_not_owed_and_a_long_outage_keeps_no_more_than_an_interval() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        for at in 0..100_000 {
            debts.add(&[granted(&limiter, at, 1)], Timestamp::from_millis(at));
        }
        let owed = told(&mut debts, 100_000);
        assert!(owed.len() <= 17, "{owed:?}");
        assert_eq!(owed.iter().map(|(_, permits)| permits).sum::<u32>(), 1_600);
    }

    #[test]
    fn what_could_not_be_told_is_owed_with_what_came_since() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        debts.add(&[granted(&limiter, 1_000, 1)], Timestamp::from_millis(1_000));
        let taken = debts.drain(Timestamp::from_millis(1_000));
        debts.add(&[granted(&limiter, 1_010, 1), granted(&limiter, 1_200, 1)], Timestamp::from_millis(1_200));
        debts.put_back(taken);
        assert_eq!(told(&mut debts, 1_200), [(1_010, 2), (1_200, 1)]);
    }

    #[test]
    fn what_was_given_back_is_not_owed() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        debts.add(&[granted(&limiter, 1_000, 3)], Timestamp::from_millis(1_000));
        debts.take_out(&[granted(&limiter, 1_000, 1)]);
        assert_eq!(told(&mut debts, 1_000), [(1_000, 2)]);
    }

    #[test]
    fn a_flood_of_clients_is_bounded_and_what_is_untold_is_counted() {
        let (limiter, mut debts) = (limiter(), Debts::default());
        for client in 0..MAX_BUCKETS as u64 + 10 {
            let mut one = granted(&limiter, 1_000, 1);
            one.charge.client = Some(ClientId::Value(client.to_le_bytes().into()));
            debts.add(&[one], Timestamp::from_millis(1_000));
        }
        assert_eq!((told(&mut debts, 1_000).len(), debts.untold), (MAX_BUCKETS, 10));
    }
}
