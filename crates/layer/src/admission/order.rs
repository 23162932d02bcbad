//! The order of a request's limits from the narrowest to the widest. A request waits for the narrowest limit that refuses
//! it, and claims its permits in those before.
//!
//! The order is the same for all requests of two limits, so that no two requests wait for each other: limits that several
//! routes share are ordered by their names, and the others, which only the requests of one route have, by their positions.

use std::cmp::Ordering;

use tidegate_limit::Mode;
use tidegate_rules::rules::{Charges, LimitCharge, Positions};

/// Returns the positions of the live charges, the narrowest limit first: limits with a bucket for each client before those
/// with one bucket, and among them the limits of the route before those that routes share.
pub fn narrowest_first(charges: &Charges<'_>) -> Positions {
    let live = charges.iter().enumerate().filter(|(_, one)| !one.limit.shadow);
    let mut positions: Positions = live.map(|(position, _)| position).collect();
    positions.sort_by(|one, other| compare(&charges.at(*one), &charges.at(*other)));
    positions
}

fn compare(one: &LimitCharge<'_>, other: &LimitCharge<'_>) -> Ordering {
    let width = |of: &LimitCharge<'_>| (of.limit.mode() == Mode::Overall, of.limit.is_shared);
    let within = match one.limit.is_shared {
        true => one.limit.name.cmp(&other.limit.name),
        false => one.index.cmp(&other.index),
    };
    width(one).cmp(&width(other)).then(within)
}
