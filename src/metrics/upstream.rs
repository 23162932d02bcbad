//! Metrics of upstreams.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use super::family::Family;
use super::gauge::GaugeGuard;
use super::histogram::Histogram;
#[cfg(feature = "gateway")]
use super::sample::Sample;
use super::series_users::{SeriesUser, SeriesUsers};

pub(super) const UPSTREAM: Label = Label::Open("upstream");

/// The final outcomes of a request to an upstream.
const OUTCOMES: [&str; 6] = ["answered", "unreachable", "timed_out", "broken", "queue_full", "queue_timeout"];

/// The names of [`BrokenResponse`], in the order of its variants.
const BROKEN_RESPONSES: [&str; 3] = ["silent", "closed", "malformed"];

/// The names of [`RetryCause`], in the order of its variants.
const RETRY_CAUSES: [&str; 5] = ["connect", "unsent", "reset", "timeout", "status"];

/// The names of [`TunnelEnd`], in the order of its variants.
const TUNNEL_ENDS: [&str; 6] = ["closed", "broken", "idle", "max_time", "max_bytes", "cut_off"];

/// The metrics of all upstreams.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    users: SeriesUsers,
    requests: Family<RequestLabels, Counter>,
    repeats: Family<Name, Counter>,
    retries: Family<CauseLabels, Counter>,
    exhausted_budgets: Family<Name, Counter>,
    broken_responses: Family<CauseLabels, Counter>,
    connections: Family<Name, Gauge>,
    tunnels: Family<Name, Gauge>,
    tunnels_ended: Family<CauseLabels, Counter>,
    waiting: Family<Name, Gauge>,
    responses: Family<Name, Histogram>,
}

/// The counters of one upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamMetrics {
    answered: Counter,
    unreachable: Counter,
    timed_out: Counter,
    broken: Counter,
    repeated: Counter,
    retried: [Counter; RETRY_CAUSES.len()],
    budget_exhausted: Counter,
    broken_responses: [Counter; BROKEN_RESPONSES.len()],
    queue_full: Counter,
    queue_timed_out: Counter,
    connections: Gauge,
    tunnels: Gauge,
    tunnels_ended: [Counter; TUNNEL_ENDS.len()],
    waiting: Gauge,
    response: Histogram,
    _user: Arc<SeriesUser>,
}

/// The numbers of one upstream.
#[cfg(feature = "gateway")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpstreamTotals {
    /// The requests by outcome, in the order of [`OUTCOMES`].
    pub(crate) requests: [u64; OUTCOMES.len()],
    /// The requests that were sent again.
    pub(crate) retried: u64,
    /// The open connections.
    pub(crate) connections: i64,
    /// The requests that wait for a connection.
    pub(crate) waiting: i64,
}

/// Why a response was incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokenResponse {
    /// The upstream sent nothing for too long.
    Silent,
    /// The connection was closed.
    Closed,
    /// The upstream sent an invalid body.
    Malformed,
}

/// Why a request was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryCause {
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
pub(crate) enum TunnelEnd {
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    upstream: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    upstream: String,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    upstream: String,
}

impl Upstreams {
    /// Creates metrics whose histograms are like `durations`.
    pub(super) fn new(durations: &Histogram) -> Self {
        Self { responses: Family::new(durations.clone()), ..Self::default() }
    }

