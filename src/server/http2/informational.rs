//! What a client is told before its answer (1xx), until its stream's task sends it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::{Response, StatusCode};
use parking_lot::Mutex;

use crate::upstream::InformationalSink;

/// Of one stream. Whoever adds to it runs in the task that sends it.
#[derive(Debug, Default)]
pub(super) struct PendingInformational {
    responses: Mutex<Vec<Response<()>>>,
    /// Whether there are any: mostly not, which saves the lock.
    is_pending: AtomicBool,
}

impl PendingInformational {
    /// Asks the client for its body (RFC 9110 section 10.1.1).
    pub(super) fn queue_continue(&self) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        self.send_informational(response);
    }

    pub(super) fn take(&self) -> Vec<Response<()>> {
        if !self.is_pending.load(Relaxed) {
            return Vec::new();
        }
        self.is_pending.store(false, Relaxed);
        std::mem::take(&mut *self.responses.lock())
    }
}

impl InformationalSink for PendingInformational {
    fn send_informational(&self, response: Response<()>) {
        self.responses.lock().push(response);
        self.is_pending.store(true, Relaxed);
    }
}
