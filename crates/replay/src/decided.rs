//! Decided requests.

use http::StatusCode;

use tidegate_layer::admission::LimitStatus;
use tidegate_limit::ClientId;
use tidegate_rules::rule::Limit;
use tidegate_rules::rules::Charges;

/// The request that a decision is about.
#[derive(Debug)]
pub(super) struct Origin<'r> {
    /// The position of the request among all requests of the logs.
    pub(super) number: u64,
    pub(super) route: usize,
    pub(super) address: Option<ClientId>,
    /// The status in the log. Without one, 200.
    pub(super) response: StatusCode,
    pub(super) arrived_at: u64,
    pub(super) limits: &'r [Limit],
}

/// A decided request.
#[derive(Debug)]
pub(super) struct Decided<'r> {
    pub(super) origin: Origin<'r>,
    pub(super) charges: Charges<'r>,
    pub(super) status: LimitStatus,
    pub(super) admitted: bool,
    /// The time of the decision, in milliseconds.
    pub(super) at: u64,
}

impl<'r> Decided<'r> {
    /// Admits a request that no limit counts.
    pub(super) fn unlimited(origin: Origin<'r>, charges: Charges<'r>) -> Self {
        Self { at: origin.arrived_at, origin, charges, status: LimitStatus::default(), admitted: true }
    }
}
