//! The steps of an evaluation, and their results.

use super::Answer;
use crate::request::body::BodyReads;
use crate::request::identity::{IdentityKinds, ServiceCheck, ServiceVerdict};
use crate::route::{Authorize, Route};

/// The next task of the driver.
#[derive(Debug)]
pub enum Step<'r> {
    /// Record the [route](super::Evaluation::route).
    Found,
    /// Bound the requests for quotas, which no limit counts.
    AdmitQuota,
    /// The end: answer with the state of the limits of this route.
    Quota(&'r Route),
    /// The end: evaluate the [original request](super::Evaluation::original).
    Authorize(&'r Route, Authorize),
    /// The end: no route matches.
    Unmatched,
    /// Reject the request before these credentials are verified, if a limit that does not depend on them is known to
    /// refuse it. `None` if no credentials are verified.
    Check(Option<IdentityKinds>),
    /// Verify these credentials, and [add](super::Evaluation::add_identity) the result.
    Verify(IdentityKinds),
    /// Record whether the route accepts the credentials of these kinds, which it reads: `facts.identity` has a fault if not.
    Identified(IdentityKinds),
    /// Read these values of the body, and [add](super::Evaluation::add_body) them.
    ReadBody(&'r BodyReads),
    /// Let the limits decide, and pass on the [`Verdict`]. Then the request also needs a slot if the route bounds its
    /// requests in flight and this is `true`.
    Decide(bool),
    /// Ask this service whether it allows the request, and pass on the [`ServiceVerdict`].
    Ask(&'r ServiceCheck),
    /// The end: answer the request.
    Respond(Answer<'r>),
    /// The end: forward the request.
    Forward,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default)]
pub enum Event {
    /// The step is done.
    #[default]
    Done,
    /// The limits have decided.
    Decided(Verdict),
    /// The service has decided.
    Asked(ServiceVerdict),
}

/// The decision of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All limits granted their permits.
    Granted,
    /// A limit refused, and nothing was charged.
    Refused,
    /// Too many requests are in flight.
    Busy,
    /// The store did not decide, and a limit denies requests then.
    StoreFailed,
}
