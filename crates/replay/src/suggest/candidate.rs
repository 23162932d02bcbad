//! Candidates for the quota of a limit, and what each would reject.

use serde::Serialize;

use super::crowd::Crowd;
use super::demand::Demand;
use super::window::{Window, algorithm};
use crate::report::tally::Tally;
use tidegate_limit::Quota;

/// A candidate and what it would reject.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The permits in each interval.
    pub rate: u32,
    /// The interval in the form of the rule file.
    pub interval: String,
    /// `None` for a token bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<&'static str>,
    /// The capacity of `gcra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Whether it is the present quota of the limit.
    pub present: bool,
    /// The clients that would be rejected at least once.
    pub clients: usize,
    /// Their share of all clients.
    pub client_share: f64,
    /// The requests that would be rejected.
    pub requests: u64,
    /// Their share of the requests of the limit.
    pub request_share: f64,
    /// The abusers that would be rejected.
    pub abusers: usize,
    /// Their requests that would be rejected.
    pub abuser_requests: u64,
    /// The other clients that would be rejected, with all people of shared addresses.
    pub others: u64,
    /// Whether it rejects at most the tolerated share of the other clients.
    pub acceptable: bool,
    #[serde(skip)]
    pub(super) quota: Quota,
}

/// Returns the candidates: for each interval the rate that rejects the tolerated share of the other clients, the rate that
/// rejects none of them, and twice this rate. If the first two are equal, half of it replaces the first. For each two successive intervals, `gcra` with the rate of the longer one and the burst of the
/// shorter one. The present quota is one of them, unless it is `None`.
pub(super) fn candidates(
    windows: &[Window],
    demands: &[Demand],
    limit: &Quota,
    present: Option<Quota>,
    (tolerate, min_rate): (f64, u32),
) -> Vec<Candidate> {
    let mut quotas: Vec<Quota> = Vec::new();
    let rates = |demand: &Demand| demand.rates(tolerate).map(|rate| rate.max(min_rate));
    for (window, demand) in windows.iter().zip(demands) {
        let [tolerant, strict] = rates(demand);
        // Without a lower rate, its effect would be unknown.
        let lowest = if tolerant < strict { tolerant } else { (strict / 2).max(min_rate).max(1) };
        let rates = [lowest, strict, strict.saturating_mul(2)];
        quotas.extend(rates.iter().filter_map(|rate| window.quota(limit, *rate, None)));
    }
    for (window, pair) in windows.iter().skip(1).zip(demands.windows(2)) {
        let [[_, burst], [_, rate]] = [rates(&pair[0]), rates(&pair[1])];
        if burst < rate {
            let quota = window.quota(limit, rate, Some(burst));
            quotas.extend(quota.filter(|quota| quota.algorithm().burst().is_some()));
        }
    }
    quotas.extend(present);
    let mut candidates: Vec<Candidate> = Vec::new();
    for quota in quotas {
        if !candidates.iter().any(|known| known.quota == quota) {
            candidates.push(Candidate::new(quota, windows, present == Some(quota)));
        }
    }
    candidates.sort_by_key(|candidate| (candidate.quota.interval(), candidate.burst.is_some(), candidate.rate));
    candidates
}

impl Candidate {
    fn new(quota: Quota, windows: &[Window], present: bool) -> Self {
        let window = windows.iter().find(|window| window.millis == quota.interval());
        Self {
            rate: quota.rate(),
            interval: window.map(Window::show).unwrap_or_default(),
            algorithm: algorithm(&quota),
            burst: quota.algorithm().burst(),
            present,
            clients: 0,
            client_share: 0.0,
            requests: 0,
            request_share: 0.0,
            abusers: 0,
            abuser_requests: 0,
            others: 0,
            acceptable: false,
            quota,
        }
    }

    /// Adds what the candidate has rejected in a replay.
    pub(super) fn measure(&mut self, tally: &Tally, crowd: &Crowd, tolerate: f64) {
        for (client, count) in tally.rejections() {
            self.clients += 1;
            self.requests += count;
            if crowd.is_abuser(client) {
                self.abusers += 1;
                self.abuser_requests += count;
            } else {
                self.others += crowd.people_behind(client);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = |count: u64, all: u64| count as f64 / all.max(1) as f64;
        self.client_share = share(self.clients as u64, crowd.clients as u64);
        self.request_share = share(self.requests, crowd.requests);
        self.acceptable = self.others <= crowd.tolerated(tolerate);
    }

    /// Returns `true` if the other candidate has the same quota.
    pub fn is_same(&self, other: &Self) -> bool {
        self.quota == other.quota
    }

    /// Returns the quota as text, such as `64 per 10m`.
    pub fn show(&self) -> String {
        let Self { rate, interval, .. } = self;
        match (self.burst, self.algorithm) {
            (Some(burst), Some(algorithm)) => format!("{rate} per {interval}, {algorithm} with burst {burst}"),
            (None, Some(algorithm)) => format!("{rate} per {interval}, {algorithm}"),
            (_, None) => format!("{rate} per {interval}"),
        }
    }
}
