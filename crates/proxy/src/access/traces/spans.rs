//! Makes the spans of a request, with the attributes of the OpenTelemetry semantic conventions.
//!
//! The path, the query, the client and the header fields are absent, since they may be secret. The route is enough to
//! group requests, and has few values.

use std::time::{Duration, SystemTime};

use http::{Method, Version};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::RequestSpan;
use super::export::RequestSpans;
use crate::upstream::LastAttempt;
use tidegate_layer::layer::RequestReport;
use tidegate_limit::clock::Stopwatch;
use tidegate_limit::random::random;

/// The data of an ended request.
#[derive(Debug)]
pub(in crate::access) struct RequestSummary<'a> {
    pub(in crate::access) method: &'a Method,
    pub(in crate::access) version: Version,
    pub(in crate::access) status: u16,
    pub(in crate::access) grpc_status: Option<u16>,
    /// Why the gateway itself responded or the response ended early.
    pub(in crate::access) reason: Option<&'static str>,
    pub(in crate::access) report: &'a RequestReport,
    pub(in crate::access) attempt: &'a LastAttempt,
    /// The time until the head of the response.
    pub(in crate::access) head: Option<Duration>,
    /// Started with the request.
    pub(in crate::access) stopwatch: Stopwatch,
}

impl RequestSpan {
    /// Returns the span of the request and its children.
    pub(super) fn spans(&self, summary: &RequestSummary<'_>) -> RequestSpans {
        let RequestSummary { report, attempt, .. } = summary;
        let total = summary.stopwatch.elapsed();
        let head = summary.head.unwrap_or(total);
        let mut spans = vec![self.root(summary, total)];
        let matched = report.matched.unwrap_or(head);
        spans.push(self.child("match", (Duration::ZERO, matched), route(report).collect()));
        if let Some(decided) = report.wait {
            spans.push(self.child("decide", (matched, decided), decision(report)));
        }
        if let Some(stopwatch) = attempt.stopwatch {
            let start = total.saturating_sub(stopwatch.elapsed());
            let mut upstream = self.child("upstream", (start, head), upstream(summary));
            upstream.span_context = self.context(self.upstream);
            upstream.span_kind = SpanKind::Client;
            if attempt.reason.is_some() {
                upstream.status = Status::error("");
            }
            spans.push(upstream);
        }
        spans
    }

    /// Returns the span of the whole request.
    fn root(&self, summary: &RequestSummary<'_>, total: Duration) -> SpanData {
        let (method, report) = (method(summary.method), summary.report);
        let known = if method == OTHER_METHOD { "HTTP" } else { method };
        let name = report.route.as_ref().map_or_else(|| known.to_owned(), |route| format!("{known} {route}"));
        let mut attributes = vec![
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.response.status_code", i64::from(summary.status)),
            KeyValue::new("network.protocol.version", version(summary.version)),
            KeyValue::new("tidegate.limits", report.outcome.as_str()),
        ];
        attributes.extend(route(report));
        attributes.extend(summary.reason.map(|reason| KeyValue::new("error.type", reason)));
        let grpc_status = summary.grpc_status.map(|status| KeyValue::new("rpc.grpc.status_code", i64::from(status)));
        attributes.extend(grpc_status);
        let id = report.request_id.as_ref().and_then(|id| id.to_str().ok());
        attributes.extend(id.map(|id| KeyValue::new("tidegate.request_id", id.to_owned())));
        let mut root = self.span(self.span, (Duration::ZERO, total), attributes);
        root.name = name.into();
        root.span_kind = SpanKind::Server;
        root.parent_span_id = self.parent.unwrap_or(SpanId::INVALID);
        root.parent_span_is_remote = self.parent.is_some();
        if summary.status >= 500 {
            root.status = Status::error("");
        }
        root
    }

    fn child(&self, name: &'static str, times: (Duration, Duration), attributes: Vec<KeyValue>) -> SpanData {
        let mut child = self.span(SpanId::from_bytes(random()), times, attributes);
        child.name = name.into();
        child.parent_span_id = self.span;
        child
    }

    /// Returns a span without a name and a parent.
    fn span(&self, id: SpanId, (start, end): (Duration, Duration), attributes: Vec<KeyValue>) -> SpanData {
        let at = |duration| self.start.checked_add(duration).unwrap_or(SystemTime::UNIX_EPOCH);
        SpanData {
            span_context: self.context(id),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "".into(),
            start_time: at(start),
            end_time: at(end.max(start)),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("tidegate")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }

    fn context(&self, id: SpanId) -> SpanContext {
        SpanContext::new(self.trace, id, TraceFlags::SAMPLED, false, TraceState::NONE)
    }
}

fn route(report: &RequestReport) -> impl Iterator<Item = KeyValue> {
    report.route.clone().map(|route| KeyValue::new("http.route", route)).into_iter()
}

/// Returns the attributes of the decision.
fn decision(report: &RequestReport) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new("tidegate.limits", report.outcome.as_str())];
    attributes.extend(report.limit.clone().map(|limit| KeyValue::new("tidegate.limit", limit)));
    attributes.extend(report.reason.map(|reason| KeyValue::new("error.type", reason)));
    attributes
}

/// Returns the attributes of the attempts at the upstream.
fn upstream(summary: &RequestSummary<'_>) -> Vec<KeyValue> {
    let attempt = summary.attempt;
    let mut attributes = vec![KeyValue::new("tidegate.attempts", i64::from(attempt.attempts))];
    if let Some(name) = &attempt.target {
        attributes.push(KeyValue::new("tidegate.upstream", name.upstream.clone()));
        attributes.push(KeyValue::new("tidegate.target", name.target.clone()));
    }
    attributes.push(match attempt.reason {
        Some(reason) => KeyValue::new("error.type", reason),
        None => KeyValue::new("http.response.status_code", i64::from(summary.status)),
    });
    attributes
}

/// The value for methods that clients made up, so that the attribute has few values.
const OTHER_METHOD: &str = "_OTHER";

fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"];
    KNOWN.into_iter().find(|known| method == known).unwrap_or(OTHER_METHOD)
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
