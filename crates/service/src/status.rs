//! The statuses of the descriptors of a call.

use std::time::Duration;

use tidegate_limit::Wait;
use tidegate_rules::charge::Decision;

use crate::tree::rule::Metadata;
use crate::unit::Unit;

/// The status of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status<'d> {
    /// Whether the descriptor is over its limit. A shadow never is.
    pub is_over: bool,
    /// The limit. `None` if no limit applies, or if the store did not decide.
    pub limit: Option<CurrentLimit<'d>>,
    /// The remaining requests, after this one if the whole call passes. [`u32::MAX`] for an unlimited descriptor.
    pub remaining: u32,
    /// The time until the next requests become available; for a descriptor over its limit, until the same call passes.
    /// `None` without a limit, and if the call never passes.
    pub until_reset: Option<Duration>,
    /// Whether the descriptor is one of the quotas of a call, which reject it only together.
    pub is_quota: bool,
    /// The metadata of the rule. `None` if the descriptor exceeds its limit.
    pub metadata: Option<&'d Metadata>,
}

/// The limit of a descriptor, as the configuration or the caller states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLimit<'d> {
    /// The requests in each unit, or in the interval of the limit.
    pub requests_per_unit: u32,
    /// The unit of time. `None` if the interval of the limit is no unit.
    pub unit: Option<Unit>,
    /// The name, if the limit has one.
    pub name: Option<&'d str>,
}

impl<'d> Status<'d> {
    /// The status of a descriptor without a limit.
    pub(crate) const NO_LIMIT: Self =
        Self { is_over: false, limit: None, remaining: 0, until_reset: None, is_quota: false, metadata: None };

    /// The status of an unlimited descriptor.
    pub(crate) const UNLIMITED: Self = Self { remaining: u32::MAX, ..Self::NO_LIMIT };

    /// Creates the status of a limit that rejects all requests.
    pub(crate) fn of_zero(limit: CurrentLimit<'d>, is_over: bool) -> Self {
        Self { is_over, limit: Some(limit), ..Self::NO_LIMIT }
    }

    /// Creates the status of a limit whose client is banned, for this many milliseconds.
    pub(crate) fn of_ban(limit: CurrentLimit<'d>, millis: u64) -> Self {
        let until_reset = Some(Duration::from_millis(millis));
        Self { is_over: true, limit: Some(limit), until_reset, ..Self::NO_LIMIT }
    }

    /// Creates the status of a limit from its decision.
    pub(crate) fn of_decision(limit: CurrentLimit<'d>, decision: &Decision, is_shadow: bool) -> Self {
        let until_reset = match decision.wait {
            Wait::Now => Some(decision.reset),
            Wait::Millis(wait) => Some(wait),
            Wait::Never => None,
        };
        let remaining = if decision.granted { decision.remaining } else { 0 };
        Self {
            is_over: !decision.granted && !is_shadow,
            limit: Some(limit),
            remaining,
            until_reset: until_reset.map(Duration::from_millis),
            ..Self::NO_LIMIT
        }
    }
}
