//! The precedence of admin listeners when file descriptors have run out.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of admin listeners that need a file descriptor. Descriptors belong to the process, and so does this number.
static HOLDERS: AtomicUsize = AtomicUsize::new(0);

/// While a value exists, workers that found no descriptor do not try again, so the next free descriptor is not theirs.
#[derive(Debug)]
pub struct Precedence(());

impl Precedence {
    /// Takes precedence until the value is dropped.
    pub fn take() -> Self {
        HOLDERS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    pub(super) fn is_taken() -> bool {
        HOLDERS.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        HOLDERS.fetch_sub(1, Ordering::Relaxed);
    }
}
