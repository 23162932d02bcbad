//! Bounds the memory of responses that a client does not read from its socket.
//!
//! A client can open all windows and never read its socket. `h2` then keeps every frame that it was given. A
//! [`SendQueue`] counts these frames for one connection. While it is full, streams read no more of their bodies and
//! the connection accepts no requests.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

/// A queue of this many bytes is full.
pub(super) const FULL: usize = 96 * 1024;
/// A full queue accepts more once it has drained to this many bytes. A single stream never fills a queue: `h2` buffers
/// at most [`MAX_SEND_BUFFER`](super::MAX_SEND_BUFFER) bytes of a stream.
const DRAINED: usize = 48 * 1024;

/// The memory that a frame and a header field need in addition to their bytes.
const FRAME_OVERHEAD: usize = 256;
const FIELD_OVERHEAD: usize = 128;

/// Counts the bytes of a connection that `h2` was given and has not written to the socket.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// Bytes of all frames, with their overhead.
    queued: AtomicUsize,
    /// Bytes of HEADERS frames among them.
    heads: AtomicUsize,
    /// Bytes of bodies that were written so far.
    written: AtomicU64,
    /// The socket took no more bytes when `h2` last tried to write.
    is_blocked: AtomicBool,
    is_full: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

/// The payload of a DATA frame, which is counted until `h2` drops it.
#[derive(Debug)]
pub(super) struct QueuedData {
    data: Bytes,
    size: usize,
    queue: Arc<SendQueue>,
}

impl SendQueue {
    /// Counts the payload of a DATA frame.
    pub(super) fn add_data(self: &Arc<Self>, data: Bytes) -> QueuedData {
        let size = data.len() + FRAME_OVERHEAD;
        self.add(size);
        QueuedData { data, size, queue: Arc::clone(self) }
    }

    /// Counts a HEADERS frame. `h2` does not report when it drops one, so these frames count until
    /// [`remove_heads`](Self::remove_heads).
    pub(super) fn add_head(&self, fields: &HeaderMap) {
        let size = size_of_fields(fields);
        self.heads.fetch_add(size, SeqCst);
        self.add(size);
    }

    /// Returns the bytes of all queued frames.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queued.load(SeqCst)
    }

    /// Returns the bytes of queued HEADERS frames.
    pub(super) fn heads(&self) -> usize {
        self.heads.load(SeqCst)
    }

    /// Removes HEADERS frames of `size` bytes, which were queued before `h2` last wrote. Keeps them if the socket was
    /// blocked before the end of the queue.
    pub(super) fn remove_heads(&self, size: usize) {
        if size > 0 && !self.is_blocked.load(Relaxed) {
            self.heads.fetch_sub(size, SeqCst);
            self.remove(size);
        }
    }

    /// Records whether the socket took what `h2` tried to write.
    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Relaxed);
    }

    /// Returns the bytes of bodies that were written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Returns `true` while the queue is full.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(SeqCst)
    }

    /// Returns `Ready` while the queue is not full.
    pub(super) fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_full() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.lock();
        // The queue can reopen before the lock is taken, but not between this check and the registration.
        if !self.is_full() {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn add(&self, size: usize) {
        if self.queued.fetch_add(size, SeqCst) + size >= FULL {
            self.is_full.store(true, SeqCst);
            // Another thread may have drained the queue before it was marked as full.
            if self.queued.load(SeqCst) <= DRAINED {
                self.reopen();
            }
        }
    }

    fn remove(&self, size: usize) {
        let remaining = self.queued.fetch_sub(size, SeqCst) - size;
        if remaining <= DRAINED && self.is_full.load(SeqCst) {
            self.reopen();
        }
    }

    fn reopen(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.is_full.store(false, SeqCst);
            take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Returns the memory of a HEADERS frame with these fields, in bytes.
pub(super) fn size_of_fields(fields: &HeaderMap) -> usize {
    let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + FIELD_OVERHEAD;
    fields.iter().map(field).sum::<usize>() + FRAME_OVERHEAD
}

impl Buf for QueuedData {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
        self.queue.written.fetch_add(count as u64, Relaxed);
    }
}

impl Drop for QueuedData {
    fn drop(&mut self) {
        self.queue.remove(self.size);
    }
}
