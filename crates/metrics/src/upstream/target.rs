//! Metrics of the targets of upstreams.

use std::slice::from_ref;

use prometheus_client::metrics::gauge::Gauge;

use crate::Metrics;
use crate::catalog::{Catalog, Description, Label};
use crate::instruments::by_name::{ByName, Handle};
use crate::instruments::count::Count;
use crate::upstream::UPSTREAM;

/// The metrics of all targets, by upstream and target.
#[derive(Debug, Default)]
pub(crate) struct Targets(ByName<TargetSeries, 2>);

/// Counters of the attempts on one target, by outcome.
#[derive(Clone, Debug)]
pub struct TargetMetrics(Handle<TargetSeries, 2>);

#[derive(Debug, Default)]
struct TargetSeries {
    attempts: [Count; AttemptOutcome::ALL.len()],
    /// In the order of [`CHECK_RESULTS`].
    checks: [Count; CHECK_RESULTS.len()],
    usable: Gauge,
}

/// The outcome of an attempt to get a response from a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
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
    /// The target sent something that is not a valid response, for another reason than the following ones.
    InvalidResponse,
    /// The response has another version, or is not HTTP.
    ResponseVersion,
    /// A line of the response head ends with a bare line feed.
    ResponseLineFeed,
    /// The response has too many fields.
    ResponseFields,
    /// The response head is too large.
    ResponseFieldBytes,
    /// The end of the response body is ambiguous.
    ResponseFraming,
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

/// The results of a check; the index is 1 if the check has passed.
const CHECK_RESULTS: [&str; 3] = ["failed", "passed", "discarded"];

impl Targets {
    pub(crate) fn describe(&self, catalog: &mut Catalog<'_>) {
        let attempts = Description {
            name: "upstream_attempts",
            labels: &[UPSTREAM, Label::Open("target"), Label::Fixed("outcome", &AttemptOutcome::WORDS)],
            unit: "attempts",
            meaning: "Attempts to get a response from each target. `ok`: a response head arrived; `canceled`: the \
                      client left",
            action: "the [failures](operations.md#upstream-failures) explain each outcome",
        };
        catalog.add(self.0.metric(attempts.labels, |target| &target.attempts), attempts);
        let checks = Description {
            name: "upstream_checks",
            labels: &[UPSTREAM, Label::Open("target"), Label::Fixed("result", &CHECK_RESULTS)],
            unit: "checks",
            meaning: "Active health checks of each target. `discarded`: it failed while the gateway itself was too busy",
            action: "`failed`: `tidegate upstreams` shows the last result; `discarded`: give the gateway more CPU time",
        };
        catalog.add(self.0.metric(checks.labels, |target| &target.checks), checks);
        let usable = Description {
            name: "upstream_target_usable",
            labels: &[UPSTREAM, Label::Open("target")],
            unit: "0 or 1",
            meaning: "1 if the target passes its checks, has an address, is not ejected and does not drain",
            action: "0: `tidegate upstreams` shows the state and its cause",
        };
        catalog.add(self.0.metric(usable.labels, |target| from_ref(&target.usable)), usable);
    }
}

#[doc(hidden)]
impl Metrics {
    /// Returns the counters of a target. Both names are as in the rule file. The counters are exported until the result
    /// and its clones are dropped.
    pub fn target(&self, upstream: &str, target: &str) -> TargetMetrics {
        TargetMetrics(self.targets.0.get_or_create([upstream.into(), target.into()], TargetSeries::default))
    }

    /// Returns the number of attempts on a target of an upstream, by outcome.
    pub fn attempts(&self, upstream: &str, target: &str) -> Vec<(&'static str, u64)> {
        let counters = self.target(upstream, target);
        let count = |outcome: &AttemptOutcome| (outcome.as_str(), counters.0.attempts[*outcome as usize].get());
        AttemptOutcome::ALL.iter().map(count).collect()
    }
}

impl TargetMetrics {
    /// Counts an attempt.
    pub fn attempted(&self, outcome: AttemptOutcome) {
        self.0.attempts[outcome as usize].inc();
    }

    /// Counts a health check.
    pub fn checked(&self, has_passed: bool) {
        self.0.checks[usize::from(has_passed)].inc();
    }

    /// Counts a health check without a result.
    pub fn check_discarded(&self) {
        self.0.checks[2].inc();
    }

    /// Sets whether the target is usable.
    pub fn set_usable(&self, is_usable: bool) {
        self.0.usable.set(i64::from(is_usable));
    }
}

impl AttemptOutcome {
    /// All outcomes, in the order of their numbers.
    const ALL: [Self; 16] = [
        Self::Ok,
        Self::ResolveFailed,
        Self::ConnectFailed,
        Self::TlsFailed,
        Self::Closed,
        Self::InvalidResponse,
        Self::ResponseVersion,
        Self::ResponseLineFeed,
        Self::ResponseFields,
        Self::ResponseFieldBytes,
        Self::ResponseFraming,
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
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ResolveFailed => "resolve_failed",
            Self::ConnectFailed => "connect_failed",
            Self::TlsFailed => "tls_failed",
            Self::Closed => "closed",
            Self::InvalidResponse => "invalid_response",
            Self::ResponseVersion => "response_version",
            Self::ResponseLineFeed => "response_line_feed",
            Self::ResponseFields => "response_max_fields",
            Self::ResponseFieldBytes => "response_max_field_bytes",
            Self::ResponseFraming => "response_framing",
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn outcomes_are_listed_in_numerical_order() {
        for (number, outcome) in AttemptOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number, "{outcome:?}");
        }
    }

    #[test]
    fn series_end_with_the_last_handle() {
        let metrics = Metrics::of_gateway(&[]);
        let (upstream, target) = (metrics.upstream("api"), metrics.target("api", "http://a"));
        upstream.responded(Duration::from_millis(1));
        target.attempted(AttemptOutcome::Ok);
        let other = metrics.upstream("api");
        drop(upstream);
        assert!(metrics.render().contains(r#"tidegate_upstream_requests_total{upstream="api",outcome="answered"} 1"#));
        drop((other, target));
        let text = metrics.render();
        assert!(!text.contains("\"api\""), "{text}");
    }
}
