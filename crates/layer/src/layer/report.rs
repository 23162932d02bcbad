//! The result of a request, for access logs.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderValue;
use ipnet::IpNet;

use tidegate_limit::clock::Timestamp;

/// The result of a request, for access logs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RequestReport {
    /// The route of the request.
    pub route: Option<Arc<str>>,
    /// The decision of the limits.
    pub outcome: RequestOutcome,
    /// The time of the decision by the store's clock. `None` if the store did not decide.
    pub at: Option<Timestamp>,
    /// The client's address, behind trusted proxies. `None` if the request is invalid or its peer address is unknown.
    pub client: Option<IpAddr>,
    /// The keyed hash of the client in the store's keys, for the first limit that does not identify clients by address.
    pub client_key: Option<u128>,
    /// The limit that rejected the request. If several did, the limit with the longest wait.
    pub limit: Option<Arc<str>>,
    /// The reason of a rejection by the gateway itself, such as `store_failed`, `banned` or `concurrency`.
    pub reason: Option<&'static str>,
    /// The id of the customer by verified credentials: of an API key, the `sub` of a token, or a user. At most 128 bytes.
    #[doc(hidden)]
    pub customer: Option<Box<str>>,
    /// The network that counts as the client, which contains `client`.
    #[doc(hidden)]
    pub network: Option<IpNet>,
    /// The permits that the limits of an admitted request have taken together.
    #[doc(hidden)]
    pub permits: u64,
    /// The upstream of a request that `concurrency` rejects.
    pub upstream: Option<Arc<str>>,
    /// The time until the limits had decided. `None` if no limit was evaluated.
    #[doc(hidden)]
    pub wait: Option<Duration>,
    /// The time until the route was found, for traces. `None` if no route matches.
    #[doc(hidden)]
    #[cfg(feature = "otlp")]
    pub matched: Option<Duration>,
    /// The id of the request, if requests get one.
    #[doc(hidden)]
    pub request_id: Option<HeaderValue>,
}

/// A handle for the [`RequestReport`] of a request. Insert a clone into the request's extensions, and call
/// [`get`](Self::get) after the response, or after the request was aborted.
#[derive(Clone, Debug, Default)]
pub struct ReportHandle(pub(super) Arc<OnceLock<RequestReport>>);

/// The decision of the limits about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestOutcome {
    /// No limit applies to the request.
    #[default]
    Unlimited,
    /// All limits granted the request.
    Allowed,
    /// All live limits granted the request, and a shadow limit would have rejected it.
    ShadowLimited,
    /// A limit rejected the request.
    Limited,
    /// The store failed, and `on_store_failure` decided.
    StoreFailed,
    /// The client disconnected before the decision, during the call to the store or while the request waited for a
    /// permit.
    Undecided,
}

// === impl ReportHandle ===

impl ReportHandle {
    /// Returns the report, or `None` before the end of the request.
    pub fn get(&self) -> Option<&RequestReport> {
        self.0.get()
    }
}

// === impl RequestOutcome ===

impl RequestOutcome {
    /// Returns the value in the access log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Allowed => "allowed",
            Self::ShadowLimited => "shadow_limited",
            Self::Limited => "limited",
            Self::StoreFailed => "store_failed",
            Self::Undecided => "undecided",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use futures_util::future::poll_immediate;
    use http::{Request, Response};
    use tower::{Layer, ServiceExt, service_fn};

    use super::*;
    use crate::layer::RateLimitLayer;

    /// Regression test: the time was 1970, in access logs and in recordings.
    #[tokio::test]
    async fn rejection_by_a_full_queue_has_no_decision_time() {
        let limit = "{ name: l, mode: OVERALL, rate: 1, interval: 1m, max_wait: 10m, queue: 1 }";
        let rules = format!("routes: [{{ name: all, match: {{}}, limits: [{limit}] }}]");
        let layer = RateLimitLayer::from_yaml(&rules).expect("a layer");
        let service = layer.layer(service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(())))));
        let reports: [ReportHandle; 3] = Default::default();
        let mut requests = reports.each_ref().map(|report| {
            let request = Request::get("/").extension(report.clone()).body(()).expect("a request");
            Box::pin(service.clone().oneshot(request))
        });
        for request in &mut requests {
            _ = poll_immediate(request).await;
        }
        assert!(reports[0].get().is_some_and(|served| served.at.is_some()));
        assert!(reports[1].get().is_none(), "the second request does not wait");
        let rejected = reports[2].get().expect("a report");
        assert_eq!((rejected.outcome, rejected.at), (RequestOutcome::Limited, None));
    }
}
