//! Charges that no one call can decide, since their keys are on several nodes: they are made group by group, and given back if
//! a later group refuses. In between, others may be refused because of permits that are about to be given back.

mod shards;

use std::cmp::Reverse;
use std::future::Future;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::StoreError;
use super::negative_cache::{NegativeCache, Remote};
use crate::clock::Timestamp;
use crate::limit::{Charge, Decision, Granted, Outcome, Wait};

/// Positions of charges that one call can decide.
pub(super) type Group = Vec<usize>;

/// Takes and gives back the charges of a group.
pub(super) trait Taker: Sync {
    /// Makes all charges of a group or none.
    fn take(&self, charges: &[Charge]) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Gives back what was granted to some groups.
    fn give_back(&self, granted: &[Granted]) -> impl Future<Output = ()> + Send;
}

/// What has been decided so far.
struct Progress {
    decisions: Vec<Option<Decision>>,
    /// By which clock each was decided: what that showed.
    shown: Vec<Timestamp>,
    made: Vec<Granted>,
}

/// Makes all charges or none.
///
/// # Errors
/// The store could not decide; what had been charged was given back, as far as it could be.
pub(super) async fn take<S: Remote>(
    cache: &NegativeCache<S>,
    charges: &[Charge],
    now: Option<Timestamp>,
) -> Result<Outcome, StoreError> {
    let deadline = cache.store().deadline();
    let groups = groups(charges, |charge| cache.store().slot(charge));
    if groups.len() < 2 {
        return shards::take(cache, charges, now, deadline).await;
    }
    // Boxed, so that those who need one call do without the memory that this needs.
    take_in_turn(charges, &groups, &OfStore { cache, now, deadline }).boxed().await
}

/// Takes from a store.
struct OfStore<'s, S> {
    cache: &'s NegativeCache<S>,
    now: Option<Timestamp>,
    deadline: Instant,
}

impl<S: Remote> Taker for OfStore<'_, S> {
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        shards::take(self.cache, charges, self.now, self.deadline).await
    }

    async fn give_back(&self, granted: &[Granted]) {
        // What is not given back returns by itself.
        _ = give_back(self.cache, granted, self.now).await;
    }
}

/// Gives back what was granted.
///
/// # Errors
/// Not all of it could be; the rest returns by itself.
pub(super) async fn give_back<S: Remote>(
    cache: &NegativeCache<S>,
    granted: &[Granted],
    now: Option<Timestamp>,
) -> Result<(), StoreError> {
    let charges: Vec<Charge> = granted.iter().map(|one| one.charge.clone()).collect();
    let groups = groups(&charges, |charge| cache.store().slot(charge));
    if groups.len() < 2 {
        return cache.give_back(granted, now).await;
    }
    let mut given_back = Ok(());
    for group in groups {
        let some: Vec<Granted> = group.iter().map(|position| granted[*position].clone()).collect();
        given_back = given_back.and(cache.give_back(&some, now).await);
    }
    given_back
}

