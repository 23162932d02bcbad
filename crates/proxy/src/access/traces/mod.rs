//! OpenTelemetry traces: exports the spans of sampled requests over OTLP.
//!
//! A sampled request is one server span with the children `match`, `decide` and `upstream`. The worker that served the
//! request makes them when the response has ended, from the data of the access log line, and puts them into a bounded
//! queue. A thread sends the queue to the collector, so the collector cannot delay a request.

mod context;
mod export;
mod http_client;
mod settings;
mod spans;

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderName, HeaderValue, Request};
use opentelemetry::trace::{SpanId, TraceId};

use self::context::TraceParent;
use self::export::{Exporter, SpanQueue};
use self::settings::{Sampler, Settings};
pub(super) use self::spans::RequestSummary;
use super::TRACES_TARGET;
use crate::upstream::{HostLookup, RequestBody};
use tidegate_layer::layer::RateLimitLayer;
use tidegate_limit::clock::system_time;
use tidegate_limit::random::random;
use tidegate_metrics::Metrics;

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The traces of a gateway. Clones share them. Without an endpoint in the environment, no request is traced.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<ActiveTraces>>);

#[derive(Debug)]
struct ActiveTraces {
    sampler: Sampler,
    queue: SpanQueue,
    exporter: Exporter,
    /// Knows which peers are trusted.
    layer: RateLimitLayer,
}

/// A sampled request in flight.
#[derive(Debug)]
pub(super) struct RequestSpan {
    traces: Arc<ActiveTraces>,
    trace: TraceId,
    /// The span of the trusted peer.
    parent: Option<SpanId>,
    span: SpanId,
    /// The parent of the upstream's spans.
    upstream: SpanId,
    start: SystemTime,
}

// === impl Traces ===

impl Traces {
    /// Reads the environment, and starts the thread that sends spans to the collector. If a setting is invalid, logs
    /// it and makes no traces, so that the gateway still serves.
    pub fn start(metrics: &Arc<Metrics>, layer: &RateLimitLayer, hosts: &HostLookup) -> Self {
        let settings = match Settings::from_environment() {
            Ok(Some(settings)) => settings,
            Ok(None) => return Self::default(),
            Err(error) => {
                tracing::error!(target: TRACES_TARGET, error, "invalid environment, traces are off");
                return Self::default();
            }
        };
        let sampler = settings.sampler;
        match export::start(&settings, metrics, hosts) {
            Ok((queue, exporter)) => {
                Self(Some(Arc::new(ActiveTraces { sampler, queue, exporter, layer: layer.clone() })))
            }
            Err(error) => {
                tracing::error!(target: TRACES_TARGET, %error, "cannot start the exporter, traces are off");
                Self::default()
            }
        }
    }

    /// Begins the span of a request and sets its `traceparent`. Returns `None` if the request is not sampled.
    pub(super) fn start_request(&self, request: &mut Request<RequestBody>) -> Option<RequestSpan> {
        let traces = self.0.as_ref()?;
        // A client must not choose what is sampled, or add spans to the traces of others.
        let parent =
            TraceParent::from_fields(request.headers()).filter(|_| traces.layer.trusts_peer(request.extensions()));
        if !traces.sampler.selects(parent) {
            return None;
        }
        if parent.is_none() {
            request.headers_mut().remove(TRACESTATE); // it describes the replaced `traceparent`
        }
        let ids = random::<32>();
        let trace = parent.map_or_else(|| TraceId::from_bytes(part(&ids, 0)), |parent| parent.trace);
        let (span, upstream) = (SpanId::from_bytes(part(&ids, 16)), SpanId::from_bytes(part(&ids, 24)));
        if let Ok(value) = HeaderValue::try_from(format!("00-{trace}-{upstream}-01")) {
            request.headers_mut().insert(context::TRACEPARENT, value);
        }
        let (traces, parent) = (Arc::clone(traces), parent.map(|parent| parent.span));
        Some(RequestSpan { traces, trace, parent, span, upstream, start: system_time() })
    }

    /// Sends the spans in the queue to the collector, for a bounded time. There are no spans afterwards.
    pub fn flush(&self) {
        if let Some(traces) = &self.0 {
            traces.exporter.flush();
        }
    }
}

// === impl RequestSpan ===

impl RequestSpan {
    /// Ends the request.
    pub(super) fn end(self, summary: &RequestSummary<'_>) {
        self.traces.queue.push(self.spans(summary));
    }
}

/// Returns `N` bytes from `start`.
fn part<const N: usize>(bytes: &[u8; 32], start: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[start + index])
}
