//! Informational (1xx) responses of a stream, which wait until the stream's task sends them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::{Response, StatusCode};
use parking_lot::Mutex;

use crate::upstream::InformationalSink;

/// The queue of one stream. Responses are added in the same task that sends them.
#[derive(Debug, Default)]
pub(super) struct PendingInformational {
    responses: Mutex<Vec<Response<()>>>,
    /// Whether the queue has entries. It rarely has, and this flag saves the lock.
    is_pending: AtomicBool,
}

impl PendingInformational {
    /// Queues `100 Continue` (RFC 9110 section 10.1.1).
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
