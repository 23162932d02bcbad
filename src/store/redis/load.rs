//! Requests that leave together.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answers::Answers;
use super::batch::Batch;
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, Outcome};
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
    pub(super) shares_its_call: bool,
    /// So many of the first have been given up.
    given_up: usize,
}

impl Waiting {
    /// Limiters of others have a call of their own: what is wrong with one of them is nobody else's error.
    pub(super) fn shares_its_call(&self) -> bool {
        !self.charges.iter().any(|charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Foreign(_)))
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
    pub(super) fn of(waiting: Waiting) -> Self {
        let mut load = Self::default();
        load.push(waiting);
        load
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.shares_its_call = waiting.shares_its_call();
        self.batch.push(&waiting.charges);
        self.members.push_back(waiting);
    }

    pub(super) fn has_room_for(&self, next: &Waiting) -> bool {
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

    pub(super) fn tell(self, answers: &Answers) {
        for (member, outcome) in self.members.into_iter().zip(self.batch.outcomes(answers).skip(self.given_up)) {
            // Who left meanwhile has been charged, as if it had left a moment later.
            _ = member.decided.send(Ok(outcome));
        }
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

/// Tells those whose time is over.
pub(super) fn give_up_overdue(waiting: &mut VecDeque<Waiting>, now: Instant, timeout: Duration) {
    while let Some(first) = waiting.pop_front_if(|first| first.since + timeout <= now) {
        first.fail(&StoreError::Timeout);
    }
}
