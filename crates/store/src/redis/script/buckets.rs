//! The buckets of a call in the format of the script: limiter by limiter, with the arguments that the buckets share.

use std::collections::HashMap;
use std::sync::Arc;

use super::algorithms::ScriptArgs;
use super::keys;
use tidegate_limit::Algorithm;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Limiter, Turn};
use tidegate_rules::settings::store::KeySecret;

/// The buckets of a call, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    limiters: Vec<LimiterBuckets>,
    len: usize,
    /// Whether several limiters have one name but different rules. An override gives some clients another rate.
    has_variants: bool,
}

/// The position of a bucket in a call: the position of its limiter, and its position among the limiter's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketIndex {
    pub(super) limiter: usize,
    pub(super) bucket: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedCharge {
    pub bucket: BucketIndex,
    /// Whether the bucket is a set of leases. Then `permits` is the number of the lease.
    pub is_slot: bool,
    pub shadow: bool,
    pub kind: ChargeKind,
    pub permits: u32,
    pub turn: Turn,
}

#[derive(Debug)]
struct LimiterBuckets {
    limiter: Arc<Limiter>,
    clients: Vec<Option<ClientId>>,
    index: HashMap<Option<ClientId>, usize>,
    /// Whether the buckets have tickets of waiting requests.
    is_ordered: bool,
}

impl Buckets {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the position of a charge's bucket, and adds the bucket if it is new.
    pub(crate) fn index(&mut self, charge: &Charge) -> BucketIndex {
        let limiter = self.limiter(&charge.limiter);
        let entry = &mut self.limiters[limiter];
        entry.is_ordered |= charge.turn.is_ordered();
        // Fast path for an OVERALL limit, or consecutive charges of one client.
        let next = entry.clients.len();
        let bucket = match entry.clients.last() {
            Some(last) if *last == charge.client => next - 1,
            _ => *entry.index.entry(charge.client.clone()).or_insert(next),
        };
        if bucket == next {
            entry.clients.push(charge.client.clone());
            self.len += 1;
        }
        BucketIndex { limiter, bucket }
    }

    /// Adds a charge's bucket, even if the same bucket was added before.
    pub(crate) fn add(&mut self, charge: &Charge) -> BucketIndex {
        let limiter = self.limiter(&charge.limiter);
        let entry = &mut self.limiters[limiter];
        entry.clients.push(charge.client.clone());
        self.len += 1;
        BucketIndex { limiter, bucket: entry.clients.len() - 1 }
    }

    /// Returns `true` if one of these buckets is present with another rule. In one call, the script would load such a
    /// bucket twice, and neither copy would contain the charges of the other.
    pub(crate) fn conflicts_with(&self, charges: &[Charge]) -> bool {
        let has_limiter =
            |charge: &Charge| self.limiters.iter().any(|entry| Arc::ptr_eq(&entry.limiter, &charge.limiter));
        let is_only = |charge: &Charge| !self.has_variants && has_limiter(charge);
        charges.iter().any(|charge| !is_only(charge) && self.limiters.iter().any(|entry| entry.conflicts_with(charge)))
    }

    fn limiter(&mut self, limiter: &Arc<Limiter>) -> usize {
        let is_it = |entry: &LimiterBuckets| Arc::ptr_eq(&entry.limiter, limiter);
        let same = |entry: &LimiterBuckets| *entry.limiter == **limiter;
        let existing = self.limiters.iter().position(is_it).or_else(|| self.limiters.iter().position(same));
        existing.unwrap_or_else(|| {
            self.has_variants |= self.limiters.iter().any(|entry| entry.limiter.name == limiter.name);
            let (clients, index) = (Vec::new(), HashMap::new());
            self.limiters.push(LimiterBuckets { limiter: Arc::clone(limiter), clients, index, is_ordered: false });
            self.limiters.len() - 1
        })
    }

