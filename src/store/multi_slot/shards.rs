//! Charges on limits that are spread over shards: each takes from one of them. They are tried in round until one grants, without
//! those that are known to refuse. In a cluster those whose node is unreachable are passed over: the store has decided only if
//! another shard grants, or all of them refuse.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use tokio::time::Instant;

use super::migration;
use crate::clock::Timestamp;
use crate::limit::{Charge, Decision, Outcome};
use crate::store::StoreError;
use crate::store::negative_cache::{NegativeCache, Remote};

/// So often calls leave before requests begin at another shard. As long as they begin at one, those who wait for its node leave
/// together; each shard that they begin at meanwhile would have smaller calls under way. A call for many counts as several, so
/// that a slow node has help sooner.
const CALLS_PER_SHARD: u64 = 16;

/// A charge on a limit in shards.
struct ShardSearch<'c, S> {
    cache: &'c NegativeCache<S>,
    /// Its position among the charges.
    position: usize,
    charge: &'c Charge,
    /// The shard to begin with.
    first: u16,
    /// How many were looked at.
    tried: u16,
    /// The shard that is asked.
    shard: u16,
    /// Of the shards that refused, what the one said that has a permit first.
    refusal: Option<Decision>,
}

/// Makes all charges or none.
///
/// # Errors
/// The store could not decide; shards that were asked before have refused, and nothing is charged.
pub(super) async fn take<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    now: Option<Timestamp>,
    deadline: Instant,
) -> Result<Outcome, StoreError> {
    if charges.iter().all(|charge| charge.limiter.shards().is_empty()) {
        return migration::take(cache, charges, now, deadline).await;
    }
    // Boxed, so that limits without shards do without the memory that this needs.
    take_from_shards(cache, charges, now, deadline).boxed().await
}

async fn take_from_shards<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    now: Option<Timestamp>,
    deadline: Instant,
) -> Result<Outcome, StoreError> {
    let is_in_shards = |(_, charge): &(usize, &Charge)| !charge.limiter.shards().is_empty();
    let in_shards = charges.iter().enumerate().filter(is_in_shards);
    let mut searches: Vec<ShardSearch<'_, S>> =
        in_shards.map(|(position, charge)| ShardSearch::new(cache, position, charge)).collect();
    let (mut asked, mut unreachable) = (charges.to_vec(), Ok(()));
    loop {
        searches.iter().for_each(|search| asked[search.position] = search.charge_on_shard());
        let mut outcome = match migration::take(cache, &asked, now, deadline).await {
            Ok(outcome) => outcome,
            // Nothing was sent. Charges on one limit in shards are alone in a call there.
            Err(error @ StoreError::Unreachable) if is_in_cluster(cache, charges) && searches[0].advance() => {
                unreachable = Err(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        searches.iter_mut().for_each(|search| search.record(&mut outcome.decisions[search.position]));
        if outcome.granted() {
            // Only shadows can have been refused.
            for search in &mut searches {
                let decision = &mut outcome.decisions[search.position];
                if !decision.granted {
                    search.retry_shadow(decision, now, deadline).await;
                }
            }
            return Ok(outcome);
        }
        if !ShardSearch::advance_all(&mut searches, &outcome) {
            return unreachable.map(|()| outcome);
        }
    }
}

impl<'c, S: Remote> ShardSearch<'c, S> {
    /// Begins with the first shard that is not known to refuse; if all are, with any.
    fn new(cache: &'c NegativeCache<S>, position: usize, charge: &'c Charge) -> Self {
        let first = choose_first_shard(shard_count(charge), requests_per_shard(charge), cache.store().departures());
        let mut search = Self { cache, position, charge, first, tried: 0, shard: first, refusal: None };
        search.advance();
        search
    }

    /// What the present shard is asked for.
    fn charge_on_shard(&self) -> Charge {
        self.charge.on_shard(Some(self.shard))
    }

    /// Notes what the present shard said, and puts what the limit says so far in its place.
    fn record(&mut self, decision: &mut Decision) {
        decision.shard = Some(self.shard);
        if !decision.granted {
            let first = self.refusal.filter(|first| first.wait <= decision.wait).unwrap_or(*decision);
            *decision = *self.refusal.insert(first);
        }
    }

    /// Turns to the next shard that is not known to refuse, if there is one.
    fn advance(&mut self) -> bool {
        let shards = shard_count(self.charge);
        while self.tried < shards {
            let next = (self.first + self.tried) % shards;
            self.tried += 1;
            if !self.cache.refuses(&self.charge.on_shard(Some(next))) {
                self.shard = next;
                return true;
            }
        }
        false
    }

    /// Those that were refused go on to their next shards; false if that cannot help, since one that must grant has none.
    fn advance_all(searches: &mut [Self], outcome: &Outcome) -> bool {
        let is_refused = |search: &&mut Self| !search.charge.shadow && !outcome.decisions[search.position].granted;
        let mut refused: Vec<_> = searches.iter_mut().filter(is_refused).collect();
        !refused.is_empty() && refused.iter_mut().all(|search| search.advance())
    }

    /// Charges a shadow whose first shard refused, after the live charges were made.
    async fn retry_shadow(&mut self, decision: &mut Decision, now: Option<Timestamp>, deadline: Instant) {
        while !decision.granted && self.advance() {
            // The request goes on all the same.
            let Ok(outcome) = migration::take(self.cache, &[self.charge_on_shard()], now, deadline).await else {
                return;
            };
            *decision = outcome.decisions[0];
            self.record(decision);
        }
    }
}

/// How many requests in a row may begin at one shard: only a part of what it grants, for whoever is refused there asks another
/// one.
fn requests_per_shard(charge: &Charge) -> u32 {
    charge.limiter.shards().first().map_or(1, |shard| (shard.quota.rate() / 8).max(1))
}

fn is_in_cluster<S: Remote>(cache: &NegativeCache<S>, charges: &[Charge]) -> bool {
    charges.first().is_some_and(|first| cache.store().slot(first).is_some())
}

/// How many shards its limit has: a few hundred at most.
fn shard_count(charge: &Charge) -> u16 {
    u16::try_from(charge.limiter.shards().len()).unwrap_or_default()
}

/// Where to begin: at one shard for some calls. Steps of the golden ratio leave no shard out, whatever number of charges a
/// request has.
fn choose_first_shard(shards: u16, requests_per_shard: u32, departures: u64) -> u16 {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    let rows = REQUESTS.fetch_add(1, Ordering::Relaxed) / u64::from(requests_per_shard);
    let step = (rows + departures / CALLS_PER_SHARD).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u16::try_from(((step >> 48) * u64::from(shards)) >> 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_begin_at_one_shard_for_some_calls_and_at_all_shards_as_often() {
        let shard = |calls: u64| usize::from(choose_first_shard(8, u32::MAX, calls));
        let mut counts = [0; 8];
        for round in 0..800 {
            let first = shard(round * CALLS_PER_SHARD);
            assert_eq!(shard(round * CALLS_PER_SHARD + CALLS_PER_SHARD - 1), first);
            counts[first] += 1;
        }
        assert!(counts.iter().all(|counts| (98..=102).contains(counts)), "{counts:?}");
    }
}
