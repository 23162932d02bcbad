//! Makes groups of charges one after the other: all of them or none.

use std::future::Future;

use tokio::time::{Instant, timeout_at};

use super::super::StoreError;
use tidegate_limit::Wait;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, Decision, Granted, Outcome};

/// The positions of charges that one call can decide.
pub(super) type Group = Vec<usize>;

/// A target that makes the charges of a group and gives them back.
pub(super) trait ChargeTarget: Sync {
    /// Makes all charges of a group, or none.
    fn take(&self, charges: &[Charge]) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Gives back the granted charges of several groups.
    fn give_back(&self, granted: Vec<Granted>) -> impl Future<Output = ()> + Send;
}

/// The decisions so far.
struct SequenceState {
    /// For each charge, its decision and the time on the clock that decided.
    decided: Vec<Option<(Decision, Timestamp)>>,
    granted_charges: Vec<Granted>,
}

/// Makes the charges of all groups, or of none: undoes earlier groups if a later one refuses or fails.
///
/// # Errors
/// The error of the first group with a live charge that could not be decided.
pub(super) async fn charge_in_sequence(
    charges: &[Charge],
    groups: &[Group],
    target: &impl ChargeTarget,
) -> Result<Outcome, StoreError> {
    let mut state = SequenceState::new(charges.len());
    for (done, group) in groups.iter().enumerate() {
        let group_charges: Vec<Charge> = group.iter().map(|position| charges[*position].clone()).collect();
        match target.take(&group_charges).await {
            Ok(outcome) if outcome.granted() => state.granted(group, &outcome, &group_charges),
            Ok(outcome) => {
                state.record(group, &outcome);
                state.undo(charges, target).await;
                state.peek(charges, &groups[done + 1..], target).await;
                return Ok(state.outcome(false));
            }
            // Other limits do not depend on shadows.
            Err(_) if group.iter().all(|position| charges[*position].shadow) => {}
            Err(error) => {
                state.undo(charges, target).await;
                return Err(error);
            }
        }
    }
    Ok(state.outcome(true))
}

/// Runs a task that gives charges back, and waits for it until the deadline. Then the task continues in the background.
pub(super) async fn give_back_until(deadline: Instant, giving_back: impl Future<Output = ()> + Send + 'static) {
    _ = timeout_at(deadline, tokio::spawn(giving_back)).await;
}

impl SequenceState {
    fn new(charges: usize) -> Self {
        Self { decided: vec![None; charges], granted_charges: Vec::new() }
    }

    fn record(&mut self, group: &[usize], outcome: &Outcome) {
        for (position, decision) in group.iter().zip(&outcome.decisions) {
            self.decided[*position] = Some((*decision, outcome.now));
        }
    }

    fn granted(&mut self, group: &[usize], outcome: &Outcome, group_charges: &[Charge]) {
        self.record(group, outcome);
        self.granted_charges.extend(outcome.granted_charges(group_charges));
    }

    /// Undoes the charges that were made, and corrects the decisions accordingly.
    async fn undo(&mut self, charges: &[Charge], target: &impl ChargeTarget) {
        if !self.granted_charges.is_empty() {
            target.give_back(std::mem::take(&mut self.granted_charges)).await;
        }
        for (decided, charge) in self.decided.iter_mut().zip(charges) {
            if let Some((decision, _)) = decided.as_mut().filter(|(decision, _)| decision.granted) {
                decision.remaining = decision.remaining.saturating_add(charge.taken());
                decision.delay = 0;
            }
        }
    }

    /// Reads the remaining permits of groups whose charges are no longer made.
    async fn peek(&mut self, charges: &[Charge], groups: &[Group], target: &impl ChargeTarget) {
        for group in groups {
            let look = |position: &usize| Charge { permits: 0, ..charges[*position].clone() };
            let group_charges: Vec<Charge> = group.iter().map(look).collect();
            let Ok(mut outcome) = target.take(&group_charges).await else { continue };
            for (position, decision) in group.iter().zip(&mut outcome.decisions) {
                project_decision(decision, &charges[*position]);
            }
            self.record(group, &outcome);
        }
    }

    /// Returns the outcome of all charges. A charge without a decision counts as granted, with no remaining permits.
    fn outcome(self, granted: bool) -> Outcome {
        let now = self.decided.iter().flatten().map(|(_, clock_time)| *clock_time).min().unwrap_or_default();
        let decisions = self.decided.into_iter().map(|decided| match decided {
            Some((decision, clock_time)) => Decision { ahead: clock_time.millis_since(now), ..decision },
            None => Decision::UNKNOWN,
        });
        Outcome::with_granted(now, decisions.collect(), granted)
    }
}

/// Projects a decision about no permits to the permits of the charge: it is granted if enough permits remain. For a
/// limit in shards the decision stays granted, since only one shard was read and another may have more permits.
fn project_decision(decision: &mut Decision, charge: &Charge) {
    if charge.permits > decision.remaining && charge.limiter.shards().is_empty() {
        decision.granted = false;
        decision.wait = match charge.permits > charge.limiter.quota.capacity() {
            true => Wait::Never,
            false => Wait::Millis(decision.reset.max(1)),
        };
    }
}
