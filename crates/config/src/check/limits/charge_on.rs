//! `charge_on` and `reserve` of a limit.

use crate::check::Checked;
use crate::check::upstreams::health::status_ranges;
use crate::file;
use crate::problem::{Problems, quote};
use tidegate_rules::limits::rule::ChargeOn;

pub(crate) fn charge_on(raw: &file::Limit, problems: &mut Problems) -> Checked<Option<Box<ChargeOn>>> {
    let reserve = raw.reserve.optional(problems);
    if raw.charge_on.optional(problems)?.is_none() {
        let message = "`reserve` has no effect without `charge_on`";
        let help = "add `charge_on`, for example `charge_on: [401, 403]`";
        return reserve?
            .filter(|reserve| **reserve)
            .map_or(Ok(None), |_| Err(raw.reserve.report(message, help, problems)));
    }
    let statuses = status_ranges(&raw.charge_on, problems);
    if let Some(name) = raw.algorithm.get().filter(|name| name.has_time_slots()) {
        return Err(raw.charge_on.report(time_slot_conflict(name.name()), "use another algorithm", problems));
    }
    if raw.max_wait.is_present() {
        let message =
            "`charge_on` does not work with `max_wait`: a request cannot wait for permits that it may not take";
        return Err(raw.charge_on.report(message, "leave out `max_wait`", problems));
    }
    Ok(Some(Box::new(ChargeOn { statuses: statuses?, reserve: raw.reserve.or_default(problems)? })))
}

/// Returns the message about an algorithm that assigns time slots.
pub(super) fn time_slot_conflict(algorithm: &str) -> String {
    format!("`charge_on` does not work with {}, which assigns time slots before the response", quote(algorithm))
}
