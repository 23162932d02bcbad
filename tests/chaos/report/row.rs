//! The effects of one kind of fault.

use std::time::Duration;

use super::super::journal::{DecidedBy, Record};
use super::super::run::Round;
use super::super::table::{LIMITS, UNLIMITED};
use super::is_failed;

/// The effects of one kind of fault. Response times exclude requests that wait for a time slot.
#[derive(Default)]
pub struct Row {
    pub times: usize,
    pub requests: usize,
    pub local: usize,
    pub failed: usize,
    pub slowest: Duration,
    /// The slowest request without a limit.
    pub slowest_unlimited: Duration,
    /// Responses that took at least 80 % of a decision's deadline.
    pub near_deadline: usize,
    /// Response times of requests that began at least one second after the start of the fault.
    pub later: Vec<Duration>,
    /// The same response times of requests without a limit.
    pub later_unlimited: Vec<Duration>,
    /// Recovery times, in milliseconds.
    pub recovery_times: Vec<u64>,
    pub unrecovered: usize,
}

// === impl Row ===

impl Row {
    /// Adds the requests of a round and its recovery.
    pub fn add(&mut self, round: &Round, records: &[Record], deadline: Duration) {
        self.times += 1;
        match round.recovered_at() {
            Some(recovered) => self.recovery_times.push(recovered.saturating_sub(round.end)),
            None => self.unrecovered += 1,
        }
        let waits = |route: usize| LIMITS.iter().any(|limit| limit.route == route && limit.rule.algorithm.waits());
        for record in records.iter().filter(|record| (round.begin..round.end).contains(&record.begin)) {
            let is_later = record.begin >= round.begin + 1_000;
            if usize::from(record.route) == UNLIMITED {
                self.slowest_unlimited = self.slowest_unlimited.max(record.took);
                self.later_unlimited.extend(is_later.then_some(record.took));
                continue;
            }
            self.requests += 1;
            self.local += usize::from(record.decided_by == DecidedBy::Gateway);
            self.failed += usize::from(is_failed(record));
            if waits(record.route.into()) {
                continue;
            }
            self.slowest = self.slowest.max(record.took);
            self.near_deadline += usize::from(record.took * 5 >= deadline * 4);
            if is_later {
                self.later.push(record.took);
            }
        }
    }
}
