//! What a kind of fault did.

use std::time::Duration;

use super::super::journal::{By, Record};
use super::super::run::Round;
use super::super::table::{FREE, LIMITS};
use super::is_failed;

/// What a kind of fault did.
#[derive(Default)]
pub struct Row {
    pub times: usize,
    pub asked: usize,
    pub alone: usize,
    pub failed: usize,
    pub slowest: Duration,
    /// The same of requests without a limit.
    pub slowest_free: Duration,
    /// Answers that took at least four fifths of a decision's deadline.
    pub waited: usize,
    /// Of requests that began a second after the fault or later, until it was over.
    pub later: Vec<Duration>,
    /// The same of requests without a limit.
    pub later_free: Vec<Duration>,
    /// How long it took each time until all was as before, in milliseconds.
    pub settled_in: Vec<u64>,
    pub unsettled: usize,
}

// === impl Row ===

impl Row {
    /// Adds what happened while it lasted.
    pub fn add(&mut self, round: &Round, records: &[Record], deadline: Duration) {
        self.times += 1;
        match round.all_settled() {
            Some(settled) => self.settled_in.push(settled.saturating_sub(round.end)),
            None => self.unsettled += 1,
        }
        let waits = |route: usize| LIMITS.iter().any(|limit| limit.route == route && limit.rule.law.waits());
        for one in records.iter().filter(|one| (round.begin..round.end).contains(&one.begin)) {
            let is_later = one.begin >= round.begin + 1_000;
            if usize::from(one.route) == FREE {
                self.slowest_free = self.slowest_free.max(one.took);
                self.later_free.extend(is_later.then_some(one.took));
                continue;
            }
            self.asked += 1;
            self.alone += usize::from(one.by == By::Alone);
            self.failed += usize::from(is_failed(one));
            if waits(one.route.into()) {
                continue;
            }
            self.slowest = self.slowest.max(one.took);
            self.waited += usize::from(one.took * 5 >= deadline * 4);
            if is_later {
                self.later.push(one.took);
            }
        }
    }
}
