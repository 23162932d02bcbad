//! Counts the spans of traces.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};

/// The outcomes of spans, in the order of the variants of `SpanOutcome`.
const OUTCOMES: [&str; 3] = ["exported", "failed", "dropped"];

/// The counters of spans.
#[derive(Debug, Default)]
pub(super) struct Spans(Family<OutcomeLabels, Counter>);

/// The outcome of a span.
#[derive(Clone, Copy, Debug)]
pub enum SpanOutcome {
    /// The collector has it.
    Exported,
    /// The collector did not accept it.
    Failed,
    /// The queue was full.
    Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl Spans {
    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let spans = Description {
            name: "trace_spans",
            labels: &[Label::Fixed("outcome", &OUTCOMES)],
            unit: "spans",
            meaning: "Spans of traced requests, in a build with the feature `otlp`",
            action: "`failed`: check the collector, the log has the error; `dropped`: the collector is too slow, trace fewer requests",
        };
        catalog.add(self.0.clone(), spans);
    }
}

#[doc(hidden)]
impl Metrics {
    pub fn count_spans(&self, outcome: SpanOutcome, count: usize) {
        let labels = OutcomeLabels { outcome: OUTCOMES[outcome as usize] };
        self.spans.0.get_or_create(&labels).inc_by(count as u64);
    }
}
