//! The line of a request in the access log, written when all is over: the answer's last byte is handed to the client's
//! connection, or the client has gone. `docs/operations.md` lists the fields.
//!
//! `at` is when the store decided, in milliseconds of the store's clock: over the lines of all gateways, anybody can count
//! that no window held more than its rate. A line never has the query, nor a header field other than `Host` and `User-Agent`:
//! secrets travel there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use tracing::field::display;

use super::TARGET;
use crate::clock::{Stopwatch, Timestamp};
use crate::layer::{Peer, ReportHandle, RequestReport};
use crate::server::Rejection;
use crate::upstream::{LastAttempt, RequestBody, Trace};

/// The status of a request that got no answer, since its client did not wait for it; nginx's number.
const CLIENT_GONE: u16 = 499;

/// The longest prefix of a user agent that is logged, in bytes: clients choose it, and lines are kept in memory.
const MAX_USER_AGENT: usize = 256;

/// What a call of gRPC came to: its answer's status is 200 whatever that was.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What is known of a request. Dropped, it is written.
#[derive(Debug)]
pub(super) struct LogLine {
    asked: Asked,
    peer: IpAddr,
    stopwatch: Stopwatch,
    report: ReportHandle,
    trace: Trace,
    /// The answer's status, and when its head was made.
    head: Option<(StatusCode, Duration)>,
    /// Of a call of gRPC.
    grpc_status: Option<u16>,
    bytes: u64,
    end: End,
}

/// The parts of a request that its line names, in one allocation.
#[derive(Debug)]
struct Asked {
    method: Method,
    /// The path, the host, and the user agent.
    text: String,
    /// Where the host begins.
    host: usize,
    /// Where the user agent begins.
    user_agent: usize,
}

/// How the answer ends.
#[derive(Debug)]
enum End {
    /// Not yet; if it stays so, its client has left.
    Pending,
    Complete,
    Early(&'static str),
}

impl LogLine {
    /// Begins the line of a request, if anybody reads the log.
    pub(super) fn begin(request: &mut Request<RequestBody>) -> Option<Box<Self>> {
        if !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            return None;
        }
        let (peer, report) = (request.extensions().get::<Peer>(), ReportHandle::default());
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0); // the server notes it
        let (asked, trace) = (Asked::new(request), Trace::default());
        request.body_mut().count_bytes_in(&trace);
        request.extensions_mut().insert(report.clone());
        request.extensions_mut().insert(trace.clone());
        Some(Box::new(Self {
            asked,
            trace,
            peer,
            stopwatch: Stopwatch::start(),
            report,
            head: None,
            grpc_status: None,
            bytes: 0,
            end: End::Pending,
        }))
    }

    /// The answer has a head.
    pub(super) fn head<B>(&mut self, response: &Response<B>) {
        self.head = Some((response.status(), self.stopwatch.elapsed()));
        self.fields(response.headers());
        if self.asked.method == Method::HEAD {
            self.complete();
        }
    }

    /// The answer has these fields, before its body or behind it.
    pub(super) fn fields(&mut self, fields: &HeaderMap) {
        if let Some(status) = fields.get(GRPC_STATUS) {
            self.grpc_status = status.to_str().ok().and_then(|status| status.parse().ok());
        }
    }

    /// So much more of the body was handed to the client's connection.
    pub(super) fn sent(&mut self, count: usize) {
        self.bytes += count as u64;
    }

    /// All of the answer was.
    pub(super) fn complete(&mut self) {
        if let End::Pending = self.end {
            self.end = End::Complete;
        }
    }

    /// There will be no more of it, for this reason.
    pub(super) fn ends_early(&mut self, reason: &'static str) {
        self.end = End::Early(reason);
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let status = self.head.map_or(CLIENT_GONE, |(status, _)| status.as_u16());
        let nothing = RequestReport::default();
        let report = self.report.get().unwrap_or(&nothing);
        let LastAttempt { target, reason } = self.trace.last_attempt();
        let reason = reason.or(report.reason).or(match self.end {
            End::Pending => Some("client_gone"),
            End::Complete => None,
            End::Early(reason) => Some(reason),
        });
        let route = report.route.as_deref().unwrap_or("-");
        let (limits, limit) = (report.outcome.as_str(), report.limit.as_deref());
        let (upstream, target) = target.as_ref().map(|name| (&*name.upstream, name.target.as_str())).unzip();
        let at = report.at.map(Timestamp::as_millis); // absent unless the store decided
        let client = report.client.map(display);
        let client_key = report.client_key.map(Hex).map(display);
        let (ms, head_ms) = (millis(self.stopwatch.elapsed()), self.head.map(|(_, took)| millis(took)));
        let (method, path, host, user_agent) = self.asked.parts();
        let (peer, bytes, bytes_in, grpc_status) = (self.peer, self.bytes, self.trace.bytes_in(), self.grpc_status);
        tracing::info!(
            target: TARGET, status, grpc_status, reason, route, limits, limit, upstream, target, at, client, client_key,
            %peer, bytes, bytes_in, head_ms, ms, method, path, host, user_agent, "{method} {path}"
        );
    }
}

/// The line of what was answered without the gateway's service.
pub(crate) fn refused(rejection: &Rejection<'_>) {
    let Rejection { peer, status, cause, request_line } = *rejection;
    let (method, path) = request_line.map(|(method, path)| (method.as_str(), path)).unzip();
    let (status, peer, nothing) = (status.as_u16(), peer.ip(), "-");
    tracing::info!(
        target: TARGET, status, reason = cause, route = nothing, limits = "unlimited", %peer, method, path,
        "{} {}", method.unwrap_or(nothing), path.unwrap_or(nothing)
    );
}

impl Asked {
    fn new<B>(request: &Request<B>) -> Self {
        let (path, headers) = (request.uri().path(), request.headers());
        let host = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let host = host.or_else(|| headers.get(header::HOST).map(HeaderValue::as_bytes)).unwrap_or_default();
        // Anything else is no host: the request is rejected.
        let host = str::from_utf8(host).ok().filter(|host| host.bytes().all(is_host_byte)).unwrap_or_default();
        let user_agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
        let user_agent = String::from_utf8_lossy(&user_agent[..user_agent.len().min(MAX_USER_AGENT)]);
        Self {
            method: request.method().clone(),
            text: [path, host, &user_agent].concat(),
            host: path.len(),
            user_agent: path.len() + host.len(),
        }
    }

    /// Returns the method, the path, the host and the user agent.
    fn parts(&self) -> (&str, &str, Option<&str>, Option<&str>) {
        let (rest, user_agent) = self.text.split_at(self.user_agent);
        let (path, host) = rest.split_at(self.host);
        (self.method.as_str(), path, given(host), given(user_agent))
    }
}

/// Returns the text, if there is any.
fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte)
}

/// As it is written in keys.
struct Hex(u128);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// To the microsecond.
fn millis(took: Duration) -> f64 {
    let micros = u32::try_from(took.as_micros()).map_or_else(|_| took.as_secs_f64() * 1_000_000.0, f64::from);
    micros.round() / 1_000.0
}
