//! Decided requests.

use http::StatusCode;

use tidegate_rules::charge::ClientId;
use tidegate_rules::rules::Charges;

/// The request that a decision is about.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The position of the request among all requests of the logs.
    pub(crate) number: u64,
    pub(crate) route: usize,
    pub(crate) address: Option<ClientId>,
    /// The status in the log. Without one, 200.
    pub(crate) response: StatusCode,
    pub(crate) arrived_at: u64,
}

/// A decided request. Its charges have the decisions.
#[derive(Debug)]
pub(crate) struct Decided<'r> {
    pub(crate) origin: Origin,
    pub(crate) charges: Charges<'r>,
    pub(crate) admitted: bool,
    /// The time of the decision, in milliseconds.
    pub(crate) at: u64,
}

impl<'r> Decided<'r> {
    /// Admits a request that no limit counts.
    pub(crate) fn unlimited(origin: Origin, charges: Charges<'r>) -> Self {
        Self { at: origin.arrived_at, origin, charges, admitted: true }
    }
}
