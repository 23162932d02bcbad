//! A collector that decodes and records the spans that it receives.

use std::fmt::Write;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use parking_lot::Mutex;
use prost::Message;

use crate::support::wire::upstream::Origin;

/// A running collector.
pub struct Collector {
    endpoint: String,
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

/// A span, with ids in hexadecimal digits.
#[derive(Debug)]
pub struct Span {
    pub name: String,
    pub kind: String,
    pub trace: String,
    pub id: String,
    /// Empty for a root.
    pub parent: String,
    pub start: u64,
    pub end: u64,
    pub is_error: bool,
    attributes: Vec<(String, String)>,
}

impl Collector {
    pub async fn start() -> Self {
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let received = Arc::clone(&requests);
        let origin = Origin::start(move |mut connection| {
            let received = Arc::clone(&received);
            async move {
                while let Some(request) = connection.request().await {
                    assert_eq!(request.start, "POST /v1/traces HTTP/1.1");
                    assert_eq!(request.field("content-type").as_deref(), Some("application/x-protobuf"));
                    received.lock().push(ExportTraceServiceRequest::decode(&*request.body).expect("spans"));
                    connection.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                }
            }
        })
        .await;
        Self { endpoint: format!("http://{}", origin.address), requests }
    }

    /// Returns the environment variable for the gateway.
    pub fn endpoint(&self) -> (&str, &str) {
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &self.endpoint)
    }

    /// Returns all spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let spans = resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans);
        spans
            .map(|span| Span {
                name: span.name.clone(),
                kind: format!("{:?}", SpanKind::try_from(span.kind).expect("a kind")),
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                start: span.start_time_unix_nano,
                end: span.end_time_unix_nano,
                is_error: span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32),
                attributes: span.attributes.iter().map(|one| (one.key.clone(), text(one))).collect(),
            })
            .collect()
    }

    /// Returns the names of the services, without repetitions.
    pub fn service_names(&self) -> Vec<String> {
        let requests = self.requests.lock();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let attributes = resources.flat_map(|spans| spans.resource.iter().flat_map(|resource| &resource.attributes));
        let mut names: Vec<_> = attributes.filter(|one| one.key == "service.name").map(text).collect();
        names.dedup();
        names
    }
}

impl Span {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn text(attribute: &KeyValue) -> String {
    match &attribute.value {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text.clone(),
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}
