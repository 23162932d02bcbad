//! The access log line of a request. It is written when the last byte of the response has been passed to the client's
//! connection, or when the client has disconnected. `docs/operations.md` lists the fields.
//!
//! `at` is the time of the store's decision, in milliseconds of the store's clock. It allows a check over the lines of
//! all gateways that no window had more than its rate. A line contains neither the query string nor a header field
//! other than `Host` and `User-Agent`, because they may contain secrets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use tracing::field::display;

use super::traces::RequestSpan;
#[cfg(feature = "otlp")]
use super::traces::RequestSummary;
use super::{TARGET, sample};
use crate::server::Rejection;
use crate::talkers::{TalkerRecorder, Use};
use crate::upstream::{LastAttempt, RequestBody, Trace};
use tidegate_layer::layer::{Peer, ReportHandle, RequestReport};
use tidegate_limit::clock::{Stopwatch, Timestamp};

/// The status of a request whose client disconnected before the response, as in nginx.
const CLIENT_GONE: u16 = 499;

/// Maximum logged bytes of a user agent: clients choose its length, and log lines are kept in memory.
const MAX_USER_AGENT: usize = 256;

/// The result of a gRPC call. The HTTP status is always 200.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The data of an access log line, which is written on drop.
#[derive(Debug)]
pub(super) struct LogLine {
    request: RequestText,
    peer: IpAddr,
    stopwatch: Stopwatch,
    report: ReportHandle,
    trace: Trace,
    /// The status of the response, and the time until its head.
    head: Option<(StatusCode, Duration)>,
    /// The status of a gRPC call.
    grpc_status: Option<u16>,
    bytes: u64,
    end: End,
    /// The span of a traced request.
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "no request has a span"))]
    span: Option<RequestSpan>,
    /// Counts the request, if operators list the clients with the most requests.
    talkers: Option<Arc<TalkerRecorder>>,
}

/// The parts of a request that are logged, in a single allocation.
#[derive(Debug)]
struct RequestText {
    method: Method,
    version: Version,
    /// The path, the host, and the user agent.
    text: String,
    /// The start of the host in `text`.
    host: usize,
    /// The start of the user agent in `text`.
    user_agent: usize,
}

/// How the response ended.
#[derive(Debug)]
enum End {
    /// Not ended yet. If this is still the value on drop, the client has disconnected.
    Pending,
    Complete,
    Early(&'static str),
}

impl LogLine {
    /// Starts the line of a request. Returns `None` if the access log is off, and the request is neither traced nor
    /// counted.
    pub(super) fn start(
        request: &mut Request<RequestBody>,
        span: Option<RequestSpan>,
        talkers: Option<&Arc<TalkerRecorder>>,
    ) -> Option<Box<Self>> {
        let talkers = talkers.filter(|talkers| talkers.is_on());
        if span.is_none() && talkers.is_none() && !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            return None;
        }
        let (peer, report) = (request.extensions().get::<Peer>(), ReportHandle::default());
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        let (text, trace) = (RequestText::new(request), Trace::default());
        request.body_mut().count_bytes_in(&trace);
        request.extensions_mut().insert(report.clone());
        request.extensions_mut().insert(trace.clone());
        Some(Box::new(Self {
            request: text,
            trace,
            peer,
            stopwatch: Stopwatch::start(),
            report,
            head: None,
            grpc_status: None,
            bytes: 0,
            end: End::Pending,
            span,
            talkers: talkers.cloned(),
        }))
    }

    /// Returns the id of the request, if it has one and its report is complete.
    pub(super) fn request_id(&self) -> Option<&HeaderValue> {
        self.report.get()?.request_id.as_ref()
    }

    /// Records the head of the response.
    pub(super) fn record_head<B>(&mut self, response: &Response<B>) {
        self.head = Some((response.status(), self.stopwatch.elapsed()));
        self.record_grpc_status(response.headers());
        if self.request.method == Method::HEAD {
            self.complete();
        }
    }

    /// Records the gRPC status in the header or the trailers of the response.
    pub(super) fn record_grpc_status(&mut self, fields: &HeaderMap) {
        if let Some(status) = fields.get(GRPC_STATUS) {
            self.grpc_status = status.to_str().ok().and_then(|status| status.parse().ok());
        }
    }

    /// Records bytes of the body that were passed to the client's connection.
    pub(super) fn record_sent(&mut self, count: usize) {
        self.bytes += count as u64;
    }

    /// Records that the whole response was passed to the client's connection.
    pub(super) fn complete(&mut self) {
        if let End::Pending = self.end {
            self.end = End::Complete;
        }
    }