    /// Returns the algorithms of all limiters.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        self.limiters.iter().map(|entry| entry.limiter.quota.algorithm())
    }

    /// Returns the number of each limiter's first bucket.
    pub(crate) fn first_numbers(&self) -> Vec<usize> {
        let mut next = 1;
        let first = |entry: &LimiterBuckets| {
            let first = next;
            next += entry.clients.len();
            first
        };
        self.limiters.iter().map(first).collect()
    }

    pub(crate) fn number_of_keys(&self) -> usize {
        let keys_of = |entry: &LimiterBuckets| {
            let clients = entry.clients.len();
            let tickets = if entry.is_ordered { clients } else { 0 };
            let reservations = if entry.limiter.budget.is_some() { 2 * clients } else { 0 };
            keys::count(entry.limiter.quota.algorithm(), clients) + tickets + reservations
        };
        self.limiters.iter().map(keys_of).sum()
    }

    /// Calls `each` with the keys, in the order of the script.
    pub(crate) fn each_key(&self, secret: &KeySecret, mut each: impl FnMut(&str)) {
        let mut key = String::with_capacity(128);
        for entry in &self.limiters {
            let reservations = if entry.limiter.budget.is_some() { &keys::RESERVATIONS[..] } else { &[] };
            if !entry.is_ordered && reservations.is_empty() {
                keys::for_each(&entry.limiter, &entry.clients, secret, &mut key, &mut each);
                continue;
            }
            keys::for_each(&entry.limiter, &entry.clients, secret, &mut key, |key| {
                each(key);
                reservations.iter().for_each(|suffix| each(&format!("{key}{suffix}")));
                if entry.is_ordered {
                    each(&format!("{key}{}", keys::TICKETS));
                }
            });
        }
    }

    /// Returns the arguments of the limiters, each with a trailing space. Calendar limits get the boundaries around
    /// `near`.
    pub(crate) fn limiter_args(&self, near: Timestamp) -> String {
        let mut args = ScriptArgs(String::with_capacity(40 * self.limiters.len()));
        for entry in &self.limiters {
            if entry.is_ordered {
                args.word("ordered");
            }
            args.limiter(&entry.limiter, near).number(entry.clients.len());
        }
        args.0
    }
}

impl LimiterBuckets {
    /// Returns `true` if the bucket of this charge is present with another rule. The buckets of a shared limiter have a
    /// common rule in Redis.
    fn conflicts_with(&self, charge: &Charge) -> bool {
        let is_redisson = || matches!(self.limiter.quota.algorithm(), Algorithm::Redisson(_));
        !Arc::ptr_eq(&self.limiter, &charge.limiter)
            && self.limiter.name == charge.limiter.name
            && *self.limiter != *charge.limiter
            && (is_redisson() || self.index.contains_key(&charge.client))
    }
}

impl RequestedCharge {
    /// See [`Charge::taken`].
    pub(crate) fn taken(&self) -> u32 {
        if self.kind.is_check() { 0 } else { self.permits }
    }

    /// Returns the flags of the charge in the script.
    pub(crate) fn flags(&self) -> u8 {
        let kind = match self.kind {
            ChargeKind::Take => 0,
            ChargeKind::Check => 2,
            ChargeKind::Unconditional => 16,
            ChargeKind::NoDebt => 66,
            ChargeKind::Reserve(_) => 128,
            ChargeKind::Settle(_) => 144,
        };
        kind | u8::from(self.shadow)
    }
}

impl BucketIndex {
    /// Returns the number of the bucket, given the number of each limiter's first bucket.
    pub(crate) fn number(self, first_numbers: &[usize]) -> usize {
        first_numbers[self.limiter] + self.bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_limit::redisson::Sharing;
    use tidegate_limit::{Mode, Quota};

    fn charge(limiter: &Arc<Limiter>, client: &str) -> Charge {
        let client = Some(ClientId::Value(client.as_bytes().into()));
        Charge::new(Arc::clone(limiter), client, 1)
    }

    #[test]
    fn clients_with_other_rates_share_a_call() {
        let limiter = |rate, algorithm| {
            let quota = Quota::new(rate, 1_000, algorithm).expect("a quota");
            Arc::new(Limiter::new("{a}:b".to_owned(), Mode::PerClient, quota))
        };
        for (algorithm, is_redisson) in
            [(Algorithm::TokenBucket, false), (Algorithm::Redisson(Sharing::Configure), true)]
        {
            let [base, adjusted] = [1, 5].map(|rate| limiter(rate, algorithm));
            let mut buckets = Buckets::default();
            buckets.index(&charge(&base, "one"));
            assert!(buckets.conflicts_with(&[charge(&adjusted, "one")]));
            assert_eq!(buckets.conflicts_with(&[charge(&adjusted, "other")]), is_redisson);
            buckets.index(&charge(&adjusted, "other"));
            assert!(buckets.conflicts_with(&[charge(&base, "other")]));
            assert!(!buckets.conflicts_with(&[charge(&base, "one")]) || is_redisson);
            assert!(!buckets.conflicts_with(&[charge(&limiter(1, algorithm), "one")]) || is_redisson);
        }
    }
}
