//! Charges on limits that are spread over shards: each takes from one of them. They are tried in turn until one grants, without
//! those that are known to refuse. In a cluster those whose node is away are passed over: the store has decided only if
//! another shard grants, or all of them refuse.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use tokio::time::Instant;

use super::moving;
use crate::clock::Timestamp;
use crate::limit::{Charge, Decision, Outcome};
use crate::store::StoreError;
use crate::store::negative_cache::{NegativeCache, Remote};

/// So often calls leave before requests begin at another shard. As long as they begin at one, those who wait for its node leave
/// together; each shard that they begin at meanwhile would have smaller calls under way. A call for many counts as several, so
/// that a slow node has help sooner.
const TOGETHER: u64 = 16;

/// A charge on a limit in shards.
struct Tour<'c, S> {
    cache: &'c NegativeCache<S>,
    /// Its position among the charges.
    position: usize,
    charge: &'c Charge,
    /// The shard to begin with.
    first: u16,
    /// How many were looked at.
    looked_at: u16,
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
        return moving::take(cache, charges, now, deadline).await;
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
    let mut tours: Vec<Tour<'_, S>> = in_shards.map(|(position, charge)| Tour::new(cache, position, charge)).collect();
    let (mut asked, mut away) = (charges.to_vec(), Ok(()));
    loop {
        tours.iter().for_each(|tour| asked[tour.position] = tour.asked());
        let mut outcome = match moving::take(cache, &asked, now, deadline).await {
            Ok(outcome) => outcome,
            // Nothing was sent. Charges on one limit in shards are alone in a call there.
            Err(error @ StoreError::Unreachable) if is_in_cluster(cache, charges) && tours[0].goes_on() => {
                away = Err(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        tours.iter_mut().for_each(|tour| tour.note(&mut outcome.decisions[tour.position]));
        if outcome.granted() {
            // Only shadows can have been refused.
            for tour in &mut tours {
                let decision = &mut outcome.decisions[tour.position];
                if !decision.granted {
                    tour.watch_on(decision, now, deadline).await;
                }
            }
            return Ok(outcome);
        }
        if !Tour::all_go_on(&mut tours, &outcome) {
            return away.map(|()| outcome);
        }
    }
}

impl<'c, S: Remote> Tour<'c, S> {
    /// Begins with the first shard that is not known to refuse; if all are, with any.
    fn new(cache: &'c NegativeCache<S>, position: usize, charge: &'c Charge) -> Self {
        let first = a_shard_of(shards_of(charge), in_a_row(charge), cache.store().departures());
        let mut tour = Self { cache, position, charge, first, looked_at: 0, shard: first, refusal: None };
        tour.goes_on();
        tour
    }

    /// What the present shard is asked for.
    fn asked(&self) -> Charge {
        self.charge.on_shard(Some(self.shard))
    }

    /// Notes what the present shard said, and puts what the limit says so far in its place.
    fn note(&mut self, decision: &mut Decision) {
        decision.shard = Some(self.shard);
        if !decision.granted {
            let first = self.refusal.filter(|first| first.wait <= decision.wait).unwrap_or(*decision);
            *decision = *self.refusal.insert(first);
        }
    }

    /// Turns to the next shard that is not known to refuse, if there is one.
    fn goes_on(&mut self) -> bool {
        let shards = shards_of(self.charge);
        while self.looked_at < shards {
            let next = (self.first + self.looked_at) % shards;
            self.looked_at += 1;
            if !self.cache.refuses(&self.charge.on_shard(Some(next))) {
                self.shard = next;
                return true;
            }
        }
        false
    }

    /// Those that were refused go on to their next shards; false if that cannot help, since one that must grant has none.
    fn all_go_on(tours: &mut [Self], outcome: &Outcome) -> bool {
        let is_refused = |tour: &&mut Self| !tour.charge.shadow && !outcome.decisions[tour.position].granted;
        let mut refused: Vec<_> = tours.iter_mut().filter(is_refused).collect();
        !refused.is_empty() && refused.iter_mut().all(|tour| tour.goes_on())
    }

    /// Charges a shadow whose first shard refused, after the live charges were made.
    async fn watch_on(&mut self, decision: &mut Decision, now: Option<Timestamp>, deadline: Instant) {
        while !decision.granted && self.goes_on() {
            // The request goes on all the same.
            let Ok(outcome) = moving::take(self.cache, &[self.asked()], now, deadline).await else { return };
            *decision = outcome.decisions[0];
            self.note(decision);
        }
    }
}

/// How many requests in a row may begin at one shard: only a part of what it grants, for whoever is refused there asks another
/// one.
fn in_a_row(charge: &Charge) -> u32 {
    charge.limiter.shards().first().map_or(1, |shard| (shard.quota.rate() / 8).max(1))
}

fn is_in_cluster<S: Remote>(cache: &NegativeCache<S>, charges: &[Charge]) -> bool {
    charges.first().is_some_and(|first| cache.store().slot(first).is_some())
}

/// How many shards its limit has: a few hundred at most.
fn shards_of(charge: &Charge) -> u16 {
    u16::try_from(charge.limiter.shards().len()).unwrap_or_default()
}

/// Where to begin: at one shard for some calls. Steps of the golden ratio leave no shard out, whatever number of charges a
/// request has.
fn a_shard_of(shards: u16, in_a_row: u32, departures: u64) -> u16 {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    let rows = REQUESTS.fetch_add(1, Ordering::Relaxed) / u64::from(in_a_row);
    let step = (rows + departures / TOGETHER).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u16::try_from(((step >> 48) * u64::from(shards)) >> 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_begin_at_one_shard_for_some_calls_and_at_all_shards_as_often() {
        let shard = |calls: u64| usize::from(a_shard_of(8, u32::MAX, calls));
        let mut turns = [0; 8];
        for turn in 0..800 {
            let first = shard(turn * TOGETHER);
            assert_eq!(shard(turn * TOGETHER + TOGETHER - 1), first);
            turns[first] += 1;
        }
        assert!(turns.iter().all(|turns| (98..=102).contains(turns)), "{turns:?}");
    }
}
