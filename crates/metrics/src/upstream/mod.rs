//! Metrics of upstreams.

pub(crate) mod dns;
pub(crate) mod target;

use std::slice::from_ref;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::count::Count;
use crate::instruments::gauge::GaugeGuard;
use crate::instruments::histogram::Histogram;
use crate::instruments::sample::{Sample, UpstreamSample};

pub(super) const UPSTREAM: Label = Label::Open("upstream");

/// The names of [`Outcome`], in the order of its variants.
const OUTCOMES: [&str; 6] = ["answered", "unreachable", "timed_out", "broken", "queue_full", "queue_timeout"];

/// The names of [`BrokenResponse`], in the order of its variants.
const BROKEN_RESPONSES: [&str; 3] = ["silent", "closed", "malformed"];

/// The names of [`RetryCause`], in the order of its variants.
const RETRY_CAUSES: [&str; 5] = ["connect", "unsent", "reset", "timeout", "status"];

/// The names of [`TunnelEnd`], in the order of its variants.
const TUNNEL_ENDS: [&str; 6] = ["closed", "broken", "idle", "max_time", "max_bytes", "cut_off"];

/// The metrics of all upstreams.
#[derive(Debug)]
pub(super) struct Upstreams {
    all: ByName<UpstreamSeries, 1>,
    /// The template of the histograms of all upstreams.
    durations: Histogram,
}

/// The counters of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamMetrics(Handle<UpstreamSeries, 1>);

#[derive(Debug)]
struct UpstreamSeries {
    requests: [Count; OUTCOMES.len()],
    repeats: Count,
    retries: [Count; RETRY_CAUSES.len()],
    exhausted_budgets: Count,
    broken_responses: [Count; BROKEN_RESPONSES.len()],
    connections: Gauge,
    tunnels: Gauge,
    tunnels_ended: [Count; TUNNEL_ENDS.len()],
    waiting: Gauge,
    panic: Gauge,
    responses: Histogram,
}

/// The final outcome of a request to an upstream.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Answered,
    Unreachable,
    TimedOut,
    Broken,
    QueueFull,
    QueueTimedOut,
}

/// The numbers of one upstream.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamTotals {
    /// The requests by outcome: answered, unreachable, timed out, broken, queue full, queue timeout.
    pub requests: [u64; OUTCOMES.len()],
    /// The requests that were sent again.
    pub retried: u64,
    /// The open connections.
    pub connections: i64,
    /// The requests that wait for a connection.
    pub waiting: i64,
}

/// Why a response was incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenResponse {
    /// The upstream sent nothing for too long.
    Silent,
    /// The connection was closed.
    Closed,
    /// The upstream sent an invalid body.
    Malformed,
}

/// Why a request was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// No connection was opened.
    Connect,
    /// The request was not sent, or the target did not process it.
    Unsent,
    /// The connection was closed before the response.
    Reset,
    /// The response did not begin in time.
    Timeout,
    /// The status of the response.
    Status,
}

/// How a connection ended after an upgrade to another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// Both sides closed it.
    Closed,
    /// The connection failed.
    Broken,
    /// No data was sent for too long.
    Idle,
    /// The maximum duration was reached.
    MaxTime,
    /// The maximum number of bytes was reached.
    MaxBytes,
    /// The gateway closed the connection: at the end of a drain, for a new connection, or because the client did not
    /// read.
    CutOff,
}

impl Upstreams {
    /// Creates metrics whose histograms are like `durations`.
    pub(super) fn new(durations: &Histogram) -> Self {
        Self { all: ByName::default(), durations: durations.empty() }
    }

