//! Whether a request is sent again after an attempt has failed.

mod budget;

use http::{HeaderMap, Request, StatusCode};

pub(crate) use self::budget::{RetryBudget, pause};
use super::body::RequestBody;
use super::settings::{RetryOn, RetrySettings};
use tidegate_metrics::RetryCause;
use tidegate_rules::route::upgrade::Upgrade;

/// The reason why a request was not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRetried {
    /// The upstream does not retry after such a failure.
    Off,
    /// The method is not idempotent (RFC 9110 section 9.2.2).
    Method,
    /// A part of the body was sent and not kept.
    Body,
    /// The request offers an upgrade.
    Upgrade,
    /// A response had begun.
    Begun,
    /// The request was sent again as often as allowed.
    Attempts,
    /// All targets have failed.
    NoTarget,
    /// The upstream's retries have reached their share of the requests.
    Budget,
}

impl NotRetried {
    /// Returns the text for the client.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Off => "`retry` does not name this failure",
            Self::Method => "the method is not idempotent",
            Self::Body => "the body is too long to be kept",
            Self::Upgrade => "it offers an upgrade",
            Self::Begun => "a response had begun",
            Self::Attempts => "all attempts have failed",
            Self::NoTarget => "all targets have failed",
            Self::Budget => "the budget for retries is exhausted",
        }
    }

    /// Returns why a request that a target may have received cannot be sent again.
    pub(crate) fn of(request: &mut Request<RequestBody>) -> Self {
        if is_upgrade(request) {
            Self::Upgrade
        } else if !request.method().is_idempotent() {
            Self::Method
        } else if !request.body_mut().rewind() {
            Self::Body
        } else {
            Self::Begun
        }
    }
}

/// The retries of one request.
pub(super) struct Retries<'s> {
    settings: Option<&'s RetrySettings>,
    budget: &'s RetryBudget,
    remaining: u32,
    /// The fields of the request, kept only if a status can cause a retry: the response's fields replace them.
    fields: Option<Box<HeaderMap>>,
}

/// A failure after which a request is complete and may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) on: RetryOn,
    /// Whether the next attempt adds load to targets that fail: it is at the same target, or a target refused the request
    /// because it has too many.
    pub(super) adds_load: bool,
}

impl<'s> Retries<'s> {
    /// Starts with the first retry of a request. `fields` are the kept fields of the request.
    pub(super) fn new(
        settings: Option<&'s RetrySettings>,
        budget: &'s RetryBudget,
        fields: Option<Box<HeaderMap>>,
    ) -> Self {
        Self { settings, budget, remaining: settings.map_or(0, |settings| settings.attempts), fields }
    }

    /// Returns the failure of a response, if a response with this status can cause a retry of the request.
    pub(super) fn of_response(&self, status: StatusCode, request: &mut Request<RequestBody>) -> Option<RetryOn> {
        self.fields.as_ref()?;
        let on = self.settings?.on.iter().find(|on| status_of(**on) == Some(status))?;
        (!request.body().has_informational() && request.body_mut().rewind()).then_some(*on)
    }

    /// Takes a retry after this failure.
    ///
    /// # Errors
    /// The request is not sent again.
    pub(super) fn take(&mut self, failure: Failure, now: tokio::time::Instant) -> Result<(), NotRetried> {
        let settings = self.settings.filter(|settings| settings.on.contains(&failure.on)).ok_or(NotRetried::Off)?;
        if !failure.adds_load && matches!(failure.on, RetryOn::Connect | RetryOn::Unsent) {
            return Ok(());
        }
        self.remaining = self.remaining.checked_sub(1).ok_or(NotRetried::Attempts)?;
        if self.budget.try_take(now, settings.budget_percent.into()) { Ok(()) } else { Err(NotRetried::Budget) }
    }

    /// Restores the fields of the request after a response.
    pub(super) fn restore(&self, request: &mut Request<RequestBody>) {
        if let Some(fields) = &self.fields {
            request.headers_mut().clone_from(fields);
        }
    }
}

/// Returns the status of the response, if the failure is a response.
fn status_of(failure: RetryOn) -> Option<StatusCode> {
    match failure {
        RetryOn::InternalError => Some(StatusCode::INTERNAL_SERVER_ERROR),
        RetryOn::BadGateway => Some(StatusCode::BAD_GATEWAY),
        RetryOn::Unavailable => Some(StatusCode::SERVICE_UNAVAILABLE),
        RetryOn::GatewayTimeout => Some(StatusCode::GATEWAY_TIMEOUT),
        RetryOn::Connect | RetryOn::Unsent | RetryOn::Reset | RetryOn::Timeout => None,
    }
}

/// Returns the cause of a retry for the metrics.
pub(super) fn cause_of(failure: RetryOn) -> RetryCause {
    match failure {
        RetryOn::Connect => RetryCause::Connect,
        RetryOn::Unsent => RetryCause::Unsent,
        RetryOn::Reset => RetryCause::Reset,
        RetryOn::Timeout => RetryCause::Timeout,
        RetryOn::InternalError | RetryOn::BadGateway | RetryOn::Unavailable | RetryOn::GatewayTimeout => {
            RetryCause::Status
        }
    }
}

/// Sets how much of the body is kept. Returns the fields to keep: only if a response can cause a retry.
pub(super) fn prepare_for_retries(
    settings: Option<&RetrySettings>,
    request: &mut Request<RequestBody>,
) -> Option<Box<HeaderMap>> {
    request.body_mut().keep(settings.map_or(RetrySettings::DEFAULT_BODY, |settings| settings.body));
    let has_status = settings.is_some_and(|settings| settings.on.iter().any(|on| status_of(*on).is_some()));
    (has_status && request.method().is_idempotent() && !is_upgrade(request))
        .then(|| Box::new(request.headers().clone()))
}

/// Prepares a request that a target may have received for another attempt. Returns `false` if it must not be sent
/// again: its method is not idempotent, it asks for an upgrade, or a part of its body was not kept.
pub(super) fn may_repeat(request: &mut Request<RequestBody>) -> bool {
    request.method().is_idempotent() && !is_upgrade(request) && request.body_mut().rewind()
}

fn is_upgrade(request: &Request<RequestBody>) -> bool {
    request.extensions().get::<Upgrade>().is_some()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn only_attempts_that_add_no_load_are_free() {
        let (settings, now) = (RetrySettings::default(), Instant::now());
        let budget = RetryBudget::new(now);
        let mut retries = Retries::new(Some(&settings), &budget, None);
        let failure = |on, adds_load| Failure { on, adds_load };
        for _ in 0..3 {
            assert_eq!(retries.take(failure(RetryOn::Connect, false), now), Ok(()));
            assert_eq!(retries.take(failure(RetryOn::Unsent, false), now), Ok(()));
        }
        assert_eq!(retries.take(failure(RetryOn::Unsent, true), now), Ok(()));
        assert_eq!(retries.take(failure(RetryOn::Reset, false), now), Err(NotRetried::Attempts));
        assert_eq!(retries.take(failure(RetryOn::Unavailable, false), now), Err(NotRetried::Off));
    }
}
