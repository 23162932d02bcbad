//! `charge_on` and `reserve` of a limit.

use crate::check::Checked;
use crate::check::upstreams::health::status_ranges;
use crate::file;
use crate::problem::Problems;
use tidegate_limit::AlgorithmName;
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
    if raw.algorithm.get() == Some(&AlgorithmName::LeakyBucket) {
        let message = "`charge_on` does not work with `leaky_bucket`, which assigns time slots before the response";
        return Err(raw.charge_on.report(message, "use another algorithm", problems));
    }
    if raw.max_wait.is_present() {
        let message =
            "`charge_on` does not work with `max_wait`: a request cannot wait for permits that it may not take";
        return Err(raw.charge_on.report(message, "leave out `max_wait`", problems));
    }
    Ok(Some(Box::new(ChargeOn { statuses: statuses?, reserve: raw.reserve.or_default(problems)? })))
}
