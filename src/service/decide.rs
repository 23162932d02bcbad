//! Decides a call.

use tokio::time::Instant;

use super::answer::Answer;
use super::dynamic_metadata;
use tidegate_layer::layer::{ActiveDomains, DomainCall};
use tidegate_limit::clock::{Stopwatch, poll_time};
use tidegate_metrics::CallResult;
use tidegate_service::{Call, CallError, Metadata};

/// A call that was read, before its decision. The body of the call is no longer needed.
#[derive(Debug)]
pub(super) struct Pending<'d> {
    since: Stopwatch,
    deadline: Instant,
    descriptors: usize,
    /// The charges. `None` if the domain is unknown.
    call: Option<DomainCall<'d>>,
    /// The metadata for the answer, if they are on.
    metadata: Option<Metadata>,
}

impl<'d> Pending<'d> {
    /// Finds the limits of a call.
    ///
    /// # Errors
    /// The call exceeds a bound, or has no domain or no descriptors.
    pub(super) fn new(active: &'d ActiveDomains, call: &Call<'_>) -> Result<Self, CallError> {
        let (since, deadline) = (Stopwatch::start(), poll_time() + active.answers().timeout);
        call.validate()?;
        let metadata = active.answers().dynamic_metadata.then(|| dynamic_metadata::of_call(call));
        Ok(Self { since, deadline, descriptors: call.descriptors.len(), call: active.charges(call), metadata })
    }

    /// Sets the deadline of the caller, if it is earlier.
    pub(super) fn before(self, deadline: Option<Instant>) -> Self {
        Self { deadline: deadline.map_or(self.deadline, |deadline| deadline.min(self.deadline)), ..self }
    }

    /// Asks the limits. A call to an unknown domain passes: the operator may not have configured it yet.
    pub(super) async fn decide(self, active: &'d ActiveDomains) -> Answer<'d> {
        let Some(call) = self.call else {
            active.other_calls().answered(CallResult::UnknownDomain, self.since.elapsed());
            return Answer::without_limits(self.descriptors).with_metadata(self.metadata);
        };
        let decided = active.decide(call, self.deadline).await;
        let answer = Answer::new(&decided, active.answers()).with_metadata(self.metadata);
        let result = match answer.is_over {
            true => CallResult::OverLimit,
            false if decided.charges.exceeds_limits() => CallResult::Shadow,
            false => CallResult::Ok,
        };
        decided.metrics.answered(result, self.since.elapsed());
        answer
    }
}
