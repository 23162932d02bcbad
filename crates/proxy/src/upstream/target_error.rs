//! The error of a failed attempt at a target, for metrics and logs.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, error::Elapsed, timeout_at};

use super::UpstreamError;
use super::eject::FailureKind;
use crate::http::http1::BadResponse;
use tidegate_metrics::AttemptOutcome;

/// The error of a failed attempt at a target.
#[derive(Clone, Debug)]
pub(crate) struct TargetError {
    pub(super) outcome: AttemptOutcome,
    /// The phase of the request, for the log.
    pub(super) phase: &'static str,
    pub(super) error: String,
    /// Whether the target does not serve the requested protocol.
    pub(super) is_unsupported: bool,
}

impl TargetError {
    /// Creates the error of a host name without addresses.
    pub(super) fn resolve(name: &impl Display) -> Self {
        Self::new(AttemptOutcome::ResolveFailed, "resolve", format!("no address of `{name}` is known"))
    }

    /// Creates the error of a connection that could not be opened.
    pub(super) fn connect(error: &io::Error) -> Self {
        Self::new(AttemptOutcome::ConnectFailed, "connect", error.to_string())
    }

    /// Creates the error of a failed TLS handshake.
    pub(super) fn tls(error: &io::Error) -> Self {
        let is_unsupported = error.kind() == io::ErrorKind::Unsupported;
        Self { is_unsupported, ..Self::new(AttemptOutcome::TlsFailed, "tls", error.to_string()) }
    }

    /// Creates the error of a failed HTTP/2 handshake.
    pub(super) fn http2(error: &io::Error) -> Self {
        let outcome = match error.kind() {
            io::ErrorKind::TimedOut => AttemptOutcome::Timeout,
            _ => AttemptOutcome::Closed,
        };
        Self::new(outcome, "http2", error.to_string())
    }

    /// Creates the error of a connection that was closed before any byte of the request was written.
    pub(super) fn send() -> Self {
        Self::new(AttemptOutcome::Closed, "send", "the connection was closed before the request was sent".to_owned())
    }

    /// Creates the error of a response that did not begin, or whose head is invalid.
    pub(super) fn response(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => match error.get_ref().and_then(|cause| cause.downcast_ref::<BadResponse>()) {
                Some(cause) => Self::bad_response(*cause),
                None => Self::invalid(error),
            },
            io::ErrorKind::UnexpectedEof => Self::closed("the connection was closed before the response"),
            _ => Self::closed(&error.to_string()),
        }
    }

    /// Creates the error of an HTTP/2 stream that failed before its response.
    pub(super) fn stream(error: &h2::Error) -> Self {
        if error.is_remote() || error.is_io() { Self::closed(&error.to_string()) } else { Self::invalid(error) }
    }

    /// Creates the error of a target that reported that it did not process the request (HTTP/2).
    pub(super) fn refused(error: &h2::Error) -> Self {
        Self::new(AttemptOutcome::Refused, "send", error.to_string())
    }

    /// Creates the error of an invalid response.
    pub(super) fn invalid(error: &impl ToString) -> Self {
        Self::new(AttemptOutcome::InvalidResponse, "response", error.to_string())
    }

    /// Creates the error of an invalid response with a known cause.
    pub(super) fn bad_response(cause: BadResponse) -> Self {
        let outcome = match cause {
            BadResponse::Version => AttemptOutcome::ResponseVersion,
            BadResponse::LineFeed => AttemptOutcome::ResponseLineFeed,
            BadResponse::TooManyFields => AttemptOutcome::ResponseFields,
            BadResponse::TooLarge => AttemptOutcome::ResponseFieldBytes,
            BadResponse::Framing | BadResponse::Chunks => AttemptOutcome::ResponseFraming,
            BadResponse::Syntax => AttemptOutcome::InvalidResponse,
        };
        Self::new(outcome, "response", cause.to_string())
    }

    /// Creates the error of a response body that broke off.
    pub(super) fn body(error: &impl ToString) -> Self {
        Self::new(AttemptOutcome::Closed, "body", error.to_string())
    }

    /// Returns the target's error for an [`UpstreamError`]. Returns `None` if the client is at fault. `limit` is the
    /// response timeout.
    pub(super) fn from_upstream_error(error: UpstreamError, limit: Duration) -> Option<Self> {
        let (outcome, phase) = match error {
            UpstreamError::TimedOut => {
                let error = format!("no response within {limit:?}");
                return Some(Self::new(AttemptOutcome::Timeout, "response", error));
            }
            UpstreamError::QueueFull { .. } => (AttemptOutcome::QueueFull, "queue"),
            UpstreamError::QueueTimedOut { .. } => (AttemptOutcome::QueueTimeout, "queue"),
            UpstreamError::NoUsableTarget => return None,
            UpstreamError::Unreachable => (AttemptOutcome::ConnectFailed, "connect"),
            UpstreamError::UpgradeUnsupported => (AttemptOutcome::TlsFailed, "tls"),
            UpstreamError::Broken => (AttemptOutcome::InvalidResponse, "response"),
            UpstreamError::ClientStalled | UpstreamError::ClientBroken | UpstreamError::ClientTooLong => return None,
        };
        let is_unsupported = error == UpstreamError::UpgradeUnsupported;
        Some(Self { is_unsupported, ..Self::new(outcome, phase, error.to_string()) })
    }

    /// Returns `true` if the target sent an invalid response.
    pub(super) fn is_invalid_response(&self) -> bool {
        matches!(
            self.outcome,
            AttemptOutcome::InvalidResponse
                | AttemptOutcome::ResponseVersion
                | AttemptOutcome::ResponseLineFeed
                | AttemptOutcome::ResponseFields
                | AttemptOutcome::ResponseFieldBytes
                | AttemptOutcome::ResponseFraming
        )
    }

    /// Returns how the error counts for the ejection of its target. Returns `None` if it does not count: the queue is full
    /// because of the requests, and `UpgradeUnsupported` depends on the client. An invalid response shows that the target
    /// responds; most depend on the resource, and clients select it.
    pub(super) fn failure_kind(&self) -> Option<FailureKind> {
        match self.outcome {
            _ if self.is_invalid_response() => None,
            AttemptOutcome::QueueFull
            | AttemptOutcome::QueueTimeout
            | AttemptOutcome::Canceled
            | AttemptOutcome::Ok => None,
            AttemptOutcome::TlsFailed if self.is_unsupported => None,
            AttemptOutcome::ResolveFailed | AttemptOutcome::ConnectFailed | AttemptOutcome::TlsFailed => {
                Some(FailureKind::Connect)
            }
            _ if self.phase == "http2" => Some(FailureKind::Connect),
            _ => Some(FailureKind::Request),
        }
    }

    fn closed(error: &str) -> Self {
        Self::new(AttemptOutcome::Closed, "response", error.to_owned())
    }

    fn new(outcome: AttemptOutcome, phase: &'static str, error: String) -> Self {
        Self { outcome, phase, error, is_unsupported: false }
    }
}

/// Awaits `future` until `deadline`. The error of a timeout contains `limit`.
pub(super) async fn within<T>(
    deadline: Instant,
    limit: Duration,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout_at(deadline, future).await.unwrap_or_else(|Elapsed { .. }| Err(timed_out(limit)))
}

/// Returns the error of an operation that took longer than `limit`.
pub(super) fn timed_out(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no response within {limit:?}"))
}
