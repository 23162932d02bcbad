//! The end of a request's timeouts. A request does not wait longer for permits or slots, because it could not be forwarded.

use tokio::time::Instant;

use super::record::RequestRecord;
use crate::admission::RouteWaits;
use crate::local_response::GrpcCall;
use crate::ruleset::FoundRoute;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::facts::grpc_timeout::grpc_timeout;

impl RequestRecord<'_> {
    /// Returns the end of the first of its timeouts: of the route, of the upstream, and of a gRPC call.
    pub(super) fn deadline(&self, found: FoundRoute<'_>, facts: &Facts<'_>) -> Option<Instant> {
        let call = GrpcCall::detect(facts.method, facts.headers).and_then(|_| grpc_timeout(facts.headers));
        let timeout = [found.route.timeout, found.compiled.total_timeout(), call].into_iter().flatten().min()?;
        Instant::now().checked_add(timeout.saturating_sub(self.elapsed()))
    }

    /// Returns the waits of the route's requests, if one of its limits lets them wait.
    pub(super) fn waits<'c>(&self, found: FoundRoute<'c>, facts: &Facts<'_>) -> Option<Box<RouteWaits<'c>>> {
        let metrics = found.compiled.waits.as_ref()?;
        let deadline = self.deadline(found, facts);
        Some(Box::new(RouteWaits { metrics, deadline, once: None }))
    }
}
