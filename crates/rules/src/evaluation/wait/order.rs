//! The order of a request's limits from the narrowest to the widest. A request waits for the narrowest limit that refuses
//! it, and claims its permits in those before.
//!
//! The order is the same for all requests of two limits, so that no two requests wait for each other: limits that several
//! routes share are ordered by their names, and the others, which only the requests of one route have, by their positions.

use std::cmp::Ordering;

use crate::rules::{Charges, LimitCharge, Positions};
use tidegate_limit::Mode;

/// Returns the positions of the live charges, the narrowest limit first: limits with a bucket for each client before those
/// with one bucket, and among them the limits of the route before those that routes share.
pub(super) fn narrowest_first(charges: &Charges<'_>) -> Positions {
    let live = (0..).zip(charges.iter()).filter(|(_, entry)| !entry.limit.shadow);
    let mut positions: Positions = live.map(|(position, _)| position).collect();
    positions.sort_by(|first, second| compare(&charges.at((*first).into()), &charges.at((*second).into())));
    positions
}

fn compare(first: &LimitCharge<'_>, second: &LimitCharge<'_>) -> Ordering {
    let width = |entry: &LimitCharge<'_>| (entry.limit.mode() == Mode::Overall, entry.limit.is_shared);
    let of_same_width = match first.limit.is_shared {
        true => first.limit.name.cmp(&second.limit.name),
        false => first.index.cmp(&second.index),
    };
    width(first).cmp(&width(second)).then(of_same_width)
}
