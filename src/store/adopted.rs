//! Limiters of others that cannot be judged: said once when it begins, and once when it is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::limit::redisson::Sharing;
use crate::limit::{Algorithm, Charge};
use crate::store::StoreError;

/// The limiters that cannot be judged at present.
#[derive(Debug, Default)]
pub(super) struct AdoptedFailures {
    /// Is there any? Almost always not, and then no decision waits for the lock.
    any: AtomicBool,
    by_limiter: Mutex<HashMap<String, StoreError>>,
}

impl AdoptedFailures {
    /// Notes what became of a decision over `charges`.
    pub(super) fn note(&self, charges: &[Charge], error: Option<&StoreError>) {
        match error {
            Some(error @ (StoreError::NotInitialised | StoreError::ModeDiffers)) => self.begin(charges, error),
            Some(_) => {}
            None if self.any.load(Ordering::Relaxed) => self.end(charges),
            None => {}
        }
    }

    fn begin(&self, charges: &[Charge], error: &StoreError) {
        let mut failing = self.by_limiter.lock();
        for name in adopted(charges) {
            if failing.insert(name.to_owned(), error.clone()).as_ref() != Some(error) {
                tracing::warn!(limiter = name, %error, "limiter of others cannot be judged");
            }
        }
        self.any.store(!failing.is_empty(), Ordering::Relaxed);
    }

    fn end(&self, charges: &[Charge]) {
        let mut failing = self.by_limiter.lock();
        for name in adopted(charges) {
            if failing.remove(name).is_some() {
                tracing::info!(limiter = name, "limiter of others can be judged again");
            }
        }
        self.any.store(!failing.is_empty(), Ordering::Relaxed);
    }
}

/// Their names are the rule file's, not a client's.
fn adopted(charges: &[Charge]) -> impl Iterator<Item = &str> {
    let is_adopted =
        |charge: &&Charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Redisson(Sharing::Adopt(_)));
    charges.iter().filter(is_adopted).map(|charge| charge.limiter.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limit::{Limiter, Mode, Quota};
    use crate::store::testing::logged_by;

    #[test]
    fn a_failure_is_logged_when_it_begins_when_it_changes_and_when_it_is_over() {
        let quota = Quota::adopted(Sharing::Adopt(None));
        let limiter = Arc::new(Limiter::new("java".into(), Mode::Overall, quota));
        let charges = [Charge { limiter, client: None, permits: 1, shadow: false }];
        let failures = AdoptedFailures::default();
        let log = logged_by(|| {
            let (missing, other) = (StoreError::NotInitialised, StoreError::ModeDiffers);
            for error in [None, Some(&missing), Some(&missing), Some(&StoreError::Timeout), Some(&missing)] {
                failures.note(&charges, error);
            }
            for error in [Some(&other), Some(&other), None, None, Some(&missing)] {
                failures.note(&charges, error);
            }
        });
        let said: Vec<_> = log.lines().map(|line| line.contains("again")).collect();
        assert_eq!(said, [false, false, true, false], "{log}");
    }
}
