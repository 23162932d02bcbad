//! Metrics of upstreams and their targets.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Histogram;
use super::family::{Family, Untouched};

/// The metrics of all upstreams.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    requests: Family<RequestLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    repeats: Family<Name, Counter>,
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
    broken_responses: [Counter; 3],
    queue_full: Counter,
    queue_timed_out: Counter,
    connections: Gauge,
    tunnels: Gauge,
    tunnels_ended: [Counter; 6],
    waiting: Gauge,
    response: Histogram,
}

/// Counters of the attempts on one target, by outcome.
#[derive(Clone, Debug)]
pub(crate) struct TargetMetrics([Counter; AttemptOutcome::ALL.len()]);

/// The outcome of an attempt to get a response from a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// The target sent the head of a response.
    Ok,
    /// The target's name has no address.
    ResolveFailed,
    /// No connection could be opened.
    ConnectFailed,
    /// The TLS handshake failed.
    TlsFailed,
    /// The target closed the connection before it sent a response.
    Closed,
    /// The target sent something that is not a valid response.
    InvalidResponse,
    /// The target did not begin its response in time.
    Timeout,
    /// The target refused to process the request (HTTP/2 REFUSED_STREAM or GOAWAY).
    Refused,
    /// All connections were in use, and the queue for one was full.
    QueueFull,
    /// All connections were in use for as long as a request may wait.
    QueueTimeout,
    /// The client disconnected, the request body failed, or the deadline passed before the target sent a response.
    Canceled,
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

/// Counts one in a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    upstream: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    upstream: String,
    target: String,
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
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("upstream_requests", "Outcomes of requests to upstreams", self.requests.clone());
        let help = "Attempts to get a response from a target";
        registry.register("upstream_attempts", help, self.attempts.clone());
        let help = "Requests sent again because an idle connection was closed before the response";
        registry.register("upstream_repeats", help, self.repeats.clone());
        let help = "Incomplete responses of upstreams";
        registry.register("upstream_broken_off", help, self.broken_responses.clone());
        registry.register("upstream_connections", "Open connections to upstreams", self.connections.clone());
        let help = "Open connections that were upgraded to another protocol";
        registry.register("upgraded_connections", help, self.tunnels.clone());
        let help = "Closed connections that had been upgraded to another protocol, by cause";
        registry.register("upgraded_connections_ended", help, self.tunnels_ended.clone());
        registry.register("upstream_waiting", "Requests that wait for a connection", self.waiting.clone());
        let help = "Seconds until the head of an upstream's response";
        registry.register("upstream_response_seconds", help, self.responses.clone());
    }

    /// Returns the counters of one upstream.
    pub(super) fn upstream(&self, upstream: &str) -> UpstreamMetrics {
        let outcome = |outcome| {
            let labels = RequestLabels { upstream: upstream.to_owned(), outcome };
            self.requests.get_or_create(&labels)
        };
        let cause = |cause| {
            let labels = CauseLabels { upstream: upstream.to_owned(), cause };
            self.broken_responses.get_or_create(&labels)
        };
        let ended = |cause| {
            let labels = CauseLabels { upstream: upstream.to_owned(), cause };
            self.tunnels_ended.get_or_create(&labels)
        };
        let name = Name { upstream: upstream.to_owned() };
        UpstreamMetrics {
            answered: outcome("answered"),
            unreachable: outcome("unreachable"),
            timed_out: outcome("timed_out"),
            broken: outcome("broken"),
            repeated: self.repeats.get_or_create(&name),
            broken_responses: ["silent", "closed", "malformed"].map(cause),
            queue_full: outcome("queue_full"),
            queue_timed_out: outcome("queue_timeout"),
            connections: self.connections.get_or_create(&name),
            tunnels: self.tunnels.get_or_create(&name),
            tunnels_ended: ["closed", "broken", "idle", "max_time", "max_bytes", "cut_off"].map(ended),
            waiting: self.waiting.get_or_create(&name),
            response: self.responses.get_or_create(&name),
        }
    }
}

impl Upstreams {
    /// Returns the counters of one target.
    pub(super) fn target(&self, upstream: &str, target: &str) -> TargetMetrics {
        let (upstream, target) = (upstream.to_owned(), target.to_owned());
        TargetMetrics(AttemptOutcome::ALL.map(|outcome| {
            let outcome = outcome.as_str();
            self.attempts.get_or_create(&AttemptLabels { upstream: upstream.clone(), target: target.clone(), outcome })
        }))
    }
}

impl TargetMetrics {
    /// Counts an attempt with its outcome.
    pub(crate) fn attempted(&self, outcome: AttemptOutcome) {
        self.0[outcome as usize].inc();
    }
}

impl AttemptOutcome {
    /// All outcomes, in the order of their numbers.
    const ALL: [Self; 11] = [
        Self::Ok,
        Self::ResolveFailed,
        Self::ConnectFailed,
        Self::TlsFailed,
        Self::Closed,
        Self::InvalidResponse,
        Self::Timeout,
        Self::Refused,
        Self::QueueFull,
        Self::QueueTimeout,
        Self::Canceled,
    ];

    /// Returns the name of the outcome in metrics and in the access log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ResolveFailed => "resolve_failed",
            Self::ConnectFailed => "connect_failed",
            Self::TlsFailed => "tls_failed",
            Self::Closed => "closed",
            Self::InvalidResponse => "invalid_response",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::Canceled => "canceled",
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

impl GaugeGuard {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A gauge is always exported: a change to 0 is information, too.
impl Untouched for Gauge {
    fn is_untouched(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_listed_in_numerical_order() {
        for (number, outcome) in AttemptOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number, "{outcome:?}");
        }
    }
}
