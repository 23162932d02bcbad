//! The statistics of one limit.

use super::clients::{Clients, Counted, Demand};
use super::curve::{Histogram, curve};
use super::ranks::ranks;
use super::rejected::RejectedClients;
use super::series::Series;
use super::{LimitReport, RejectedClient};
use tidegate_config::Millis;
use tidegate_limit::Mode;
use tidegate_rules::charge::{Charge, ClientId, Decision};
use tidegate_rules::limits::rule::Limit;

/// The number of rejected clients in a report.
const TOP: usize = 10;

/// The statistics of one limit.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The route, `@` for a shared limit, and the limit.
    pub(crate) name: String,
    mode: Mode,
    interval: u64,
    allowed: u64,
    rejected: u64,
    pub(crate) unknown: u64,
    pub(crate) unverified: u64,
    pub(crate) overflowed: bool,
    /// The largest share of the permits that was in use.
    peak: f64,
    /// The group of clients, and the position of the limit in their rows.
    pub(crate) group: usize,
    position: usize,
    /// The number of clients.
    clients: usize,
    rejected_clients: RejectedClients,
    /// The current interval of an OVERALL limit, and the permits in it.
    current: (u64, u32),
    /// The permits in each past interval of each bucket.
    intervals: Histogram,
    series: Series,
}

/// A client, with its row.
pub(crate) type ClientRow<'c> = (&'c ClientId, u32);

impl Tally {
    /// Creates empty statistics. The limit has this position in the rows of a group of clients.
    pub(crate) fn new(name: String, limit: &Limit, (group, position): (usize, usize)) -> Self {
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
            group,
            position,
            clients: 0,
            rejected_clients: RejectedClients::default(),
            current: (0, 0),
            intervals: Histogram::default(),
            series: Series::default(),
        }
    }

    /// Records the decision of the limit about a request that needs these permits. `clients` is the group of the limit.
    /// The client of an OVERALL limit is the address, if it is known.
    #[inline]
    pub(crate) fn record(
        &mut self,
        client: Option<ClientRow<'_>>,
        clients: &mut Clients,
        charge: &Charge,
        decision: &Decision,
        permits: u32,
        at: u64,
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
        if used > 0 {
            self.peak = self.peak.max(f64::from(used) / f64::from(full));
        }
        let interval = at / self.interval.max(1);
        if self.mode == Mode::Overall {
            self.count_overall(interval, permits);
        }
        let Some((client, row)) = client else { return };
        let in_use = if charge.limiter.quota.algorithm().counts_the_last_interval() { used } else { 0 };
        match clients.demand(row, self.position).count(interval, permits, in_use) {
            Counted::New => self.clients += 1,
            Counted::Next(permits) if self.mode == Mode::PerClient => self.intervals.add(permits),
            Counted::Next(_) | Counted::Same => {}
        }
        if is_rejected {
            self.rejected_clients.add(client, row, at);
        }
    }

    fn count_overall(&mut self, interval: u64, permits: u32) {
        let (current, sum) = &mut self.current;
        if *current != interval {
            self.intervals.add(*sum);
            (*current, *sum) = (interval, 0);
        }
        *sum = sum.saturating_add(permits);
    }

    /// Returns the number of requests that the limit has decided about.
    pub(crate) fn requests(&self) -> u64 {
        self.allowed + self.rejected
    }

    /// Returns the number of clients that the limit rejected.
    pub(crate) fn affected(&self) -> usize {
        self.rejected_clients.len()
    }

    /// Returns the most permits that each client needed. `clients` is the group of the limit.
    pub(crate) fn peaks(&self, clients: &Clients) -> Vec<u32> {
        clients.demands(self.position).map(Demand::peak).collect()
    }

    /// Iterates over the clients that the limit rejected, with the numbers of their rejections.
    pub(crate) fn rejections(&self) -> impl Iterator<Item = (&ClientId, u64)> {
        self.rejected_clients.iter()
    }

    /// Returns the clients that the limit rejected most, worst first.
    pub(crate) fn worst(&self) -> Vec<(&ClientId, RejectedClient)> {
        self.rejected_clients.worst(TOP)
    }

    /// Returns the statistics. `clients` is the group of the limit.
    pub(crate) fn report(&self, limit: &Limit, clients: &Clients) -> LimitReport {
        let (mut peaks, mut intervals) = (Histogram::default(), self.intervals.clone());
        intervals.add(self.current.1);
        if self.mode == Mode::PerClient {
            for demand in clients.demands(self.position) {
                peaks.add(demand.peak());
                intervals.add(demand.latest());
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
            clients: self.clients,
            affected: self.affected(),
            top: self.worst().into_iter().map(|(_, client)| client).collect(),
            series: self.series.clone(),
            curve: curve(&peaks, &intervals),
            ranks: ranks(self.peaks(clients)),
        }
    }
}
