//! Candidates for the rate of a limit, and the choice between them.

use std::fmt::Write;

use serde::Serialize;

use super::demand::{Demand, tolerated};
use crate::report::tally::Tally;
use tidegate_config::Millis;
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::limits::rule::Limit;

/// A candidate and what it would reject.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    pub rate: u32,
    pub interval: String,
    #[serde(skip)]
    pub millis: u64,
    /// Whether it has half the rate that follows from the demand. It shows the effect of a lower rate, and is not proposed.
    #[serde(skip)]
    is_half: bool,
    /// `None` for a token bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<&'static str>,
    /// The capacity of `gcra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// The clients that would be rejected at least once.
    pub clients: usize,
    /// Their share of all clients.
    pub client_share: f64,
    /// The requests that would be rejected.
    pub requests: u64,
    /// Their share of the requests of the limit.
    pub request_share: f64,
    /// The top abusers among all clients.
    pub abusers: usize,
    /// Whether it rejects at most the tolerated share of the other clients.
    pub acceptable: bool,
}

/// The interval that is proposed without abusers, in milliseconds.
const DEFAULT_INTERVAL: u64 = 60_000;

/// The proposed candidate rejects at least this share of the requests that the best candidate rejects.
const GOOD_ENOUGH: f64 = 0.9;

/// Returns the candidates: for each interval half, once and twice the rate that follows from the demand, and for each two
/// successive intervals `gcra` with the rate of the longer one and the burst of the shorter one.
pub(super) fn candidates(demands: &[Demand], clients: usize, tolerate: f64) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for demand in demands {
        let exact = demand.rate(tolerate);
        let rounded = round_up(exact);
        let rate = demand.lowest_abuser().map_or(rounded, |abuser| rounded.min(abuser.saturating_sub(1)).max(exact));
        if rate > 1 {
            candidates.push(Candidate { is_half: true, ..Candidate::new(demand, rate / 2, None, clients) });
        }
        candidates.extend([rate, rate.saturating_mul(2)].map(|rate| Candidate::new(demand, rate, None, clients)));
    }
    for pair in demands.windows(2) {
        let (burst, rate) = (round_up(pair[0].rate(tolerate)), round_up(pair[1].rate(tolerate)));
        if burst < rate {
            candidates.push(Candidate::new(&pair[1], rate, Some(burst), clients));
        }
    }
    candidates
}

/// Returns the position of the proposed candidate. Of those that reject at most the tolerated share of the clients other
/// than top abusers, it is the one with the shortest interval that rejects at least 90 % of the requests that the best
/// one rejects. Without abusers, it has the present interval of the limit, or else a minute.
pub(super) fn propose(candidates: &[Candidate], present: u64) -> usize {
    let eligible = || candidates.iter().enumerate().filter(|(_, candidate)| candidate.acceptable && !candidate.is_half);
    let has_abusers = candidates.iter().any(|candidate| candidate.abusers > 0);
    let max_requests = eligible().map(|(_, candidate)| candidate.requests).max().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let is_good =
        |candidate: &Candidate| !has_abusers || candidate.requests as f64 >= max_requests as f64 * GOOD_ENOUGH;
    let key = |(_, candidate): &(usize, &Candidate)| {
        let is_other = !has_abusers && candidate.millis != present;
        (
            is_other,
            is_other && candidate.millis != DEFAULT_INTERVAL,
            candidate.burst.is_some(),
            candidate.millis,
            candidate.rate,
        )
    };
    let good = eligible().filter(|(_, candidate)| is_good(candidate));
    good.min_by_key(key).map_or(0, |(position, _)| position)
}

impl Candidate {
    fn new(demand: &Demand, rate: u32, burst: Option<u32>, clients: usize) -> Self {
        Self {
            rate,
            interval: Millis::show(demand.millis),
            millis: demand.millis,
            is_half: false,
            algorithm: burst.map(|_| "gcra"),
            burst,
            clients: 0,
            client_share: 0.0,
            requests: 0,
            request_share: 0.0,
            abusers: demand.abusers.min(clients),
            acceptable: false,
        }
    }

    pub(super) fn quota(&self) -> Option<Quota> {
        let algorithm = self.burst.map_or(Algorithm::TokenBucket, |burst| Algorithm::Gcra { burst });
        Quota::new(self.rate.into(), self.millis, algorithm).ok()
    }

    /// Adds what the candidate has rejected in a replay.
    pub(super) fn measure(&mut self, tally: &Tally, (clients, requests): (usize, u64), tolerate: f64) {
        (self.clients, self.requests) = (tally.affected(), tally.rejected());
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = |count: u64, all: u64| count as f64 / all.max(1) as f64;
        self.client_share = share(self.clients as u64, clients as u64);
        self.request_share = share(self.requests, requests);
        self.acceptable = self.clients <= self.abusers + tolerated(clients - self.abusers, tolerate);
    }

    /// Returns the limit with the keys of the candidate, in the form of the rule file.
    pub(super) fn snippet(&self, limit: &Limit) -> String {
        let mut keys = format!("mode: {}", limit.mode());
        if limit.mode() == Mode::PerClient {
            let client = limit.client.to_string();
            let client = if client.starts_with('[') { client } else { format!("\"{client}\"") };
            _ = write!(keys, ", client: {client}");
        }
        _ = write!(keys, ", rate: {}, interval: {}", self.rate, self.interval);
        if let (Some(algorithm), Some(burst)) = (self.algorithm, self.burst) {
            _ = write!(keys, ", algorithm: {algorithm}, burst: {burst}");
        }
        match limit.is_shared {
            true => format!("{}: {{ {keys} }}", limit.name),
            false => format!("- {{ name: {}, {keys} }}", limit.name),
        }
    }
}

/// Rounds up to two digits.
fn round_up(number: u32) -> u32 {
    let power = 10_u32.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    number.div_ceil(power).saturating_mul(power)
}
