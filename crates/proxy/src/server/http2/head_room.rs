//! Bounds the memory of long response heads that wait for their client.
//!
//! `h2` keeps the head of a response until the socket takes it. The gateway could read a long head of each stream in the
//! meantime. So it leaves most of a long head with its upstream until the connection has room: at most [`MAX_LONG`] long
//! heads are read at a time, and none while the send queue is full.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::send_queue::SendQueue;

/// How many long heads are read at a time. More than one, because an upstream can be slow in the middle of a head.
const MAX_LONG: usize = 4;

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// The long heads of one connection.
#[derive(Clone, Debug)]
pub(super) struct LongHeads(Arc<Semaphore>);

/// The head of one response.
#[derive(Default)]
pub(super) enum HeadRoom {
    /// The head is short so far, or complete.
    #[default]
    Unneeded,
    /// Other streams read long heads.
    Waiting(Acquire),
    /// This stream may read a long head when the send queue is not full.
    Acquired { _permit: OwnedSemaphorePermit, is_reading: bool },
}

impl Default for LongHeads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LONG)))
    }
}

impl HeadRoom {
    /// Returns `Ready` when the connection has room for the rest of a long head.
    pub(super) fn poll(&mut self, heads: &LongHeads, queue: &SendQueue, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::Unneeded => *self = Self::Waiting(Box::pin(Arc::clone(&heads.0).acquire_owned())),
                Self::Waiting(acquire) => {
                    let Ok(permit) = ready!(acquire.as_mut().poll(cx)) else { return Poll::Ready(()) };
                    *self = Self::Acquired { _permit: permit, is_reading: false };
                }
                Self::Acquired { is_reading: true, .. } => return Poll::Ready(()),
                Self::Acquired { is_reading, .. } => {
                    ready!(queue.poll_ready(cx));
                    *is_reading = true;
                }
            }
        }
    }
}

impl std::fmt::Debug for HeadRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeadRoom").finish_non_exhaustive()
    }
}
