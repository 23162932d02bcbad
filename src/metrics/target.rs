//! Metrics of the targets of upstreams.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use super::family::Family;
use super::upstream::UPSTREAM;

/// The metrics of all targets.
#[derive(Debug, Default)]
pub(super) struct Targets {
    attempts: Family<AttemptLabels, Counter>,
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    upstream: String,
    target: String,
    outcome: &'static str,
}

impl Targets {
    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let attempts = Description {
            name: "upstream_attempts",
            labels: &[UPSTREAM, Label::Open("target"), Label::Fixed("outcome", &AttemptOutcome::WORDS)],
            unit: "attempts",
            meaning: "Attempts to get a response from each target. `ok`: a response head arrived; `canceled`: the \
                      client left",
            action: "the [failures](operations.md#upstream-failures) explain each outcome",
        };
        catalog.add(self.attempts.clone(), attempts);
    }
}

impl Metrics {
    /// Returns the counters of one target of an upstream, named as in the rule file.
    pub(crate) fn target(&self, upstream: &str, target: &str) -> TargetMetrics {
        let (upstream, target) = (upstream.to_owned(), target.to_owned());
        TargetMetrics(AttemptOutcome::ALL.map(|outcome| {
            let outcome = outcome.as_str();
            self.targets.attempts.get_or_create(&AttemptLabels {
                upstream: upstream.clone(),
                target: target.clone(),
                outcome,
            })
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

    /// The names of all outcomes.
    const WORDS: [&str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut next = 0;
        while next < words.len() {
            words[next] = Self::ALL[next].as_str();
            next += 1;
        }
        words
    };

    /// Returns the name of the outcome in metrics and in the access log.
    pub(crate) const fn as_str(self) -> &'static str {
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