    /// Records that the response ends early.
    pub(super) fn end_early(&mut self, reason: &'static str) {
        self.end = End::Early(reason);
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let status = self.head.map_or(CLIENT_GONE, |(status, _)| status.as_u16());
        let empty = RequestReport::default();
        let report = self.report.get().unwrap_or(&empty);
        if let (Some(talkers), Some(client)) = (&self.talkers, report.network) {
            let bytes = self.bytes + self.trace.bytes_in();
            talkers.record(client, Use { bytes, permits: report.permits });
        }
        let attempt = self.trace.last_attempt();
        let reason = attempt.reason.or(report.reason).or(match self.end {
            End::Pending => Some("client_gone"),
            End::Complete => None,
            End::Early(reason) => Some(reason),
        });
        #[cfg(feature = "otlp")]
        if let Some(span) = self.span.take() {
            span.end(&RequestSummary {
                method: &self.request.method,
                version: self.request.version,
                status,
                grpc_status: self.grpc_status,
                reason,
                report,
                attempt: &attempt,
                head: self.head.map(|(_, duration)| duration),
                stopwatch: self.stopwatch,
            });
        }
        let LastAttempt { target, attempts, upstream: without_target, .. } = attempt;
        let grpc_failed = self.grpc_status.is_some_and(|status| status != 0);
        if status < 400 && reason.is_none() && !grpc_failed && !sample::select_next() {
            return;
        }
        let route = report.route.as_deref().unwrap_or("-");
        let (limits, limit) = (report.outcome.as_str(), report.limit.as_deref());
        let (upstream, target) = target.as_ref().map(|name| (&*name.upstream, name.target.as_str())).unzip();
        let upstream = upstream.or(without_target.as_deref()).or(report.upstream.as_deref());
        let at = report.at.map(Timestamp::as_millis); // Absent unless the store decided.
        let client = report.client.map(display);
        let customer = report.customer.as_deref();
        let client_key = report.client_key.map(Hex).map(display);
        let (ms, head_ms) = (millis(self.stopwatch.elapsed()), self.head.map(|(_, duration)| millis(duration)));
        let request_id = report.request_id.as_ref().and_then(|id| id.to_str().ok());
        let wait_ms = report.wait.map(millis);
        let attempts = Some(attempts).filter(|attempts| *attempts > 0);
        let protocol = protocol(self.request.version);
        let (method, path, host, user_agent) = self.request.parts();
        let (peer, bytes, bytes_in, grpc_status) = (self.peer, self.bytes, self.trace.bytes_in(), self.grpc_status);
        tracing::info!(
            target: TARGET, status, grpc_status, reason, route, limits, limit, upstream, target, attempts, at,
            client, client_key, customer, %peer, bytes, bytes_in, wait_ms, head_ms, ms, protocol, request_id, method, path,
            host, user_agent, "{method} {path}"
        );
    }
}

/// Logs a request that the server rejected before it reached the access log layer.
pub fn log_rejection(rejection: &Rejection<'_>) {
    let Rejection { peer, status, cause, request_line } = *rejection;
    let (method, path) = request_line.map(|(method, path, _)| (method.as_str(), path)).unzip();
    let protocol = request_line.map(|(_, _, version)| protocol(version));
    let (status, peer, none) = (status.as_u16(), peer.ip(), "-");
    tracing::info!(
        target: TARGET, status, reason = cause, route = none, limits = "unlimited", %peer, protocol, method, path,
        "{} {}", method.unwrap_or(none), path.unwrap_or(none)
    );
}

impl RequestText {
    fn new<B>(request: &Request<B>) -> Self {
        let (path, headers) = (request.uri().path(), request.headers());
        let host = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let host = host.or_else(|| headers.get(header::HOST).map(HeaderValue::as_bytes)).unwrap_or_default();
        // An invalid host is omitted. The request is rejected.
        let host = str::from_utf8(host).ok().filter(|host| host.bytes().all(is_host_byte)).unwrap_or_default();
        let user_agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
        let user_agent = String::from_utf8_lossy(&user_agent[..user_agent.len().min(MAX_USER_AGENT)]);
        Self {
            method: request.method().clone(),
            version: request.version(),
            text: [path, host, &user_agent].concat(),
            host: path.len(),
            user_agent: path.len() + host.len(),
        }
    }

    /// Returns the method, the path, the host and the user agent.
    fn parts(&self) -> (&str, &str, Option<&str>, Option<&str>) {
        let (rest, user_agent) = self.text.split_at(self.user_agent);
        let (path, host) = rest.split_at(self.host);
        (self.method.as_str(), path, non_empty(host), non_empty(user_agent))
    }
}

/// Returns the protocol as nginx writes it.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// Returns `None` if the text is empty.
fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte)
}

/// Formats a client key as in Redis keys.
struct Hex(u128);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Converts to milliseconds, rounded to microseconds.
fn millis(duration: Duration) -> f64 {
    let micros = u32::try_from(duration.as_micros()).map_or_else(|_| duration.as_secs_f64() * 1_000_000.0, f64::from);
    micros.round() / 1_000.0
}
