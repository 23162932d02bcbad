//! What a client is told before its answer (1xx), until its stream's task sends it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::{Response, StatusCode};
use parking_lot::Mutex;

use crate::upstream::Inform;

/// Of one stream. Whoever adds to it runs in the task that sends it.
#[derive(Debug, Default)]
pub(super) struct Hints {
    waiting: Mutex<Vec<Response<()>>>,
    /// Whether there are any: mostly not, which saves the lock.
    is_told: AtomicBool,
}

impl Hints {
    /// Asks the client for its body (RFC 9110 section 10.1.1).
    pub(super) fn ask_for_body(&self) {
        let mut answer = Response::new(());
        *answer.status_mut() = StatusCode::CONTINUE;
        self.inform(answer);
    }

    pub(super) fn take(&self) -> Vec<Response<()>> {
        if !self.is_told.load(Relaxed) {
            return Vec::new();
        }
        self.is_told.store(false, Relaxed);
        std::mem::take(&mut *self.waiting.lock())
    }
}

impl Inform for Hints {
    fn inform(&self, answer: Response<()>) {
        self.waiting.lock().push(answer);
        self.is_told.store(true, Relaxed);
    }
}