/// The groups of these charges: those of one slot, and each on a limit in shards alone, since it tries several slots. Those
/// that can refuse come first.
fn groups(charges: &[Charge], slot: impl Fn(&Charge) -> Option<u16>) -> Vec<Group> {
    let mut groups: Vec<(Option<u16>, Group)> = Vec::new();
    for (position, charge) in charges.iter().enumerate() {
        // Where there are no slots, one call decides all.
        let Some(slot) = slot(charge) else { return Vec::new() };
        let own = charge.limiter.shards().is_empty().then_some(slot);
        match groups.iter_mut().find(|(of, _)| own.is_some() && *of == own) {
            Some((_, group)) => group.push(position),
            None => groups.push((own, vec![position])),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
    groups.sort_by_key(|group| Reverse(group.iter().any(|position| !charges[*position].shadow)));
    groups
}

/// Makes the charges of each group, or of none: what was made is undone when a later group refuses, or does not answer.
///
/// # Errors
/// That of the first group with a live charge that was not decided.
pub(super) async fn take_in_turn(
    charges: &[Charge],
    groups: &[Group],
    taker: &impl Taker,
) -> Result<Outcome, StoreError> {
    let mut progress = Progress::new(charges.len());
    for (done, group) in groups.iter().enumerate() {
        let asked: Vec<Charge> = group.iter().map(|position| charges[*position].clone()).collect();
        match taker.take(&asked).await {
            Ok(outcome) if outcome.granted() => progress.granted(group, &outcome, asked),
            Ok(outcome) => {
                progress.note(group, &outcome);
                progress.take_back(charges, taker).await;
                progress.look_at(charges, &groups[done + 1..], taker).await;
                return Ok(progress.outcome(false));
            }
            // Whether shadows were made matters to nobody else.
            Err(_) if group.iter().all(|position| charges[*position].shadow) => {}
            Err(error) => {
                progress.take_back(charges, taker).await;
                return Err(error);
            }
        }
    }
    Ok(progress.outcome(true))
}

impl Progress {
    fn new(charges: usize) -> Self {
        Self { decisions: vec![None; charges], shown: vec![Timestamp::default(); charges], made: Vec::new() }
    }

    fn note(&mut self, group: &[usize], outcome: &Outcome) {
        for (position, decision) in group.iter().zip(&outcome.decisions) {
            self.decisions[*position] = Some(*decision);
            self.shown[*position] = outcome.now;
        }
    }

    fn granted(&mut self, group: &[usize], outcome: &Outcome, asked: Vec<Charge>) {
        self.note(group, outcome);
        self.made.extend(outcome.made(asked));
    }

    /// Undoes what was made: it is as if it had only been looked at.
    async fn take_back(&mut self, charges: &[Charge], taker: &impl Taker) {
        if !self.made.is_empty() {
            taker.give_back(&std::mem::take(&mut self.made)).await;
        }
        for (decision, charge) in self.decisions.iter_mut().zip(charges) {
            if let Some(decision) = decision.as_mut().filter(|decision| decision.granted) {
                decision.remaining = decision.remaining.saturating_add(charge.permits);
                decision.delay = 0;
            }
        }
    }

    /// Asks groups that need not decide any more what is left.
    async fn look_at(&mut self, charges: &[Charge], groups: &[Group], taker: &impl Taker) {
        for group in groups {
            let look = |position: &usize| Charge { permits: 0, ..charges[*position].clone() };
            let asked: Vec<Charge> = group.iter().map(look).collect();
            let Ok(mut outcome) = taker.take(&asked).await else { continue };
            for (position, decision) in group.iter().zip(&mut outcome.decisions) {
                would_say(decision, &charges[*position]);
            }
            self.note(group, &outcome);
        }
    }

    /// The answer to all charges. Of one that nobody answered to, nothing is known, and it refuses nobody.
    fn outcome(self, granted: bool) -> Outcome {
        let unknown = Decision::new(0, Wait::Now, 0);
        let known = self.decisions.iter().zip(&self.shown).filter(|(decision, _)| decision.is_some());
        let now = known.map(|(_, shown)| *shown).min().unwrap_or_default();
        let decided = self.decisions.into_iter().zip(self.shown);
        let decisions = decided.map(|(decision, shown)| match decision {
            Some(decision) => Decision { ahead: shown.millis_since(now), ..decision },
            None => unknown,
        });
        Outcome::decided(now, decisions.collect(), granted)
    }
}

/// What a limit that was only looked at would say to the charge: that it grants it if so much is left. Of one in shards only
/// one shard was looked at, and another may have more.
fn would_say(decision: &mut Decision, charge: &Charge) {
    if charge.permits > decision.remaining && charge.limiter.shards().is_empty() {
        decision.granted = false;
        decision.wait = match charge.permits > charge.limiter.quota.capacity() {
            true => Wait::Never,
            false => Wait::Millis(decision.reset.max(1)),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::clock::ManualClock;
    use crate::limit::{Algorithm, Limiter, Mode, Quota};
    use crate::store::Memory;

    /// A store of which some buckets cannot be reached.
    struct Nodes {
        memory: Memory,
        away: Mutex<Option<&'static str>>,
    }

    impl Taker for Nodes {
        /// Takes from the first of its shards, if a limiter has some.
        async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
            let charges: Vec<Charge> = charges.iter().map(|charge| charge.on_shard(Some(0))).collect();
            match *self.away.lock() {
                Some(away) if charges.iter().any(|charge| charge.limiter.name == away) => Err(StoreError::Unreachable),
                _ => self.memory.take(&charges),
            }
        }

        async fn give_back(&self, granted: &[Granted]) {
            self.memory.give_back(granted);
        }
    }

    fn nodes() -> Nodes {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        Nodes { memory: Memory::new(clock, None), away: Mutex::default() }
    }

    fn charge(name: &str, rate: u64, permits: u32, shadow: bool) -> Charge {
        let quota = Quota::new(rate, 60_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota));
        Charge { limiter, client: None, permits, shadow }
    }

    /// Whether it was granted, and what each limit said and has left.
    async fn take(nodes: &Nodes, charges: &[Charge]) -> Result<(bool, Vec<(bool, u32)>), StoreError> {
        let slot = |charge: &Charge| charge.limiter.name.bytes().next().map(u16::from);
        let outcome = take_in_turn(charges, &groups(charges, slot), nodes).await?;
        Ok((outcome.granted(), outcome.decisions.iter().map(|one| (one.granted, one.remaining)).collect()))
    }

    #[test]
    fn those_of_a_slot_are_a_group_and_those_that_only_watch_come_last() {
        let slot = |charge: &Charge| charge.limiter.name.bytes().next().map(u16::from);
        let charges = [("s", true), ("a", false), ("b", false), ("a2", true), ("b2", false)];
        let charges = charges.map(|(name, shadow)| charge(name, 9, 1, shadow));
        assert_eq!(groups(&charges, slot), [vec![1, 3], vec![2, 4], vec![0]]);
        assert_eq!(groups(&charges, |_| None), Vec::<Group>::new());
        let in_shards = Limiter::new("{a}".into(), Mode::Overall, charges[0].limiter.quota).sharded(3);
        let in_shards = Charge { limiter: Arc::new(in_shards), ..charges[1].clone() };
        assert_eq!(groups(&[charges[1].clone(), in_shards.clone(), in_shards], |_| Some(1)), [[0], [1], [2]]);
    }

    #[tokio::test]
    async fn what_a_later_group_refuses_is_given_back_and_all_say_what_they_have_left() {
        let nodes = nodes();
        let charges = [charge("a", 5, 2, false), charge("b", 3, 2, false), charge("c", 9, 2, false)];
        assert_eq!(take(&nodes, &charges).await, Ok((true, vec![(true, 3), (true, 1), (true, 7)])));
        for _ in 0..3 {
            assert_eq!(take(&nodes, &charges).await, Ok((false, vec![(true, 3), (false, 1), (true, 7)])));
        }
        assert_eq!(take(&nodes, &[charge("c", 9, 7, false)]).await, Ok((true, vec![(true, 0)])));
        // The last group is only looked at, and would refuse as well.
        assert_eq!(take(&nodes, &charges).await, Ok((false, vec![(true, 3), (false, 1), (false, 0)])));
    }

    #[tokio::test]
    async fn what_a_later_group_does_not_answer_is_given_back() {
        let nodes = nodes();
        let charges = [charge("a", 5, 5, false), charge("b", 5, 5, false)];
        *nodes.away.lock() = Some("b");
        assert_eq!(take(&nodes, &charges).await, Err(StoreError::Unreachable));
        *nodes.away.lock() = None;
        assert_eq!(take(&nodes, &charges).await, Ok((true, vec![(true, 0), (true, 0)])));
    }

    #[tokio::test]
    async fn a_group_that_only_watches_and_is_away_refuses_nobody() {
        let nodes = nodes();
        let charges = [charge("s", 1, 1, true), charge("a", 2, 1, false)];
        *nodes.away.lock() = Some("s");
        for left in [1, 0] {
            assert_eq!(take(&nodes, &charges).await, Ok((true, vec![(true, 0), (true, left)])));
        }
        assert_eq!(take(&nodes, &charges).await.map(|(granted, _)| granted), Ok(false));
    }

    /// The other shards may have permits.
    #[tokio::test]
    async fn a_shard_that_is_only_looked_at_does_not_refuse_for_its_limit() {
        let nodes = nodes();
        let wide = charge("{w}", 6, 2, false);
        let limiter = Limiter::new("{w}".to_owned(), Mode::Overall, wide.limiter.quota).sharded(3);
        let wide = Charge { limiter: Arc::new(limiter), ..wide };
        assert_eq!(take(&nodes, std::slice::from_ref(&wide)).await, Ok((true, vec![(true, 0)])));
        let charges = [charge("a", 1, 2, false), wide];
        assert_eq!(take(&nodes, &charges).await, Ok((false, vec![(false, 1), (true, 0)])));
    }

    #[tokio::test]
    async fn a_group_that_only_watches_refuses_nobody() {
        let nodes = nodes();
        let charges = [charge("s", 1, 1, true), charge("a", 5, 1, false)];
        assert_eq!(take(&nodes, &charges).await, Ok((true, vec![(true, 0), (true, 4)])));
        assert_eq!(take(&nodes, &charges).await, Ok((true, vec![(false, 0), (true, 3)])));
    }
}
