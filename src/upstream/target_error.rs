//! Why an attempt at a target failed, in words for metrics, logs and operators.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, error::Elapsed, timeout_at};

use super::UpstreamError;
use crate::metrics::AttemptOutcome;

/// A failed attempt at a target.
#[derive(Clone, Debug)]
pub(crate) struct TargetError {
    pub(super) outcome: AttemptOutcome,
    /// What the gateway was doing.
    pub(super) phase: &'static str,
    pub(super) error: String,
    /// Whether the target does not serve the protocol that was asked for.
    pub(super) is_unsupported: bool,
}

impl TargetError {
    /// Returns the fault of a name that has no address.
    pub(super) fn resolve(host: &str, error: &io::Error) -> Self {
        Self::new(AttemptOutcome::ResolveFailed, "resolve", format!("cannot resolve `{host}`: {error}"))
    }

    /// Returns the fault of a connection that could not be opened.
    pub(super) fn connect(error: &io::Error) -> Self {
        Self::new(AttemptOutcome::ConnectFailed, "connect", error.to_string())
    }

    /// Returns the fault of a TLS handshake.
    pub(super) fn tls(error: &io::Error) -> Self {
        let is_unsupported = error.kind() == io::ErrorKind::Unsupported;
        Self { is_unsupported, ..Self::new(AttemptOutcome::TlsFailed, "tls", error.to_string()) }
    }

    /// Returns the fault of a connection on which HTTP/2 could not be set up.
    pub(super) fn http2(error: &io::Error) -> Self {
        let outcome = match error.kind() {
            io::ErrorKind::TimedOut => AttemptOutcome::Timeout,
            _ => AttemptOutcome::Closed,
        };
        Self::new(outcome, "http2", error.to_string())
    }

    /// Returns the fault of a connection that took none of the request.
    pub(super) fn send() -> Self {
        Self::new(AttemptOutcome::Closed, "send", "the connection was closed before the request was sent".to_owned())
    }

    /// Returns the fault of a response that did not begin, or is invalid.
    pub(super) fn response(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::invalid(error),
            io::ErrorKind::UnexpectedEof => Self::closed("the connection was closed before the response"),
            _ => Self::closed(&error.to_string()),
        }
    }

    /// Returns the fault of a stream of HTTP/2.
    pub(super) fn stream(error: &h2::Error) -> Self {
        if error.is_remote() || error.is_io() { Self::closed(&error.to_string()) } else { Self::invalid(error) }
    }

    /// Returns the fault of a target that did not process the request, as it says.
    pub(super) fn refused(error: &h2::Error) -> Self {
        Self::new(AttemptOutcome::Refused, "send", error.to_string())
    }

    /// Returns the fault of a response that is not valid.
    pub(super) fn invalid(error: &impl ToString) -> Self {
        Self::new(AttemptOutcome::InvalidResponse, "response", error.to_string())
    }

    /// Returns the fault of a response body that ended before its end.
    pub(super) fn body(error: &impl ToString) -> Self {
        Self::new(AttemptOutcome::Closed, "body", error.to_string())
    }

    /// Returns the fault behind a failure. `limit` is how long a response may take to begin. A failure of the client is no
    /// fault of the target.
    pub(super) fn of_failure(failure: UpstreamError, limit: Duration) -> Option<Self> {
        let (outcome, phase) = match failure {
            UpstreamError::TimedOut => {
                let error = format!("no response within {limit:?}");
                return Some(Self::new(AttemptOutcome::Timeout, "response", error));
            }
            UpstreamError::QueueFull => (AttemptOutcome::QueueFull, "queue"),
            UpstreamError::QueueTimedOut => (AttemptOutcome::QueueTimeout, "queue"),
            UpstreamError::Unreachable => (AttemptOutcome::ConnectFailed, "connect"),
            UpstreamError::CannotSwitch => (AttemptOutcome::TlsFailed, "tls"),
            UpstreamError::Broken => (AttemptOutcome::InvalidResponse, "response"),
            UpstreamError::ClientStalled | UpstreamError::ClientBroken | UpstreamError::ClientTooLong => return None,
        };
        Some(Self::new(outcome, phase, failure.to_string()))
    }

    fn closed(error: &str) -> Self {
        Self::new(AttemptOutcome::Closed, "response", error.to_owned())
    }

    fn new(outcome: AttemptOutcome, phase: &'static str, error: String) -> Self {
        Self { outcome, phase, error, is_unsupported: false }
    }
}

/// Waits for a future until a deadline. Its error then names the time that it was given.
pub(super) async fn within<T>(
    deadline: Instant,
    limit: Duration,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout_at(deadline, future).await.unwrap_or_else(|Elapsed { .. }| Err(timed_out(limit)))
}

/// Returns the error of something that took longer than `limit`.
pub(super) fn timed_out(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"))
}