    /// Adds all upstreams to a sample.
    #[cfg(feature = "gateway")]
    pub(super) fn sample(&self, sample: &mut Sample) {
        self.requests.for_each(|RequestLabels { upstream, outcome }, counter| {
            let position = usize::from(*outcome != OUTCOMES[0]);
            sample.upstream(upstream).requests[position] += counter.get();
        });
        self.broken_responses.for_each(|CauseLabels { upstream, .. }, counter| {
            sample.upstream(upstream).requests[1] += counter.get();
        });
        self.responses.for_each(|Name { upstream }, histogram| {
            sample.upstream(upstream).requests[2] = histogram.count_and_sum().1;
        });
        self.connections.for_each(|Name { upstream }, gauge| sample.upstream(upstream).connections = gauge.get());
        self.waiting.for_each(|Name { upstream }, gauge| sample.upstream(upstream).waiting = gauge.get());
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
        catalog.add(self.requests.clone(), requests);
        let repeats = Description {
            name: "upstream_repeats",
            labels: &[UPSTREAM],
            unit: "requests",
            meaning: "Requests sent again because an idle connection was closed before it was used",
            action: "grows fast: the servers close idle connections early; lengthen their keep-alive timeout",
        };
        catalog.add(self.repeats.clone(), repeats);
        let retries = Description {
            name: "upstream_retries",
            labels: &[UPSTREAM, Label::Fixed("cause", &RETRY_CAUSES)],
            unit: "requests",
            meaning: "Requests sent again after an attempt failed",
            action: "grows: a target fails; `tidegate_upstream_attempts_total` has the outcomes of each target",
        };
        catalog.add(self.retries.clone(), retries);
        let exhausted = Description {
            name: "upstream_retry_budget_exhausted",
            labels: &[UPSTREAM],
            unit: "requests",
            meaning: "Failed requests that were not sent again because the retry budget was exhausted",
            action: "grows: many requests fail; repair the targets before you raise `retry.budget`",
        };
        catalog.add(self.exhausted_budgets.clone(), exhausted);
        let broken = Description {
            name: "upstream_broken_off",
            labels: &[UPSTREAM, Label::Fixed("cause", &BROKEN_RESPONSES)],
            unit: "responses",
            meaning: "Incomplete responses",
            action: "`silent`: raise `timeouts.idle`; else check the log of the upstream",
        };
        catalog.add(self.broken_responses.clone(), broken);
        let responses = Description {
            name: "upstream_response_seconds",
            labels: &[UPSTREAM],
            unit: "seconds",
            meaning: "Time until the head of the response",
            action: "grows: the upstream is slow; compare `tidegate_upstream_waiting`",
        };
        catalog.add(self.responses.clone(), responses);
        let connections = Description {
            name: "upstream_connections",
            labels: &[UPSTREAM],
            unit: "connections",
            meaning: "Open connections",
            action: "near `max_connections`: requests begin to wait",
        };
        catalog.add(self.connections.clone(), connections);
        let waiting = Description {
            name: "upstream_waiting",
            labels: &[UPSTREAM],
            unit: "requests",
            meaning: "Requests that wait for a connection",
            action: "stays above 0: raise `max_connections`, or make the upstream faster",
        };
        catalog.add(self.waiting.clone(), waiting);
        let tunnels = Description {
            name: "upgraded_connections",
            labels: &[UPSTREAM],
            unit: "connections",
            meaning: "Open connections that were upgraded to another protocol",
            action: "they keep a client and an upstream connection each",
        };
        catalog.add(self.tunnels.clone(), tunnels);
        let ended = Description {
            name: "upgraded_connections_ended",
            labels: &[UPSTREAM, Label::Fixed("cause", &TUNNEL_ENDS)],
            unit: "connections",
            meaning: "Ended upgraded connections",
            action: "`idle`, `max_time`, `max_bytes`: a bound of the route ended them; raise it if users notice",
        };
        catalog.add(self.tunnels_ended.clone(), ended);
    }
}

impl Upstreams {
    /// Adds a user of an upstream's series, which are removed when the upstream has no users left.
    fn add_user(&self, upstream: &str) -> Arc<SeriesUser> {
        let (requests, broken_responses, ended) =
            (self.requests.clone(), self.broken_responses.clone(), self.tunnels_ended.clone());
        let gauges = [self.connections.clone(), self.tunnels.clone(), self.waiting.clone()];
        let (retries, exhausted_budgets) = (self.retries.clone(), self.exhausted_budgets.clone());
        let (repeats, responses, name) =
            (self.repeats.clone(), self.responses.clone(), Name { upstream: upstream.to_owned() });
        self.users.add((upstream.to_owned(), None), move || {
            let Name { upstream } = &name;
            let remove = |family: &Family<CauseLabels, Counter>, causes: &[&'static str]| {
                let labels = |cause| CauseLabels { upstream: upstream.clone(), cause };
                causes.iter().for_each(|cause| family.remove(&labels(cause)));
            };
            for outcome in OUTCOMES {
                requests.remove(&RequestLabels { upstream: upstream.clone(), outcome });
            }
            remove(&broken_responses, &BROKEN_RESPONSES);
            remove(&ended, &TUNNEL_ENDS);
            remove(&retries, &RETRY_CAUSES);
            exhausted_budgets.remove(&name);
            gauges.iter().for_each(|gauge| gauge.remove(&name));
            repeats.remove(&name);
            responses.remove(&name);
        })
    }
}

