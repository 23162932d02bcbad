//! What is counted of upstreams.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Histogram;
use super::family::{Family, Quiet};

/// Those of all upstreams.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    requests: Family<RequestLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    repeats: Family<Name, Counter>,
    broken_off: Family<BrokenOffLabels, Counter>,
    connections: Family<Name, Gauge>,
    upgraded: Family<Name, Gauge>,
    upgrades_ended: Family<BrokenOffLabels, Counter>,
    waiting: Family<Name, Gauge>,
    responses: Family<Name, Histogram>,
}

/// Counts what became of the requests to one upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamMetrics {
    answered: Counter,
    unreachable: Counter,
    timed_out: Counter,
    broken: Counter,
    repeated: Counter,
    broken_off: [Counter; 3],
    queue_full: Counter,
    queue_timed_out: Counter,
    connections: Gauge,
    upgraded: Gauge,
    upgrades_ended: [Counter; 6],
    waiting: Gauge,
    response: Histogram,
}

/// Counts the attempts to have a request answered by one target.
#[derive(Clone, Debug)]
pub(crate) struct TargetMetrics([Counter; AttemptOutcome::ALL.len()]);

/// The outcome of an attempt to have a request answered by a target.
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
    /// The client left, its body failed, or its deadline passed before the target sent a response.
    Canceled,
}

/// Why an answer ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokenOff {
    /// Nothing came of it for too long.
    Silent,
    /// Its connection ended.
    Closed,
    /// What came is no body.
    Malformed,
}

/// How a connection ended on which another protocol was spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switched {
    /// Both sides closed it.
    Closed,
    /// One side broke it off.
    Broken,
    /// Nothing moved for too long.
    Idle,
    /// It had lasted as long as it may.
    MaxTime,
    /// It had carried as much as it may.
    MaxBytes,
    /// The gateway ended it: at the end of a drain, to make room, or since the client did not read.
    CutOff,
}

/// Something that is counted as long as this is kept.
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
struct BrokenOffLabels {
    upstream: String,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    upstream: String,
}

impl Upstreams {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("upstream_requests", "What became of requests to upstreams", self.requests.clone());
        let help = "Attempts to have a request answered by a target";
        registry.register("upstream_attempts", help, self.attempts.clone());
        let help = "Requests sent once more, since a kept connection ended before it answered";
        registry.register("upstream_repeats", help, self.repeats.clone());
        let help = "Answers of upstreams that ended before their end";
        registry.register("upstream_broken_off", help, self.broken_off.clone());
        registry.register("upstream_connections", "Open connections to upstreams", self.connections.clone());
        let help = "Connections on which another protocol is spoken since an upgrade";
        registry.register("upgraded_connections", help, self.upgraded.clone());
        let help = "How they ended";
        registry.register("upgraded_connections_ended", help, self.upgrades_ended.clone());
        registry.register("upstream_waiting", "Requests that wait for a connection", self.waiting.clone());
        let help = "Seconds until an upstream's answer began";
        registry.register("upstream_response_seconds", help, self.responses.clone());
    }

    /// The counters of one of them.
    pub(super) fn of(&self, upstream: &str) -> UpstreamMetrics {
        let outcome = |outcome| {
            let labels = RequestLabels { upstream: upstream.to_owned(), outcome };
            self.requests.get_or_create(&labels)
        };
        let cause = |cause| {
            let labels = BrokenOffLabels { upstream: upstream.to_owned(), cause };
            self.broken_off.get_or_create(&labels)
        };
        let ended = |cause| {
            let labels = BrokenOffLabels { upstream: upstream.to_owned(), cause };
            self.upgrades_ended.get_or_create(&labels)
        };
        let name = Name { upstream: upstream.to_owned() };
        UpstreamMetrics {
            answered: outcome("answered"),
            unreachable: outcome("unreachable"),
            timed_out: outcome("timed_out"),
            broken: outcome("broken"),
            repeated: self.repeats.get_or_create(&name),
            broken_off: ["silent", "closed", "malformed"].map(cause),
            queue_full: outcome("queue_full"),
            queue_timed_out: outcome("queue_timeout"),
            connections: self.connections.get_or_create(&name),
            upgraded: self.upgraded.get_or_create(&name),
            upgrades_ended: ["closed", "broken", "idle", "max_time", "max_bytes", "cut_off"].map(ended),
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
    /// Counts an attempt.
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

    /// Returns the word for it in metrics and in the access log.
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
    /// It answered.
    pub(crate) fn answered(&self, took: Duration) {
        self.answered.inc();
        self.response.observe(took);
    }

    /// No connection: the request was never sent.
    pub(crate) fn unreachable(&self) {
        self.unreachable.inc();
    }

    /// No answer in time.
    pub(crate) fn timed_out(&self) {
        self.timed_out.inc();
    }

    /// The connection broke, or the answer was none.
    pub(crate) fn broken(&self) {
        self.broken.inc();
    }

    /// A kept connection ended before it answered, and the request is sent once more.
    pub(crate) fn repeated(&self) {
        self.repeated.inc();
    }

    /// An answer that had begun ended before its end.
    pub(crate) fn broken_off(&self, why: BrokenOff) {
        self.broken_off[why as usize].inc();
    }

    /// A connection was opened.
    pub(crate) fn connection(&self) -> GaugeGuard {
        GaugeGuard::of(&self.connections)
    }

    /// Another protocol is spoken on a connection.
    pub(crate) fn switched(&self) -> GaugeGuard {
        GaugeGuard::of(&self.upgraded)
    }

    /// It is no longer.
    pub(crate) fn switched_ended(&self, how: Switched) {
        self.upgrades_ended[how as usize].inc();
    }

    /// A request waits for a connection.
    pub(crate) fn waiting(&self) -> GaugeGuard {
        GaugeGuard::of(&self.waiting)
    }

    /// Too many requests waited for a connection: it was not sent.
    pub(crate) fn queue_full(&self) {
        self.queue_full.inc();
    }

    /// It waited for a connection for too long, and was not sent.
    pub(crate) fn queue_timed_out(&self) {
        self.queue_timed_out.inc();
    }
}

impl GaugeGuard {
    fn of(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// That there are none of what there were some is news.
impl Quiet for Gauge {
    fn is_quiet(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_listed_in_the_order_of_their_numbers() {
        for (number, outcome) in AttemptOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number, "{outcome:?}");
        }
    }
}
