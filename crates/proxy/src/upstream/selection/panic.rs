//! Panic: while many targets of an upstream fail their checks, requests use all of them. Then the failures say more about
//! the checks, or about the gateway, than about the targets.

use std::sync::Arc;

use tokio::time::Instant;

use crate::upstream::entry::Entry;
use crate::upstream::target::Availability;

/// Returns `true` if more than `percent` percent of the targets fail their checks. 0 turns panic off. Targets that drain
/// or have no address do not count, because no request could use them.
pub(in crate::upstream) fn is_panic(entries: &[Arc<Entry>], percent: u8, now: Instant) -> bool {
    if percent == 0 {
        return false;
    }
    let (mut failed, mut all) = (0, 0);
    for entry in entries {
        match entry.availability(now, false) {
            Availability::Failed => (failed, all) = (failed + 1, all + 1),
            Availability::Usable | Availability::ProbeDue | Availability::LastResort => all += 1,
            Availability::NoAddress | Availability::Excluded => {}
        }
    }
    failed * 100 > all * usize::from(percent)
}
