//! The end of a request's timeouts. A request does not wait longer for permits or slots, because it could not be forwarded.

#[cfg(feature = "gateway")]
use tokio::time::Instant;

use super::record::RequestRecord;
use crate::admission::RouteWaits;
use crate::facts::Facts;
#[cfg(feature = "gateway")]
use crate::facts::grpc_timeout::grpc_timeout;
#[cfg(feature = "gateway")]
use crate::local_response::GrpcCall;
use crate::route::Route;
use crate::ruleset::CompiledRoute;

impl RequestRecord<'_> {
    /// Returns the end of the first of its timeouts: of the route, of the upstream, and of a gRPC call.
    #[cfg(feature = "gateway")]
    pub(super) fn deadline(&self, (route, compiled): (&Route, &CompiledRoute), facts: &Facts<'_>) -> Option<Instant> {
        let call = GrpcCall::detect(facts.method, facts.headers).and_then(|_| grpc_timeout(facts.headers));
        let timeout = [route.timeout, compiled.total_timeout(), call].into_iter().flatten().min()?;
        Instant::now().checked_add(timeout.saturating_sub(self.elapsed()))
    }

    /// Returns the waits of the route's requests, if one of its limits lets them wait.
    #[cfg_attr(not(feature = "gateway"), expect(clippy::unused_self, reason = "a layer has no timeouts"))]
    pub(super) fn waits<'c>(
        &self,
        route: (&Route, &'c CompiledRoute),
        facts: &Facts<'_>,
    ) -> Option<Box<RouteWaits<'c>>> {
        let metrics = route.1.waits.as_ref()?;
        #[cfg(feature = "gateway")]
        let deadline = self.deadline(route, facts);
        #[cfg(not(feature = "gateway"))]
        let (deadline, _) = (None, facts); // a layer has no timeouts
        Some(Box::new(RouteWaits { metrics, deadline }))
    }
}
