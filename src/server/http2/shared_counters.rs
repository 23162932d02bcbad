//! What the tasks of a connection and its streams tell each other: resets and frames that request nothing, of which there may be
//! too many, and bodies that are long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};

use parking_lot::Mutex;

use super::send_queue::SendQueue;
use crate::http2::MalformedStreams;

/// The most streams that may have been opened and reset, beyond those that were answered. Each answer makes up for a
/// reset: a client that resets every other request goes on for ever, one that resets them all ends here.
pub(super) const MAX_RESETS: u32 = 100;

/// The counts of one connection.
#[derive(Debug, Default)]
pub(super) struct SharedCounters {
    /// Streams that were reset, less those that were answered.
    resets: AtomicU32,
    /// Frames that reset a stream, whatever had become of it.
    rst_stream_frames: AtomicU32,
    /// Frames that ask for nothing have come in excess.
    is_flooded: AtomicBool,
    /// The client was told to go away.
    has_sent_goaway: AtomicBool,
    /// The graceful shutdown has reached its deadline: no further stream is served.
    has_finished: AtomicBool,
    /// The client has acknowledged the PING of the graceful shutdown.
    is_acknowledged: AtomicBool,
    pub(super) malformed: MalformedStreams,
    /// Bytes that have come.
    bytes_read: AtomicU64,
    /// The body of a stream has turned out to be long.
    has_long_bodies: AtomicBool,
    /// Request bodies that are not read to their end.
    uploads: AtomicU32,
    /// Frames that `h2` was given and has not written.
    queue: Arc<SendQueue>,
    /// Who serves the connection.
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
    /// A stream got its whole answer.
    pub(super) fn count_response(&self) {
        // Another stream's task may count at the same moment, and is as right.
        self.resets.store(self.resets.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// A stream was reset before it had its answer: by the client, or for what the client sent on it.
    pub(super) fn count_reset(&self) {
        if self.resets.fetch_add(1, Relaxed) == MAX_RESETS {
            self.wake();
        }
    }

    /// The body of a stream is long.
    pub(super) fn set_has_long_bodies(&self) {
        if !self.has_long_bodies.swap(true, Relaxed) {
            self.wake();
        }
    }

    /// Returns `true` if a body has turned out to be long.
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

    /// Returns the frames that `h2` was given and has not written.
    pub(super) fn queue(&self) -> &Arc<SendQueue> {
        &self.queue
    }

    /// A frame came that resets a stream.
    pub(super) fn count_rst_stream(&self) {
        self.rst_stream_frames.fetch_add(1, Relaxed);
    }

    /// Whether the client resets streams in such numbers that they explain why `h2` ended the connection.
    pub(super) fn is_resetting(&self) -> bool {
        self.rst_stream_frames.load(Relaxed).max(self.resets.load(Relaxed)) >= MAX_RESETS
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Wakes this task when there are too many resets, or a long body.
    pub(super) fn register_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.lock();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Frames that ask for nothing have come in excess.
    pub(super) fn set_flooded(&self) {
        self.is_flooded.store(true, Relaxed);
    }

    /// Which bound was exceeded.
    pub(super) fn excess(&self) -> Option<&'static str> {
        if self.is_flooded.load(Relaxed) {
            Some("h2_flood")
        } else {
            (self.resets.load(Relaxed) > MAX_RESETS).then_some("rapid_reset")
        }
    }

    /// The client is told to go away.
    pub(super) fn set_goaway_sent(&self) {
        self.has_sent_goaway.store(true, Relaxed);
    }

    pub(super) fn is_goaway_sent(&self) -> bool {
        self.has_sent_goaway.load(Relaxed)
    }

    /// The graceful shutdown has reached its deadline.
    pub(super) fn set_finished(&self) {
        self.has_finished.store(true, Relaxed);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.has_finished.load(Relaxed)
    }

    /// The PING of the graceful shutdown is acknowledged, by the client or in its place.
    pub(super) fn set_acknowledged(&self) {
        self.is_acknowledged.store(true, Relaxed);
    }

    /// Whether `h2` has to read an acknowledgement that the client has not sent.
    pub(super) fn lacks_ack(&self) -> bool {
        self.is_finished() && !self.is_acknowledged.load(Relaxed)
    }

    /// Bytes came.
    pub(super) fn record_read(&self, count: usize) {
        self.bytes_read.fetch_add(count as u64, Relaxed);
    }

    /// How many have come.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }
}
