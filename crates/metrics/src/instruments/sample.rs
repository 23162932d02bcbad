//! The values of the counters that the dashboard shows, read at one moment. Series without data are left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

/// The kinds of responses that the dashboard distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// Below 400.
    Successful,
    /// 400 to 498, but not 429.
    ClientError,
    /// 429.
    Limited,
    /// 500 to 599.
    ServerError,
    /// 499: the client disconnected before the response.
    ClientGone,
}

/// The values at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The responses of each route: below 400, 400 to 498 without 429, 429, 500 to 599, and 499. The empty name is for
    /// requests that match no route.
    pub routes: BTreeMap<String, [u64; 5]>,
    /// The durations of the responses of each route.
    pub durations: BTreeMap<String, Durations>,
    /// The limits by route and name.
    pub limits: BTreeMap<(String, String), LimitSample>,
    /// The upstreams by name.
    pub upstreams: BTreeMap<String, UpstreamSample>,
    /// The store.
    pub store: StoreSample,
    /// The client connections.
    pub connections: ConnectionSample,
}

/// The durations of responses, from the head of the request to the head of the response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// The upper bounds of all buckets but the last, which has none, in seconds.
    pub bounds: Arc<[f64]>,
    /// The number of responses in each bucket.
    pub counts: Vec<u64>,
}

/// A limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitSample {
    /// Decisions with the outcomes `allowed`, `limited`, `shadow_limited` and `store_failed`.
    pub decisions: [u64; 4],
    /// The used share of an OVERALL limit, if a decision is recent enough.
    pub used: Option<f32>,
}

/// An upstream.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpstreamSample {
    /// The requests with a response, the failures, and the total microseconds to response heads.
    pub requests: [u64; 3],
    /// The open connections.
    pub connections: i64,
    /// The requests that wait for a connection.
    pub waiting: i64,
}

/// The store.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StoreSample {
    /// Decisions of the store.
    pub decisions: u64,
    /// The time that all decisions took, in microseconds.
    pub micros: u64,
    /// Decisions that the store failed to make.
    pub failures: u64,
    /// Calls to the store.
    pub calls: u64,
    /// Rejections from the cache of refusals.
    pub known_refusals: u64,
    /// Permits that were granted locally and charged later.
    pub charged: u64,
    /// Whether the store is reachable.
    pub is_up: bool,
    /// Connections that are not used because the store is too slow.
    pub open_breakers: i64,
}

/// The client connections.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ConnectionSample {
    /// Open connections.
    pub open: i64,
    /// Open connections with HTTP/1.
    pub http1: i64,
    /// Open connections with HTTP/2.
    pub http2: i64,
    /// Connections that were rejected because a connection limit was reached.
    pub refused: u64,
    /// Connections, streams and requests that ended early for other reasons than a rate limit.
    pub rejected: u64,
}

impl Sample {
    pub(crate) fn route(&mut self, name: &str) -> &mut [u64; 5] {
        self.routes.entry(name.to_owned()).or_default()
    }

    /// Returns the values of a limit. A shared limit has the empty route in metrics, and the route `@` here.
    pub(crate) fn limit(&mut self, route: &str, name: &str) -> &mut LimitSample {
        let route = if route.is_empty() { "@" } else { route };
        self.limits.entry((route.to_owned(), name.to_owned())).or_default()
    }

    pub(crate) fn upstream(&mut self, name: &str) -> &mut UpstreamSample {
        self.upstreams.entry(name.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Metrics;

    #[test]
    fn sample_has_the_counts_of_series_with_data() {
        let metrics = Metrics::new();
        let (route, limit) = (metrics.route("api"), metrics.limit("api", "all"));
        let (_untouched, upstream) = (metrics.limit("api", "other"), metrics.upstream("app"));
        [200, 204, 404, 429, 503].into_iter().for_each(|code| route.responded(code, Duration::ZERO));
        route.abandoned(Duration::ZERO);
        limit.set_retention(3_600_000);
        limit.limited();
        limit.store_failed();
        limit.record_remaining(25, 100);
        upstream.responded(Duration::from_micros(70));
        upstream.timed_out();
        metrics.store_decided(Duration::from_micros(30));
        metrics.store_failed("timeout");
        let sample = metrics.sample();
        assert_eq!(sample.routes["api"], [2, 1, 1, 1, 1]);
        let durations = &sample.durations["api"];
        assert_eq!((durations.counts[0], durations.counts.len()), (5, durations.bounds.len() + 1), "without the 499");
        assert_eq!(sample.limits.len(), 1);
        let limit = &sample.limits[&("api".to_owned(), "all".to_owned())];
        assert_eq!((limit.decisions, limit.used), ([0, 1, 0, 1], Some(0.75)));
        assert_eq!(sample.upstreams["app"].requests, [1, 1, 70]);
        let store = sample.store;
        assert_eq!((store.decisions, store.micros, store.failures, store.is_up), (1, 30, 1, true));
    }
}
