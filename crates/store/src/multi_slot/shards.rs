//! Charges on limits in shards: each charge is made on one shard. The shards are tried one after the other until one
//! grants; shards with a cached refusal are skipped. In a cluster, shards on unreachable nodes are skipped as well: the
//! store has decided only if another shard grants, or if all shards refuse.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use tokio::time::Instant;

use super::migration;
use crate::StoreError;
use crate::negative_cache::{NegativeCache, Remote};
use tidegate_rules::charge::{Charge, Decision, Outcome};

/// The number of calls after which requests start at another shard. While requests start at the same shard, they share
/// calls to its node; starting at several shards would make the calls smaller. A large call counts as several, so that
/// a slow node is relieved sooner.
const CALLS_PER_SHARD: u64 = 16;

/// The search for a shard that grants a charge.
struct ShardSearch<'c, S> {
    cache: &'c NegativeCache<S>,
    /// The position of the charge in the request.
    position: usize,
    charge: &'c Charge,
    /// The first shard.
    first: u16,
    /// The number of shards tried or skipped so far.
    tried: u16,
    /// The current shard.
    shard: u16,
    /// The refusal with the shortest wait so far.
    refusal: Option<Decision>,
}

/// Makes all charges or none.
///
/// # Errors
/// The store could not decide. The shards that were tried before have refused, so nothing is charged.
pub(super) async fn take<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    deadline: Instant,
) -> Result<Outcome, StoreError> {
    if charges.iter().all(|charge| charge.limiter.shards().is_empty()) {
        return migration::take(cache, charges, deadline).await;
    }
    take_from_shards(cache, charges, deadline).boxed().await
}

async fn take_from_shards<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    deadline: Instant,
) -> Result<Outcome, StoreError> {
    let is_in_shards = |(_, charge): &(usize, &Charge)| !charge.limiter.shards().is_empty();
    let in_shards = charges.iter().enumerate().filter(is_in_shards);
    let mut searches: Vec<ShardSearch<'_, S>> =
        in_shards.map(|(position, charge)| ShardSearch::new(cache, position, charge)).collect();
    let (mut shard_charges, mut unreachable) = (charges.to_vec(), Ok(()));
    loop {
        searches.iter().for_each(|search| shard_charges[search.position] = search.charge_on_shard());
        let mut outcome = match migration::take(cache, &shard_charges, deadline).await {
            Ok(outcome) => outcome,
            // Nothing was sent. In a cluster, a charge on a limit in shards is alone in its call.
            Err(error @ StoreError::Unreachable) if is_in_cluster(cache, charges) && searches[0].advance() => {
                unreachable = Err(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        searches.iter_mut().for_each(|search| search.record(&mut outcome.decisions[search.position]));
        if outcome.granted() {
            // Only shadows can be refused here.
            for search in &mut searches {
                let decision = &mut outcome.decisions[search.position];
                if !decision.granted {
                    search.retry_shadow(decision, deadline).await;
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
    /// Starts at the first shard without a cached refusal; at any shard if all have one.
    fn new(cache: &'c NegativeCache<S>, position: usize, charge: &'c Charge) -> Self {
        let first = choose_first_shard(shard_count(charge), requests_per_shard(charge), cache.store().call_count());
        let mut search = Self { cache, position, charge, first, tried: 0, shard: first, refusal: None };
        search.advance();
        search
    }

    fn charge_on_shard(&self) -> Charge {
        self.charge.on_shard(Some(self.shard))
    }

    /// Records the decision of the current shard, and replaces a refusal by the one with the shortest wait so far.
    fn record(&mut self, decision: &mut Decision) {
        decision.shard = Some(self.shard);
        if !decision.granted {
            let first = self.refusal.filter(|first| first.wait <= decision.wait).unwrap_or(*decision);
            *decision = *self.refusal.insert(first);
        }
    }

    /// Moves to the next shard without a cached refusal. Returns `false` if there is no such shard.
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

    /// Moves all refused live charges to their next shards. Returns `false` if one of them has no further shard.
    fn advance_all(searches: &mut [Self], outcome: &Outcome) -> bool {
        let is_refused = |search: &&mut Self| !search.charge.shadow && !outcome.decisions[search.position].granted;
        let mut refused: Vec<_> = searches.iter_mut().filter(is_refused).collect();
        !refused.is_empty() && refused.iter_mut().all(|search| search.advance())
    }

    /// Tries further shards for a shadow whose first shard refused, after the live charges were made.
    async fn retry_shadow(&mut self, decision: &mut Decision, deadline: Instant) {
        while !decision.granted && self.advance() {
            // A failure does not matter: the request is admitted anyway.
            let Ok(outcome) = migration::take(self.cache, &[self.charge_on_shard()], deadline).await else {
                return;
            };
            *decision = outcome.decisions[0];
            self.record(decision);
        }
    }
}

/// Returns how many consecutive requests start at one shard: a fraction of its rate, since each request that it refuses
/// costs a second call.
fn requests_per_shard(charge: &Charge) -> u32 {
    charge.limiter.shards().first().map_or(1, |shard| (shard.quota.rate() / 8).max(1))
}

fn is_in_cluster<S: Remote>(cache: &NegativeCache<S>, charges: &[Charge]) -> bool {
    charges.first().is_some_and(|first| cache.store().hash_slot(first).is_some())
}

/// Returns the number of shards of the limit: a few hundred at most.
fn shard_count(charge: &Charge) -> u16 {
    u16::try_from(charge.limiter.shards().len()).unwrap_or_default()
}

/// Returns the shard to start at, which stays the same for several calls. Steps of the golden ratio visit all shards,
/// for any number of charges in a request.
fn choose_first_shard(shards: u16, requests_per_shard: u32, call_count: u64) -> u16 {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    let rows = REQUESTS.fetch_add(1, Ordering::Relaxed) / u64::from(requests_per_shard);
    let step = (rows + call_count / CALLS_PER_SHARD).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u16::try_from(((step >> 48) * u64::from(shards)) >> 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_start_at_all_shards_equally_often() {
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
