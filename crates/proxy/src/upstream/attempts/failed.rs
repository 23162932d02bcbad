//! An attempt that failed: whether the request may be sent again, and its result if it is not.

use std::time::Duration;

use http::{Request, header};

use crate::upstream::body::RequestBody;
use crate::upstream::headless_response::HeadlessResponse;
use crate::upstream::retry::{NotRetried, pause};
use crate::upstream::selection::Selected;
use crate::upstream::settings::RetryOn;
use crate::upstream::{AttemptError, SendError, UpstreamError};
use tidegate_limit::random::random;
use tidegate_metrics::AttemptOutcome;

/// An attempt that failed, and after which the request may be sent again.
pub(super) struct FailedAttempt {
    pub(super) on: RetryOn,
    /// Whether the target refused the request (HTTP/2).
    pub(super) is_refused: bool,
    /// The error of the request if it is not sent again.
    error: UpstreamError,
    /// The response, if its status is the failure. Boxed, because it is rare.
    response: Option<Box<HeadlessResponse>>,
}

impl FailedAttempt {
    /// Converts the error of an attempt. `sent` is the error of the last attempt that a target may have received.
    ///
    /// # Errors
    /// The request must not be sent again.
    pub(super) fn new(
        error: AttemptError,
        sent: &mut Option<UpstreamError>,
        request: &mut Request<RequestBody>,
    ) -> Result<Self, SendError> {
        let on = match error {
            AttemptError::NotSent(error) => {
                if sent.is_none() {
                    request.body_mut().set_not_sent();
                }
                let on = if error.phase == "send" { RetryOn::Unsent } else { RetryOn::Connect };
                let is_refused = error.outcome == AttemptOutcome::Refused;
                return Ok(Self { on, is_refused, error: sent.unwrap_or(UpstreamError::Unreachable), response: None });
            }
            AttemptError::Unanswered(_) | AttemptError::Reset(_) => {
                *sent = Some(UpstreamError::Broken);
                RetryOn::Reset
            }
            AttemptError::Silent => {
                *sent = Some(UpstreamError::TimedOut);
                RetryOn::Timeout
            }
            AttemptError::Broken(_) => return Err(final_error(UpstreamError::Broken, NotRetried::of(request))),
            AttemptError::Failed(error @ UpstreamError::TimedOut) => {
                return Err(final_error(error, NotRetried::of(request)));
            }
            AttemptError::Failed(error @ (UpstreamError::QueueFull { .. } | UpstreamError::QueueTimedOut { .. })) => {
                return Err(sent.map_or(error.into(), |sent| final_error(sent, NotRetried::NoTarget)));
            }
            AttemptError::Failed(error) => return Err(error.into()),
        };
        Ok(Self { on, is_refused: false, error: sent.unwrap_or(UpstreamError::Broken), response: None })
    }

    /// Creates the failure of a response whose status allows another attempt.
    pub(super) fn with_response(on: RetryOn, response: HeadlessResponse, sent: &mut Option<UpstreamError>) -> Self {
        *sent = Some(UpstreamError::Broken);
        Self { on, is_refused: false, error: UpstreamError::Broken, response: Some(Box::new(response)) }
    }

    /// Returns the pause before the next attempt: none at another target.
    pub(super) fn pause(&self, target: &Selected<'_>, request: &Request<RequestBody>) -> Option<Duration> {
        if !target.is_repeated {
            return None;
        }
        let fields = self.response.as_ref().map(|_| request.headers());
        let seconds = fields.and_then(|fields| fields.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok());
        let [byte] = random();
        Some(Duration::from_secs(seconds.unwrap_or(0)).max(pause(byte)))
    }

    /// Returns the result of a request that is not sent again.
    pub(super) fn give_up(self, reason: NotRetried) -> Result<HeadlessResponse, SendError> {
        self.response.map(|response| *response).ok_or(final_error(self.error, reason))
    }
}

fn final_error(error: UpstreamError, reason: NotRetried) -> SendError {
    SendError { error, not_retried: Some(reason) }
}
