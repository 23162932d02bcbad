//! Requests that leave together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answers::Answers;
use super::batch::Batch;
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, Outcome, Wait};
use crate::store::StoreError;

/// A request that waits to be decided.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) charges: Vec<Charge>,
    pub(super) now: Option<Timestamp>,
    pub(super) since: Instant,
    pub(super) decided: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// The requests of a call, and those of them that still wait.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) batch: Batch,
    members: VecDeque<Waiting>,
    /// Counts the calls that are under way for a line of shared limiters.
    ticket: Option<Arc<()>>,
    /// So many of the first have been given up.
    given_up: usize,
}

impl Waiting {
    /// The line that it waits in, by the names of its shared limiters; nothing if all of its limits are ours. What is wrong
    /// with a shared limiter is nobody else's error, and a flood of one takes no call from the others.
    pub(super) fn line(&self) -> Option<String> {
        let shared = |charge: &&Charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Foreign(_));
        let names: Vec<&str> = self.charges.iter().filter(shared).map(|charge| charge.limiter.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join("\n"))
    }

    /// Who has left is not charged.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.decided.is_closed()
    }

    pub(super) fn fail(self, error: &StoreError) {
        _ = self.decided.send(Err(error.clone()));
    }
}

impl Load {
    /// An empty one of a line of shared limiters.
    pub(super) fn with_ticket(ticket: Arc<()>) -> Self {
        Self { ticket: Some(ticket), ..Self::default() }
    }

    /// Takes so many of a line at most, as far as there is room; returns whether there is none for the next. Who has left is
    /// not charged.
    pub(super) fn take(&mut self, line: &mut VecDeque<Waiting>, at_most: usize) -> bool {
        for _ in 0..at_most {
            let Some(next) = line.pop_front_if(|next| self.has_room_for(next)) else { return !line.is_empty() };
            if next.is_waited_for() {
                self.push(next);
            }
        }
        false
    }

    /// Are its limits ours?
    pub(super) fn is_ours(&self) -> bool {
        self.ticket.is_none()
    }

    fn push(&mut self, waiting: Waiting) {
        self.batch.push(&waiting.charges);
        self.members.push_back(waiting);
    }

    fn has_room_for(&self, next: &Waiting) -> bool {
        let same_moment = self.members.front().is_none_or(|first| first.now == next.now);
        same_moment && self.batch.has_room_for(&next.charges)
    }

    /// Does nobody wait for it any more?
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Since when the one has waited that has waited longest.
    pub(super) fn since(&self) -> Option<Instant> {
        self.members.front().map(|first| first.since)
    }

    /// The moment to decide at; Redis's own if none is given.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.members.front().and_then(|first| first.now)
    }

    /// Tells everybody what was decided, but those who are to ask again at once; these are returned.
    pub(super) fn tell(self, answers: &Answers) -> Vec<Waiting> {
        let mut again = Vec::new();
        for (member, outcome) in self.members.into_iter().zip(self.batch.outcomes(answers).skip(self.given_up)) {
            if asks_again(&outcome) {
                again.push(member);
            } else {
                // Who left meanwhile has been charged, as if it had left a moment later.
                _ = member.decided.send(Ok(outcome));
            }
        }
        again
    }

    pub(super) fn fail(self, error: &StoreError) {
        self.members.into_iter().for_each(|member| member.fail(error));
    }

    /// Tells those whose time is over.
    pub(super) fn give_up_overdue(&mut self, now: Instant, timeout: Duration) {
        let before = self.members.len();
        give_up_overdue(&mut self.members, now, timeout);
        self.given_up += before - self.members.len();
    }
}

/// Was it refused because of permits that have returned, of which a call removes only so many? Who was granted has been
/// charged.
fn asks_again(outcome: &Outcome) -> bool {
    !outcome.granted() && outcome.decisions.iter().any(|decision| decision.wait == Wait::Millis(0))
}

/// Tells those whose time is over.
pub(super) fn give_up_overdue(waiting: &mut VecDeque<Waiting>, now: Instant, timeout: Duration) {
    while let Some(first) = waiting.pop_front_if(|first| first.since + timeout <= now) {
        first.fail(&StoreError::Timeout);
    }
}
