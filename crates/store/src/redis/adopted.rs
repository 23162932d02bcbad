//! Logs adopted limiters that cannot be evaluated: once at the start of a failure and once at its end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::StoreError;
use tidegate_limit::Algorithm;
use tidegate_limit::redisson::Sharing;
use tidegate_rules::charge::Charge;

/// The adopted limiters that cannot be evaluated at present.
#[derive(Debug, Default)]
pub(super) struct AdoptedFailures {
    /// Whether there are any. Almost always false; then decisions do not wait for the lock.
    any: AtomicBool,
    by_limiter: Mutex<HashMap<String, StoreError>>,
}

impl AdoptedFailures {
    /// Records the result of a decision about `charges`.
    pub(super) fn record(&self, charges: &[Charge], error: Option<&StoreError>) {
        match error {
            Some(error @ (StoreError::NotInitialised | StoreError::ModeDiffers)) => self.record_failure(charges, error),
            Some(_) => {}
            None if self.any.load(Ordering::Relaxed) => self.record_recovery(charges),
            None => {}
        }
    }

    fn record_failure(&self, charges: &[Charge], error: &StoreError) {
        let mut failing = self.by_limiter.lock();
        for name in adopted(charges) {
            if failing.insert(name.to_owned(), error.clone()).as_ref() != Some(error) {
                tracing::warn!(limiter = name, %error, "adopted limiter cannot be evaluated");
            }
        }
        self.any.store(!failing.is_empty(), Ordering::Relaxed);
    }

    fn record_recovery(&self, charges: &[Charge]) {
        let mut failing = self.by_limiter.lock();
        for name in adopted(charges) {
            if failing.remove(name).is_some() {
                tracing::info!(limiter = name, "adopted limiter can be evaluated again");
            }
        }
        self.any.store(!failing.is_empty(), Ordering::Relaxed);
    }
}

/// The names come from the rule file, never from clients.
fn adopted(charges: &[Charge]) -> impl Iterator<Item = &str> {
    let is_adopted =
        |charge: &&Charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Redisson(Sharing::Adopt(_)));
    charges.iter().filter(is_adopted).map(|charge| charge.limiter.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::logged_by;
    use tidegate_limit::{Mode, Quota};
    use tidegate_rules::charge::Limiter;

    #[test]
    fn failure_is_logged_at_its_start_change_and_end() {
        let quota = Quota::adopted(Sharing::Adopt(None));
        let limiter = Arc::new(Limiter::new("java".into(), Mode::Overall, quota));
        let charges = [Charge::new(limiter, None, 1)];
        let failures = AdoptedFailures::default();
        let log = logged_by(|| {
            let (missing, other) = (StoreError::NotInitialised, StoreError::ModeDiffers);
            for error in [None, Some(&missing), Some(&missing), Some(&StoreError::Timeout), Some(&missing)] {
                failures.record(&charges, error);
            }
            for error in [Some(&other), Some(&other), None, None, Some(&missing)] {
                failures.record(&charges, error);
            }
        });
        let is_recovery: Vec<_> = log.lines().map(|line| line.contains("again")).collect();
        assert_eq!(is_recovery, [false, false, true, false], "{log}");
    }
}
