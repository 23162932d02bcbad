//! Reports: the costs of requests that have happened, for limits that were checked before.
//!
//! A report is two charges of one bucket in one decision. The first takes the permits in any case. The second takes none, and
//! is a shadow, so that it refuses nothing: it finds out whether the bucket had the permits.

use super::{Charge, ChargeKind, Decision, Turn};
use tidegate_limit::Wait;

impl Charge {
    /// Returns the charges of a report of these permits.
    pub fn of_report(&self) -> [Self; 2] {
        let of_kind = |kind, shadow| Self { kind, shadow, turn: Turn::Any, ..self.clone() };
        [of_kind(ChargeKind::Unconditional, false), of_kind(ChargeKind::Check, true)]
    }
}

impl Decision {
    /// Returns the decision about a report from the decisions about its charges: it is granted if the bucket had the permits,
    /// and made in any case. If it is not granted, the wait ends when a permit remains.
    pub fn of_report(taken: &Self, checked: &Self) -> Self {
        let wait = if checked.granted { Wait::Now } else { Wait::Millis(taken.reset.max(1)) };
        Self { granted: checked.granted, wait, delay: 0, ..*taken }
    }
}
