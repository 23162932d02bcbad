//! A record of a request's attempts at its upstream, for the access log.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use tidegate_layer::local_response::NO_USABLE_TARGET;

/// Records the target of a request, the cause of its failure, and the number of body bytes that were read. The access
/// log puts a clone into the request's extensions. Nothing is recorded for requests without a clone.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Traced>);

#[derive(Debug, Default)]
struct Traced {
    last: Mutex<LastAttempt>,
    bytes_in: AtomicU64,
}

/// The last attempt to send a request.
#[derive(Clone, Debug, Default)]
pub struct LastAttempt {
    /// The target, if there was an attempt.
    pub target: Option<Arc<TargetName>>,
    /// The upstream, if none of its targets was usable.
    pub upstream: Option<Arc<str>>,
    /// Why the gateway itself responded, if it did.
    pub reason: Option<&'static str>,
    /// The number of attempts.
    pub attempts: u32,
    /// Started by the first attempt.
    #[cfg(feature = "otlp")]
    pub stopwatch: Option<tidegate_limit::clock::Stopwatch>,
}

/// The names of a target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetName {
    /// The name of its upstream.
    pub upstream: Arc<str>,
    /// The target, as in the rule file.
    pub target: String,
    /// The address, if the target has a host name that was resolved.
    pub address: Option<SocketAddr>,
}

impl TargetName {
    /// Returns `true` if an operator names the target like this: as in the rule file, without its scheme, or by its
    /// address.
    pub fn is(&self, text: &str) -> bool {
        let authority = self.target.split_once("://").map(|(_, authority)| authority);
        text == self.target
            || Some(text) == authority
            || self.address.is_some_and(|address| address.to_string() == text)
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} ({address})", self.target),
            None => f.write_str(&self.target),
        }
    }
}

impl Trace {
    /// Records the target of a new attempt.
    pub(super) fn record_target(&self, target: &Arc<TargetName>) {
        let last = &mut *self.0.last.lock();
        last.target = Some(Arc::clone(target));
        last.reason = None;
        last.attempts = last.attempts.saturating_add(1);
        #[cfg(feature = "otlp")]
        last.stopwatch.get_or_insert_default();
    }

    /// Records that no target of this upstream is usable.
    pub(super) fn record_no_target(&self, upstream: &Arc<str>) {
        let last = &mut *self.0.last.lock();
        (last.upstream, last.reason) = (Some(Arc::clone(upstream)), Some(NO_USABLE_TARGET));
    }

    /// Records why the gateway itself responds.
    pub(crate) fn record_failure(&self, reason: &'static str) {
        self.0.last.lock().reason = Some(reason);
    }

    /// Counts bytes of the request's body.
    pub(super) fn count_bytes(&self, count: usize) {
        self.0.bytes_in.fetch_add(count as u64, Relaxed);
    }

    /// Returns the last attempt.
    pub fn last_attempt(&self) -> LastAttempt {
        self.0.last.lock().clone()
    }

    /// Returns the number of bytes that were read of the request's body.
    pub fn bytes_in(&self) -> u64 {
        self.0.bytes_in.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_named_with_or_without_its_scheme_or_by_its_address() {
        let name = |target: &str, address: Option<&str>| TargetName {
            upstream: "api".into(),
            target: target.to_owned(),
            address: address.and_then(|address| address.parse().ok()),
        };
        let resolved = name("http://api.internal:9000", Some("[::1]:9000"));
        for (text, is_name) in [
            ("http://api.internal:9000", true),
            ("api.internal:9000", true),
            ("[::1]:9000", true),
            ("api.internal", false),
            ("https://api.internal:9000", false),
            ("", false),
        ] {
            assert_eq!(resolved.is(text), is_name, "{text}");
        }
        assert!(name("unix:/run/app.sock", None).is("unix:/run/app.sock"));
        assert_eq!(resolved.to_string(), "http://api.internal:9000 ([::1]:9000)");
    }
}
