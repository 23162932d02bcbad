//! The buckets of a request for permits, and their charges.

use std::time::Duration;

use super::effect::{Bucket, Effect};
use super::{Take, TakeError};
use crate::admission::OnceAsk;
use tidegate_rules::charge::{Charge, ChargeKind, Turn};
use tidegate_rules::limits::rule::{Limit, WaitPolicy};
use tidegate_rules::rules::Charges;

/// The buckets of a request for permits.
pub(super) struct Buckets<'e, 'a> {
    /// The buckets, each with the position of its entry in the request. Limits of one route are in the order of their route: in
    /// this order, requests wait for them.
    all: Vec<(usize, &'e Bucket<'a>)>,
    /// Whether a live limit has the rate 0. Then the buckets are only checked.
    pub(super) has_zero: bool,
}

impl<'e, 'a> Buckets<'e, 'a> {
    /// Creates the list of the buckets of a request.
    ///
    /// # Errors
    /// Two entries have the same bucket.
    pub(super) fn new(take: &Take, effects: &'e [Effect<'a>]) -> Result<Self, TakeError> {
        let mut all: Vec<(usize, &Bucket<'a>)> = Vec::with_capacity(effects.len());
        for (position, effect) in effects.iter().enumerate() {
            let Effect::Bucket(bucket) = effect else { continue };
            if all.iter().any(|(_, other)| other.is_same(bucket)) {
                return Err(TakeError::Twice(take.requests[position].limit.clone()));
            }
            all.push((position, bucket));
        }
        all.sort_by(|(_, first), (_, second)| first.order().cmp(&second.order()));
        let has_zero = effects.iter().any(|effect| matches!(effect, Effect::Zero { shadow: false }));
        Ok(Self { all, has_zero })
    }

    /// Returns the position of the entry of each bucket in the request.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> {
        self.all.iter().map(|(position, _)| *position)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(usize, &'e Bucket<'a>)> {
        self.all.iter()
    }

    /// Returns the limits, with the `max_wait` of the request.
    pub(super) fn limits(&self, max_wait: Duration) -> Vec<Limit> {
        self.iter().map(|(_, bucket)| own_limit(bucket, max_wait)).collect()
    }

    /// Returns the id of the request, if the decision may leave a receipt.
    pub(super) fn once(&self, take: &Take) -> Option<OnceAsk> {
        let id = take.once_id().filter(|_| !self.has_zero)?;
        let numbers = self.positions().map(|position| u8::try_from(position).unwrap_or(u8::MAX));
        Some(OnceAsk::new(id, numbers.collect()))
    }

    /// Returns the charges, in the order of the buckets and their limits.
    pub(super) fn charges<'l>(&self, take: &Take, limits: &'l [Limit]) -> Charges<'l> {
        let kind = if self.has_zero { ChargeKind::Check } else { ChargeKind::Take };
        let mut charges = Charges::new(limits);
        for (index, ((position, bucket), limit)) in self.iter().zip(limits).enumerate() {
            let Bucket { limiter, client, .. } = bucket;
            let (shadow, turn) = (limit.shadow, Turn::new(limiter, limit.wait_policy.is_some()));
            let charge = Charge::new(limiter.clone(), client.clone(), take.requests[*position].permits);
            charges.push(index, Charge { shadow, turn, kind, ..charge });
        }
        charges
    }
}

/// Returns the limit with the `max_wait` of the request. If requests to its route may wait, the request for permits does not overtake
/// them, even if it does not wait itself.
fn own_limit(Bucket { limit, limiter, .. }: &Bucket<'_>, max_wait: Duration) -> Limit {
    let may_wait = !max_wait.is_zero() || limit.wait_policy.is_some();
    let queue = limit.wait_policy.map_or(WaitPolicy::DEFAULT_QUEUE, |policy| policy.queue);
    let has_time_slots = limiter.quota.algorithm().has_time_slots();
    let wait_policy = (may_wait && !has_time_slots).then_some(WaitPolicy { max_wait, queue });
    Limit { wait_policy, ..(*limit).clone() }
}
