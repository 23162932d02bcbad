//! Replaces the traces in a build without the feature `otlp`: no request has a span.

use std::sync::Arc;

use http::Request;

use super::TRACES_TARGET;
use crate::upstream::{HostLookup, RequestBody};
use tidegate_layer::layer::RateLimitLayer;
use tidegate_metrics::Metrics;

/// No traces.
#[derive(Clone, Debug, Default)]
pub struct Traces;

/// The span of a request, which has no value in this build.
#[derive(Debug)]
pub(super) enum RequestSpan {}

#[expect(clippy::unused_self, reason = "a build with the feature has the same methods")]
impl Traces {
    /// Warns if the environment has an endpoint for traces.
    pub fn start(_: &Arc<Metrics>, _: &RateLimitLayer, _: &HostLookup) -> Self {
        if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some_and(|endpoint| !endpoint.is_empty()) {
            tracing::warn!(target: TRACES_TARGET, "`OTEL_EXPORTER_OTLP_ENDPOINT` has no effect, because this build lacks the feature `otlp`");
        }
        Self
    }

    pub(super) fn start_request(&self, _: &mut Request<RequestBody>) -> Option<RequestSpan> {
        None
    }

    /// Does nothing.
    pub fn flush(&self) {}
}
