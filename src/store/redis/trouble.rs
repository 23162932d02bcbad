//! Limiters of others that cannot be judged: said once when it begins, and once when it is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::limit::foreign::Sharing;
use crate::limit::{Algorithm, Charge};
use crate::store::StoreError;

/// The limiters that are in trouble at present.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// Is there any? Almost always not, and then no decision waits for the lock.
    any: AtomicBool,
    by_limiter: Mutex<HashMap<String, StoreError>>,
}

impl Troubles {
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
        let mut troubled = self.by_limiter.lock();
        for name in adopted(charges) {
            if troubled.insert(name.to_owned(), error.clone()).as_ref() != Some(error) {
                tracing::warn!(limiter = name, %error, "limiter of others cannot be judged");
            }
        }
        self.any.store(!troubled.is_empty(), Ordering::Relaxed);
    }

    fn end(&self, charges: &[Charge]) {
        let mut troubled = self.by_limiter.lock();
        for name in adopted(charges) {
            if troubled.remove(name).is_some() {
                tracing::info!(limiter = name, "limiter of others can be judged again");
            }
        }
        self.any.store(!troubled.is_empty(), Ordering::Relaxed);
    }
}

/// Their names are the rule file's, not a client's.
fn adopted(charges: &[Charge]) -> impl Iterator<Item = &str> {
    let is_adopted =
        |charge: &&Charge| matches!(charge.limiter.quota.algorithm(), Algorithm::Foreign(Sharing::Adopt(_)));
    charges.iter().filter(is_adopted).map(|charge| charge.limiter.name.as_str())
}