impl Metrics {
    /// Returns the counters of one upstream. They are exported until the handle and its clones are dropped.
    pub(crate) fn upstream(&self, upstream: &str) -> UpstreamMetrics {
        let all = &self.upstreams;
        let _user = all.add_user(upstream);
        let name = Name { upstream: upstream.to_owned() };
        let outcome = |outcome| {
            let labels = RequestLabels { upstream: upstream.to_owned(), outcome };
            all.requests.get_or_create(&labels)
        };
        let cause = |family: &Family<CauseLabels, Counter>, cause| {
            let labels = CauseLabels { upstream: upstream.to_owned(), cause };
            family.get_or_create(&labels)
        };
        let [answered, unreachable, timed_out, broken, queue_full, queue_timed_out] = OUTCOMES.map(outcome);
        UpstreamMetrics {
            answered,
            unreachable,
            timed_out,
            broken,
            repeated: all.repeats.get_or_create(&name),
            retried: RETRY_CAUSES.map(|word| cause(&all.retries, word)),
            budget_exhausted: all.exhausted_budgets.get_or_create(&name),
            broken_responses: BROKEN_RESPONSES.map(|word| cause(&all.broken_responses, word)),
            queue_full,
            queue_timed_out,
            connections: all.connections.get_or_create(&name),
            tunnels: all.tunnels.get_or_create(&name),
            tunnels_ended: TUNNEL_ENDS.map(|word| cause(&all.tunnels_ended, word)),
            waiting: all.waiting.get_or_create(&name),
            response: all.responses.get_or_create(&name),
            _user,
        }
    }
}

#[cfg(feature = "gateway")]
impl Metrics {
    /// Returns the numbers of an upstream.
    pub(crate) fn upstream_totals(&self, name: &str) -> UpstreamTotals {
        let of = self.upstream(name);
        let requests = [&of.answered, &of.unreachable, &of.timed_out, &of.broken, &of.queue_full, &of.queue_timed_out];
        UpstreamTotals {
            requests: requests.map(Counter::get),
            retried: of.repeated.get(),
            connections: of.connections.get(),
            waiting: of.waiting.get(),
        }
    }
}

impl UpstreamMetrics {
    /// Counts a response, and the time until its head.
    pub(crate) fn responded(&self, duration: Duration) {
        self.answered.inc();
        self.response.observe(duration);
    }

    /// Counts a request that was not sent, because no connection could be opened.
    pub(crate) fn unreachable(&self) {
        self.unreachable.inc();
    }

    /// Counts a request without a response in time.
    pub(crate) fn timed_out(&self) {
        self.timed_out.inc();
    }

    /// Counts a request whose connection failed, or whose response was invalid.
    pub(crate) fn broken(&self) {
        self.broken.inc();
    }

    /// Counts a request that is sent again, because an idle connection was closed before the response.
    pub(crate) fn repeated(&self) {
        self.repeated.inc();
    }

    /// Counts a request that is sent again after an attempt failed.
    pub(crate) fn retried(&self, cause: RetryCause) {
        self.retried[cause as usize].inc();
    }

    /// Counts a request that is not sent again because the budget is exhausted.
    pub(crate) fn retry_budget_exhausted(&self) {
        self.budget_exhausted.inc();
    }

    /// Counts an incomplete response.
    pub(crate) fn broken_response(&self, cause: BrokenResponse) {
        self.broken_responses[cause as usize].inc();
    }

    /// Counts an open connection.
    pub(crate) fn connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.connections)
    }

    /// Counts a connection that was upgraded to another protocol.
    pub(crate) fn tunnel_opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.tunnels)
    }

    /// Counts the end of a connection that had been upgraded.
    pub(crate) fn tunnel_ended(&self, how: TunnelEnd) {
        self.tunnels_ended[how as usize].inc();
    }

    /// Counts a request that waits for a connection.
    pub(crate) fn waiting(&self) -> GaugeGuard {
        GaugeGuard::new(&self.waiting)
    }

    /// Counts a request that was not sent, because too many requests waited for a connection.
    pub(crate) fn queue_full(&self) {
        self.queue_full.inc();
    }

    /// Counts a request that was not sent, because it waited too long for a connection.
    pub(crate) fn queue_timed_out(&self) {
        self.queue_timed_out.inc();
    }
}
