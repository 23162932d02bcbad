//! Groups of charges that are made one after the other, all or none.

use std::future::Future;

use tokio::time::{Instant, timeout_at};

use super::super::StoreError;
use crate::clock::Timestamp;
use crate::limit::{Charge, Decision, Granted, Outcome, Wait};

/// Positions of charges that one call can decide.
pub(super) type Group = Vec<usize>;

/// Takes and gives back the charges of a group.
pub(super) trait ChargeTarget: Sync {
    /// Makes all charges of a group or none.
    fn take(&self, charges: &[Charge]) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Gives back what was granted to some groups.
    fn give_back(&self, granted: Vec<Granted>) -> impl Future<Output = ()> + Send;
}

/// What has been decided so far.
struct SequenceState {
    decisions: Vec<Option<Decision>>,
    /// By which clock each was decided: what that showed.
    clock_times: Vec<Timestamp>,
    made: Vec<Granted>,
}

/// Makes the charges of each group, or of none: what was made is undone when a later group refuses, or does not answer.
///
/// # Errors
/// That of the first group with a live charge that was not decided.
pub(super) async fn charge_in_sequence(
    charges: &[Charge],
    groups: &[Group],
    target: &impl ChargeTarget,
) -> Result<Outcome, StoreError> {
    let mut state = SequenceState::new(charges.len());
    for (done, group) in groups.iter().enumerate() {
        let asked: Vec<Charge> = group.iter().map(|position| charges[*position].clone()).collect();
        match target.take(&asked).await {
            Ok(outcome) if outcome.granted() => state.granted(group, &outcome, asked),
            Ok(outcome) => {
                state.record(group, &outcome);
                state.undo(charges, target).await;
                state.peek(charges, &groups[done + 1..], target).await;
                return Ok(state.outcome(false));
            }
            // Whether shadows were made matters to nobody else.
            Err(_) if group.iter().all(|position| charges[*position].shadow) => {}
            Err(error) => {
                state.undo(charges, target).await;
                return Err(error);
            }
        }
    }
    Ok(state.outcome(true))
}

/// Waits for what gives back, until the deadline; after that it goes on alone. What is not given back returns by itself.
pub(super) async fn give_back_until(deadline: Instant, giving_back: impl Future<Output = ()> + Send + 'static) {
    _ = timeout_at(deadline, tokio::spawn(giving_back)).await;
}

impl SequenceState {
    fn new(charges: usize) -> Self {
        Self { decisions: vec![None; charges], clock_times: vec![Timestamp::default(); charges], made: Vec::new() }
    }

    fn record(&mut self, group: &[usize], outcome: &Outcome) {
        for (position, decision) in group.iter().zip(&outcome.decisions) {
            self.decisions[*position] = Some(*decision);
            self.clock_times[*position] = outcome.now;
        }
    }

    fn granted(&mut self, group: &[usize], outcome: &Outcome, asked: Vec<Charge>) {
        self.record(group, outcome);
        self.made.extend(outcome.granted_charges(asked));
    }

    /// Undoes what was made: it is as if it had only been looked at.
    async fn undo(&mut self, charges: &[Charge], target: &impl ChargeTarget) {
        if !self.made.is_empty() {
            target.give_back(std::mem::take(&mut self.made)).await;
        }
        for (decision, charge) in self.decisions.iter_mut().zip(charges) {
            if let Some(decision) = decision.as_mut().filter(|decision| decision.granted) {
                decision.remaining = decision.remaining.saturating_add(charge.permits);
                decision.delay = 0;
            }
        }
    }

    /// Asks groups that need not decide any more what is left.
    async fn peek(&mut self, charges: &[Charge], groups: &[Group], target: &impl ChargeTarget) {
        for group in groups {
            let look = |position: &usize| Charge { permits: 0, ..charges[*position].clone() };
            let asked: Vec<Charge> = group.iter().map(look).collect();
            let Ok(mut outcome) = target.take(&asked).await else { continue };
            for (position, decision) in group.iter().zip(&mut outcome.decisions) {
                project_decision(decision, &charges[*position]);
            }
            self.record(group, &outcome);
        }
    }

    /// The answer to all charges. Of one that nobody answered to, nothing is known, and it refuses nobody.
    fn outcome(self, granted: bool) -> Outcome {
        let unknown = Decision::new(0, Wait::Now, 0);
        let known = self.decisions.iter().zip(&self.clock_times).filter(|(decision, _)| decision.is_some());
        let now = known.map(|(_, shown)| *shown).min().unwrap_or_default();
        let decided = self.decisions.into_iter().zip(self.clock_times);
        let decisions = decided.map(|(decision, shown)| match decision {
            Some(decision) => Decision { ahead: shown.millis_since(now), ..decision },
            None => unknown,
        });
        Outcome::with_granted(now, decisions.collect(), granted)
    }
}

/// What a limit that was only looked at would say to the charge: that it grants it if so much is left. Of one in shards only
/// one shard was looked at, and another may have more.
fn project_decision(decision: &mut Decision, charge: &Charge) {
    if charge.permits > decision.remaining && charge.limiter.shards().is_empty() {
        decision.granted = false;
        decision.wait = match charge.permits > charge.limiter.quota.capacity() {
            true => Wait::Never,
            false => Wait::Millis(decision.reset.max(1)),
        };
    }
}