    /// Adds all upstreams to a sample.
    pub(super) fn sample(&self, sample: &mut Sample) {
        for upstream in self.all.all() {
            let [name] = upstream.names();
            let [answered, failed @ ..] = upstream.requests.each_ref().map(Count::get);
            let broken: u64 = upstream.broken_responses.iter().map(Count::get).sum();
            *sample.upstream(name) = UpstreamSample {
                requests: [answered, failed.iter().sum::<u64>() + broken, upstream.responses.count_and_sum().1],
                connections: upstream.connections.get(),
                waiting: upstream.waiting.get(),
            };
        }
    }
    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let requests = Description {
            name: "upstream_requests",
            labels: &[UPSTREAM, Label::Fixed("outcome", &OUTCOMES)],
            unit: "requests",
            meaning: "Requests to each upstream by final outcome",
            action: "anything but `answered`: the access log has the `reason`; `queue_full` and `queue_timeout`: \
                     raise `max_connections`",
        };
        catalog.add(self.all.metric(requests.labels, |upstream| &upstream.requests), requests);
        let repeats = Description {
            name: "upstream_repeats",
            labels: &[UPSTREAM],
            unit: "requests",
            meaning: "Requests sent again because an idle connection was closed before it was used",
            action: "grows fast: the servers close idle connections early; lengthen their keep-alive timeout",
        };
        catalog.add(self.all.metric(repeats.labels, |upstream| from_ref(&upstream.repeats)), repeats);
        let retries = Description {
            name: "upstream_retries",
            labels: &[UPSTREAM, Label::Fixed("cause", &RETRY_CAUSES)],
            unit: "requests",
            meaning: "Requests sent again after an attempt failed",
            action: "grows: a target fails; `tidegate_upstream_attempts_total` has the outcomes of each target",
        };
        catalog.add(self.all.metric(retries.labels, |upstream| &upstream.retries), retries);
        let exhausted = Description {
            name: "upstream_retry_budget_exhausted",
            labels: &[UPSTREAM],
            unit: "requests",
            meaning: "Failed requests that were not sent again because the retry budget was exhausted",
            action: "grows: many requests fail; repair the targets before you raise `retry.budget`",
        };
        catalog.add(self.all.metric(exhausted.labels, |upstream| from_ref(&upstream.exhausted_budgets)), exhausted);
        let broken = Description {
            name: "upstream_broken_off",
            labels: &[UPSTREAM, Label::Fixed("cause", &BROKEN_RESPONSES)],
            unit: "responses",
            meaning: "Incomplete responses",
            action: "`silent`: raise `timeouts.idle`; else check the log of the upstream",
        };
        catalog.add(self.all.metric(broken.labels, |upstream| &upstream.broken_responses), broken);
        let responses = Description {
            name: "upstream_response_seconds",
            labels: &[UPSTREAM],
            unit: "seconds",
            meaning: "Time until the head of the response",
            action: "grows: the upstream is slow; compare `tidegate_upstream_waiting`",
        };
        catalog.add(self.all.metric(responses.labels, |upstream| from_ref(&upstream.responses)), responses);
        let connections = Description {
            name: "upstream_connections",
            labels: &[UPSTREAM],
            unit: "connections",
            meaning: "Open connections",
            action: "near `max_connections`: requests begin to wait",
        };
        catalog.add(self.all.metric(connections.labels, |upstream| from_ref(&upstream.connections)), connections);
        let waiting = Description {
            name: "upstream_waiting",
            labels: &[UPSTREAM],
            unit: "requests",
            meaning: "Requests that wait for a connection",
            action: "stays above 0: raise `max_connections`, or make the upstream faster",
        };
        catalog.add(self.all.metric(waiting.labels, |upstream| from_ref(&upstream.waiting)), waiting);
        let panic = Description {
            name: "upstream_panic",
            labels: &[UPSTREAM],
            unit: "0 or 1",
            meaning: "1 while more targets than `health.panic` fail their checks, and requests use all of them",
            action: "1: `tidegate upstreams` shows the results of the checks; the network of the gateway may have failed",
        };
        catalog.add(self.all.metric(panic.labels, |upstream| from_ref(&upstream.panic)), panic);
        let tunnels = Description {
            name: "upgraded_connections",
            labels: &[UPSTREAM],
            unit: "connections",
            meaning: "Open connections that were upgraded to another protocol",
            action: "they keep a client and an upstream connection each",
        };
        catalog.add(self.all.metric(tunnels.labels, |upstream| from_ref(&upstream.tunnels)), tunnels);
        let ended = Description {
            name: "upgraded_connections_ended",
            labels: &[UPSTREAM, Label::Fixed("cause", &TUNNEL_ENDS)],
            unit: "connections",
            meaning: "Ended upgraded connections",
            action: "`idle`, `max_time`, `max_bytes`: a bound of the route ended them; raise it if users notice",
        };
        catalog.add(self.all.metric(ended.labels, |upstream| &upstream.tunnels_ended), ended);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Returns the counters of one upstream. They are exported until the handle and its clones are dropped.
    pub fn upstream(&self, upstream: &str) -> UpstreamMetrics {
        let Upstreams { all, durations } = &self.upstreams;
        UpstreamMetrics(all.get_or_create([upstream.into()], || UpstreamSeries::new(durations)))
    }

