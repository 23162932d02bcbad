//! Informational (1xx) responses of a stream, which wait until the stream's task sends them, and the room that a long
//! response head needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use http::{Response, StatusCode};
use parking_lot::Mutex;

use super::head_room::HeadRoom;
use super::shared_counters::SharedCounters;
use crate::upstream::InformationalSink;

/// The queue of one stream. Responses are added in the same task that sends them.
#[derive(Debug)]
pub(super) struct PendingInformational {
    responses: Mutex<Vec<Response<()>>>,
    /// Whether the queue has entries. It rarely has, and this flag saves the lock.
    is_pending: AtomicBool,
    head_room: Mutex<HeadRoom>,
    /// Whether the head of the response has waited for room. It rarely has, and this flag saves the lock.
    needs_room: AtomicBool,
    counters: Arc<SharedCounters>,
}

impl PendingInformational {
    pub(super) fn new(counters: &Arc<SharedCounters>) -> Arc<Self> {
        Arc::new(Self {
            responses: Mutex::default(),
            is_pending: AtomicBool::new(false),
            head_room: Mutex::default(),
            needs_room: AtomicBool::new(false),
            counters: Arc::clone(counters),
        })
    }

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

    /// Returns `true` if the head of the response is long, so that it may wait for room.
    pub(super) fn needs_room(&self) -> bool {
        self.needs_room.load(Relaxed)
    }

    /// Gives the room to other streams: the head is complete, and counts in the send queue.
    pub(super) fn release_room(&self) {
        if self.needs_room.swap(false, Relaxed) {
            *self.head_room.lock() = HeadRoom::Unneeded;
        }
    }
}

impl InformationalSink for PendingInformational {
    /// Drops a response that is not needed while the client does not read earlier ones.
    fn send_informational(&self, response: Response<()>) {
        if response.status() == StatusCode::CONTINUE || !self.counters.queue().is_full() {
            self.responses.lock().push(response);
            self.is_pending.store(true, Relaxed);
        }
    }

    fn poll_head_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.needs_room.store(true, Relaxed);
        self.head_room.lock().poll(self.counters.long_heads(), self.counters.queue(), cx)
    }
}
