//! Why an upstream sent no response.

use std::borrow::Cow;
use std::time::Duration;

use super::retry::NotRetried;
use super::target_error::TargetError;

/// The reason why an upstream sent no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// No connection to any target could be opened. The request was not sent.
    #[error("no connection")]
    Unreachable,
    /// The checks of all targets fail, or the targets drain. The request was not sent.
    #[error("no target is usable")]
    NoUsableTarget,
    /// All connections are in use and the wait queue is full. The request was not sent.
    #[error("too many requests wait for a connection")]
    QueueFull {
        /// Whether only the client's own requests keep this one from waiting: they use its share of the queue.
        by_client: bool,
    },
    /// No connection became free within `queue_timeout`. The request was not sent.
    #[error("no connection became free in time")]
    QueueTimedOut {
        /// Whether only the client's own requests kept this one waiting: they use its share of the connections.
        by_client: bool,
    },
    /// The upstream took the request, but its response did not begin within `timeouts.response`.
    #[error("no response in time")]
    TimedOut,
    /// The connection broke, or the response is invalid.
    #[error("no valid response")]
    Broken,
    /// The client stopped sending its request body.
    #[error("the client stopped sending")]
    ClientStalled,
    /// The client's request body is malformed or incomplete.
    #[error("the client's body is malformed or incomplete")]
    ClientBroken,
    /// The client's request body is longer than its route allows.
    #[error("the client's body is too long")]
    ClientTooLong,
    /// The target serves HTTP/2 only, which has no `Upgrade`. The request was not sent.
    #[error("the target serves HTTP/2 only")]
    UpgradeUnsupported,
}

/// The error of a request, and why the gateway did not send it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError {
    pub error: UpstreamError,
    /// `None` if another attempt was out of the question.
    pub(crate) not_retried: Option<NotRetried>,
}

/// The reason why an attempt at one target failed. It determines whether the gateway may try again.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// Nothing was sent. The request is still complete.
    NotSent(TargetError),
    /// The request was sent on a reused connection, which ended before the first byte of the response. Most likely it
    /// was closed before the request arrived. The request is complete and may be sent again.
    Unanswered(TargetError),
    /// The request was sent, and the connection ended before the first byte of the response. The request is complete
    /// and may be sent again.
    Reset(TargetError),
    /// The request was sent, and its response did not begin in time. The request is complete and may be sent again.
    Silent,
    /// The connection broke, or the response is invalid.
    Broken(TargetError),
    /// The request has failed and must not be sent again.
    Failed(UpstreamError),
}

impl From<UpstreamError> for SendError {
    fn from(error: UpstreamError) -> Self {
        Self { error, not_retried: None }
    }
}

// === impl AttemptError ===

impl AttemptError {
    /// Returns the error for the target's log and metrics. Returns `None` if the client is at fault. `limit` is the
    /// response timeout.
    pub(super) fn target_error(&self, limit: Duration) -> Option<Cow<'_, TargetError>> {
        match self {
            Self::NotSent(error) | Self::Unanswered(error) | Self::Reset(error) | Self::Broken(error) => {
                Some(Cow::Borrowed(error))
            }
            Self::Silent => TargetError::from_upstream_error(UpstreamError::TimedOut, limit).map(Cow::Owned),
            Self::Failed(error) => TargetError::from_upstream_error(*error, limit).map(Cow::Owned),
        }
    }
}
