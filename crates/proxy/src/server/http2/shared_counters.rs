//! Counters shared by the tasks of a connection and its streams: resets, frames without content, open uploads and long
//! bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};

use h2::{Reason, StreamId};
use parking_lot::Mutex;

use super::head_room::LongHeads;
use super::send_queue::SendQueue;
use crate::upstream::ReplayBudget;

/// The maximum number of resets minus responses of a connection. A client that resets every second request never
/// reaches it. A client that resets all requests is disconnected.
pub(super) const MAX_RESETS: u32 = 100;

/// The counters of one connection.
#[derive(Debug, Default)]
pub(super) struct SharedCounters {
    /// Streams that were reset, minus streams that got a response.
    resets: AtomicU32,
    /// RST_STREAM frames, for streams in any state.
    rst_stream_frames: AtomicU32,
    /// The client has sent too many frames without content.
    is_flooded: AtomicBool,
    /// A GOAWAY was sent because of the client's behaviour.
    has_sent_goaway: AtomicBool,
    /// The graceful shutdown has reached its deadline: no further stream is served.
    has_finished: AtomicBool,
    /// The last stream whose request `h2` has passed on.
    last_accepted: AtomicU32,
    /// Streams that `h2` has reset before it passed them on, and that are not counted yet.
    reset_heads: Mutex<Vec<u32>>,
    /// Whether there are such streams.
    has_reset_heads: AtomicBool,
    /// Bytes received.
    bytes_read: AtomicU64,
    /// The connection has had a long request body.
    has_long_bodies: AtomicBool,
    /// Request bodies that are not read to their end.
    uploads: AtomicU32,
    /// Frames that were given to `h2` and are not written yet.
    queue: Arc<SendQueue>,
    long_heads: LongHeads,
    replay_budget: Arc<ReplayBudget>,
    /// The task that serves the connection.
    waker: Mutex<Option<Waker>>,
}

/// A request body that is not read to its end.
#[derive(Debug)]
pub(super) struct OpenUpload(Arc<SharedCounters>);

impl Drop for OpenUpload {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Relaxed);
    }
}

impl SharedCounters {
    /// Counts a complete response.
    pub(super) fn count_response(&self) {
        // Two tasks may do this at the same time and count one response. That is accurate enough.
        self.resets.store(self.resets.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Counts a stream that was reset before its response was complete, by the client or because of a client error.
    pub(super) fn count_reset(&self) {
        if self.resets.fetch_add(1, Relaxed) == MAX_RESETS {
            self.wake();
        }
    }

    /// Records that the connection has had a long request body.
    pub(super) fn set_has_long_bodies(&self) {
        if !self.has_long_bodies.swap(true, Relaxed) {
            self.wake();
        }
    }

    /// Returns `true` if the connection has had a long request body.
    pub(super) fn has_long_bodies(&self) -> bool {
        self.has_long_bodies.load(Relaxed)
    }

    /// Counts a request body until it was read to its end, or dropped.
    pub(super) fn begin_upload(self: &Arc<Self>) -> OpenUpload {
        self.uploads.fetch_add(1, Relaxed);
        OpenUpload(Arc::clone(self))
    }

    /// Returns the number of request bodies that are not read to their end.
    pub(super) fn uploads(&self) -> u32 {
        self.uploads.load(Relaxed)
    }

    /// Returns the frames that were given to `h2` and are not written yet.
    pub(super) fn queue(&self) -> &Arc<SendQueue> {
        &self.queue
    }

    /// Returns the long response heads that are read.
    pub(super) fn long_heads(&self) -> &LongHeads {
        &self.long_heads
    }

    /// Returns the bound of the bytes that requests keep to be sent again.
    pub(super) fn replay_budget(&self) -> &Arc<ReplayBudget> {
        &self.replay_budget
    }

    /// Records that `h2` has passed on the request of this stream.
    pub(super) fn set_accepted(&self, stream: StreamId) {
        self.last_accepted.store(stream.as_u32(), Relaxed);
        if self.has_reset_heads.load(Relaxed) {
            // `h2` has reset the stream because of its body.
            self.reset_heads.lock().retain(|other| *other != stream.as_u32());
        }
    }

    /// Records an RST_STREAM frame to the client. If `h2` does not pass on the stream later, its head was malformed.
    pub(super) fn record_sent_reset(&self, stream: u32, code: u32) {
        if code == u32::from(Reason::PROTOCOL_ERROR) && stream > self.last_accepted.load(Relaxed) {
            self.reset_heads.lock().push(stream);
            self.has_reset_heads.store(true, Relaxed);
        }
    }

    /// Returns how many streams `h2` has reset because of their heads since the last call. Called when `h2` has no further
    /// requests.
    pub(super) fn take_malformed_heads(&self) -> usize {
        if !self.has_reset_heads.swap(false, Relaxed) {
            return 0;
        }
        self.reset_heads.lock().drain(..).count()
    }

    /// Counts an RST_STREAM frame.
    pub(super) fn count_rst_stream(&self) {
        self.rst_stream_frames.fetch_add(1, Relaxed);
    }

    /// Returns `true` if the client has reset enough streams to explain why `h2` closed the connection.
    pub(super) fn is_resetting(&self) -> bool {
        self.rst_stream_frames.load(Relaxed).max(self.resets.load(Relaxed)) >= MAX_RESETS
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Registers the task to wake when there are too many resets, or a long body.
    pub(super) fn register_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.lock();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Records that the client has sent too many frames without content.
    pub(super) fn set_flooded(&self) {
        self.is_flooded.store(true, Relaxed);
    }

    /// Returns the label of the limit that was exceeded, if any.
    pub(super) fn exceeded_limit(&self) -> Option<&'static str> {
        if self.is_flooded.load(Relaxed) {
            Some("h2_flood")
        } else {
            (self.resets.load(Relaxed) > MAX_RESETS).then_some("rapid_reset")
        }
    }

    /// Records that a GOAWAY was sent because of the client's behaviour.
    pub(super) fn set_goaway_sent(&self) {
        self.has_sent_goaway.store(true, Relaxed);
    }

    pub(super) fn is_goaway_sent(&self) -> bool {
        self.has_sent_goaway.load(Relaxed)
    }

    /// Records that the graceful shutdown has reached its deadline.
    pub(super) fn set_finished(&self) {
        self.has_finished.store(true, Relaxed);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.has_finished.load(Relaxed)
    }

    /// Counts received bytes.
    pub(super) fn record_read(&self, count: usize) {
        self.bytes_read.fetch_add(count as u64, Relaxed);
    }

    /// Returns the number of received bytes.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }
}
