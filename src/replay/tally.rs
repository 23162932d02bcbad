//! The statistics of one limit.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use super::clients::{self, Clients};
use super::curve::{Histogram, curve};
use super::ranks::ranks;
use super::report::{LimitReport, RejectedClient};
use super::series::Series;
use crate::client::shown_value;
use crate::clock::Timestamp;
use crate::config::Millis;
use crate::limit::{Algorithm, Charge, ClientId, Decision, Mode};
use crate::rule::Limit;

/// The number of rejected clients in a report.
const TOP: usize = 10;

/// The longest client in a report, in bytes.
const MAX_CLIENT: usize = 200;

/// The statistics of one limit.
#[derive(Debug)]
pub(super) struct Tally {
    /// The route, `@` for a shared limit, and the limit.
    pub(super) name: String,
    mode: Mode,
    interval: u64,
    allowed: u64,
    rejected: u64,
    pub(super) unknown: u64,
    pub(super) unverified: u64,
    pub(super) overflowed: bool,
    /// The largest share of the permits that was in use.
    peak: f64,
    clients: Clients,
    /// The current interval of an OVERALL limit, and the permits in it.
    current: (u32, u32),
    /// The permits in each past interval of each bucket.
    intervals: Histogram,
    series: Series,
}

/// A client, with its hash.
pub(super) type HashedClient<'c> = (&'c ClientId, u64);

/// Returns a client with its hash.
pub(super) fn hashed<'c>(client: &'c ClientId, hasher: &DefaultHashBuilder) -> HashedClient<'c> {
    (client, hasher.hash_one(client))
}

impl Tally {
    pub(super) fn new(name: String, limit: &Limit) -> Self {
        Self {
            name,
            mode: limit.mode(),
            interval: limit.limiter.quota.interval(),
            allowed: 0,
            rejected: 0,
            unknown: 0,
            unverified: 0,
            overflowed: false,
            peak: 0.0,
            clients: Clients::default(),
            current: (0, 0),
            intervals: Histogram::default(),
            series: Series::default(),
        }
    }

    /// Records the decision of the limit about a request that needs these permits. The client of an OVERALL limit is
    /// the address, if it is known.
    pub(super) fn record(
        &mut self,
        client: Option<HashedClient<'_>>,
        charge: &Charge,
        decision: &Decision,
        permits: u32,
        at: u64,
        hasher: &DefaultHashBuilder,
    ) {
        let is_rejected = !decision.granted;
        self.allowed += u64::from(!is_rejected);
        self.rejected += u64::from(is_rejected);
        self.overflowed |= decision.overflow;
        self.series.count(at, is_rejected);
        let full = match decision.shard {
            None => charge.limiter.quota.full(),
            shard => charge.on_shard(shard).limiter.quota.full(),
        };
        let used = full.saturating_sub(decision.remaining);
        self.peak = self.peak.max(f64::from(used) / f64::from(full.max(1)));
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
        let interval = (at / self.interval.max(1)) as u32;
        if self.mode == Mode::Overall {
            self.count_overall(interval, permits);
        }
        let Some((client, hash)) = client else { return };
        let in_use = if matches!(charge.limiter.quota.algorithm(), Algorithm::TokenBucket) { used } else { 0 };
        let ended = self.clients.count(hash, interval, permits, in_use);
        if let (Some(permits), Mode::PerClient) = (ended, self.mode) {
            self.intervals.add(permits);
        }
        if is_rejected {
            self.clients.reject(client, hash, at, hasher);
        }
    }

    fn count_overall(&mut self, interval: u32, permits: u32) {
        let (current, sum) = &mut self.current;
        if *current != interval {
            self.intervals.add(*sum);
            (*current, *sum) = (interval, 0);
        }
        *sum = sum.saturating_add(permits);
    }

    /// Returns the number of requests that the limit has decided about.
    pub(super) fn requests(&self) -> u64 {
        self.allowed + self.rejected
    }

    pub(super) fn rejected(&self) -> u64 {
        self.rejected
    }

    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of clients that the limit rejected.
    pub(super) fn affected(&self) -> usize {
        self.clients.affected()
    }

    /// Returns the most permits that each client needed.
    pub(super) fn peaks(&self) -> Vec<u32> {
        self.clients.peaks().map(|(peak, _)| peak).collect()
    }

    /// Returns the clients that the limit rejected most, worst first.
    pub(super) fn top(&self) -> Vec<RejectedClient> {
        let shown = |rejected: clients::RejectedClient| RejectedClient {
            client: shown_client(&rejected.client),
            count: rejected.count,
            first: Timestamp::from_millis(rejected.first).to_rfc3339(),
            last: Timestamp::from_millis(rejected.last).to_rfc3339(),
        };
        self.clients.worst(TOP).into_iter().map(shown).collect()
    }

    /// Returns the statistics.
    pub(super) fn report(&self, limit: &Limit) -> LimitReport {
        let (mut peaks, mut intervals) = (Histogram::default(), self.intervals.clone());
        intervals.add(self.current.1);
        for (peak, latest) in self.clients.peaks() {
            if self.mode == Mode::PerClient {
                peaks.add(peak);
                intervals.add(latest);
            }
        }
        let quota = &limit.limiter.quota;
        LimitReport {
            mode: self.mode.name(),
            rate: quota.rate(),
            interval: Millis::show(quota.interval()),
            interval_ms: quota.interval(),
            algorithm: quota.algorithm().name(),
            shadow: limit.shadow,
            allowed: self.allowed,
            rejected: self.rejected,
            unknown: self.unknown,
            unverified: self.unverified,
            peak: self.peak,
            clients: self.clients.len(),
            affected: self.clients.affected(),
            top: self.top(),
            series: self.series.clone(),
            curve: curve(&peaks, &intervals),
            ranks: ranks(self.peaks()),
        }
    }
}

/// Returns the text of a client for a report: the address, the value, or a hash.
pub(super) fn shown_client(client: &ClientId) -> String {
    match client {
        ClientId::Address(network) if network.prefix_len() == network.max_prefix_len() => network.addr().to_string(),
        ClientId::Address(network) => network.to_string(),
        ClientId::Value(value) => shown_value(value, MAX_CLIENT),
        ClientId::Hash(hash) => format!("{hash:032x}"),
        ClientId::Instance(name) => name.to_string(),
    }
}