    /// Returns the numbers of an upstream.
    pub fn upstream_totals(&self, name: &str) -> UpstreamTotals {
        let UpstreamMetrics(series) = self.upstream(name);
        UpstreamTotals {
            requests: series.requests.each_ref().map(Count::get),
            retried: series.repeats.get(),
            connections: series.connections.get(),
            waiting: series.waiting.get(),
        }
    }
}

impl UpstreamSeries {
    /// Creates series whose histogram is like `durations`.
    fn new(durations: &Histogram) -> Self {
        Self {
            requests: Default::default(),
            repeats: Count::default(),
            retries: Default::default(),
            exhausted_budgets: Count::default(),
            broken_responses: Default::default(),
            connections: Gauge::default(),
            tunnels: Gauge::default(),
            tunnels_ended: Default::default(),
            waiting: Gauge::default(),
            panic: Gauge::default(),
            responses: durations.empty(),
        }
    }
}

impl UpstreamMetrics {
    /// Counts a response, and the time until its head.
    pub fn responded(&self, duration: Duration) {
        self.count(Outcome::Answered);
        self.0.responses.observe(duration);
    }

    /// Counts a request that was not sent, because no connection could be opened.
    pub fn unreachable(&self) {
        self.count(Outcome::Unreachable);
    }

    /// Counts a request without a response in time.
    pub fn timed_out(&self) {
        self.count(Outcome::TimedOut);
    }

    /// Counts a request whose connection failed, or whose response was invalid.
    pub fn broken(&self) {
        self.count(Outcome::Broken);
    }

    /// Counts a request that is sent again, because an idle connection was closed before the response.
    pub fn repeated(&self) {
        self.0.repeats.inc();
    }

    /// Counts a request that is sent again after an attempt failed.
    pub fn retried(&self, cause: RetryCause) {
        self.0.retries[cause as usize].inc();
    }

    /// Counts a request that is not sent again because the budget is exhausted.
    pub fn retry_budget_exhausted(&self) {
        self.0.exhausted_budgets.inc();
    }

    /// Counts an incomplete response.
    pub fn broken_response(&self, cause: BrokenResponse) {
        self.0.broken_responses[cause as usize].inc();
    }

    /// Counts an open connection.
    pub fn connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.connections)
    }

    /// Counts a connection that was upgraded to another protocol.
    pub fn tunnel_opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.tunnels)
    }

    /// Counts the end of a connection that had been upgraded.
    pub fn tunnel_ended(&self, how: TunnelEnd) {
        self.0.tunnels_ended[how as usize].inc();
    }

    /// Sets whether requests use targets that fail their checks.
    pub fn set_panic(&self, is_panic: bool) {
        self.0.panic.set(i64::from(is_panic));
    }

    /// Counts a request that waits for a connection.
    pub fn waiting(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.waiting)
    }

    /// Counts a request that was not sent, because too many requests waited for a connection.
    pub fn queue_full(&self) {
        self.count(Outcome::QueueFull);
    }

    /// Counts a request that was not sent, because it waited too long for a connection.
    pub fn queue_timed_out(&self) {
        self.count(Outcome::QueueTimedOut);
    }

    fn count(&self, outcome: Outcome) {
        self.0.requests[outcome as usize].inc();
    }
}
