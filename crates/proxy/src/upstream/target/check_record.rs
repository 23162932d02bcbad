//! The record of a target's checks, for operators. It survives reloads with the state of the target.

use parking_lot::Mutex;
use tokio::time::Instant;

use super::check_outcome::{Change, CheckOutcome};
use tidegate_rules::settings::upstream::HealthSettings;

/// The longest text of a result, in bytes. Results are kept in memory.
const MAX_TEXT: usize = 256;

/// The checks of a target so far.
#[derive(Debug, Default)]
pub struct CheckRecord(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    outcome: CheckOutcome,
    report: CheckReport,
}

/// The checks of a target so far, as operators see them.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The number of checks.
    pub run: u64,
    /// The number of checks that did not pass.
    pub failed: u64,
    /// The number of checks without a result, because the gateway was too busy.
    pub discarded: u64,
    /// The last check. `None` if none has ended since the checks were turned on.
    pub last: Option<LastCheck>,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct LastCheck {
    /// When the check ended.
    pub at: Instant,
    /// Whether the target passed.
    pub has_passed: bool,
    /// The status, or the error.
    pub text: String,
}

impl CheckRecord {
    /// Records a check that ended at `now`. Returns the change of the outcome, if there is one.
    pub(in crate::upstream) fn add(
        &self,
        result: &Result<String, String>,
        settings: &HealthSettings,
        now: Instant,
    ) -> Option<Change> {
        let (has_passed, text) = (result.is_ok(), result.as_ref().unwrap_or_else(|error| error));
        let text = text.chars().scan(0, |length, letter| {
            *length += letter.len_utf8();
            (*length <= MAX_TEXT).then_some(letter)
        });
        let last = LastCheck { at: now, has_passed, text: text.collect() };
        let Recorded { outcome, report } = &mut *self.0.lock();
        report.run += 1;
        report.failed += u64::from(!has_passed);
        report.last = Some(last);
        outcome.record(has_passed, settings.rise, settings.fall)
    }

    /// Records a check whose result says nothing about the target.
    pub(in crate::upstream) fn discard(&self) {
        let report = &mut self.0.lock().report;
        (report.run, report.discarded) = (report.run + 1, report.discarded + 1);
    }

    /// Forgets the outcome, because the target is no longer checked.
    pub(in crate::upstream) fn reset(&self) {
        let Recorded { outcome, report } = &mut *self.0.lock();
        *outcome = CheckOutcome::default();
        report.last = None;
    }

    /// Returns the checks so far.
    pub fn report(&self) -> CheckReport {
        self.0.lock().report.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tidegate_rules::settings::upstream::HealthRequest;

    fn settings() -> HealthSettings {
        let request = HealthRequest::Grpc { grpc: String::new() };
        HealthSettings {
            request,
            interval: Duration::ZERO,
            timeout: Duration::ZERO,
            rise: 2,
            fall: 2,
            panic_percent: 0,
        }
    }

    #[test]
    fn long_result_is_cut_between_characters() {
        let record = CheckRecord::default();
        record.add(&Err("\u{20ac}".repeat(100)), &settings(), Instant::now());
        assert_eq!(record.report().last.map(|last| last.text), Some("\u{20ac}".repeat(85)));
    }

    #[test]
    fn reset_keeps_only_the_counts() {
        let (record, now) = (CheckRecord::default(), Instant::now());
        let failed = Err("status 500".to_owned());
        assert_eq!(record.add(&failed, &settings(), now), None);
        record.reset();
        let report = record.report();
        assert_eq!((report.run, report.failed, report.last.is_none()), (1, 1, true));
        assert_eq!(record.add(&failed, &settings(), now), None, "the first failure in a row");
        assert_eq!(record.add(&failed, &settings(), now), Some(Change::Failed));
        assert_eq!(record.add(&Ok("status 200".to_owned()), &settings(), now), None);
        assert_eq!(
            record.report().last.map(|last| (last.has_passed, last.text)),
            Some((true, "status 200".to_owned()))
        );
    }
}
