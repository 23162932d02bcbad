//! Reads the body of a request before the request is forwarded.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

/// Reads a body. A body that was read is still forwarded. The gateway implements it for its own bodies.
pub trait PeekBody: fmt::Debug + Send + Sync {
    /// Reads the whole body, of at most `max` bytes.
    fn read(&self, max: usize) -> PeekFuture<'_>;

    /// Replaces the whole body, which was read.
    fn replace(&self, body: Bytes);
}

/// The future of [`PeekBody::read`].
pub type PeekFuture<'p> = Pin<Box<dyn Future<Output = Result<Bytes, PeekError>> + Send + 'p>>;

/// A body that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeekError {
    /// It has more bytes than can be read.
    #[error("the body is too long")]
    TooLong,
    /// The client sends it too slowly.
    #[error("the body arrived too slowly")]
    TimedOut,
    /// It is malformed or incomplete.
    #[error("the body is incomplete")]
    Incomplete,
}

/// Returns the reader of a body, if the type of the body has one.
pub type PeekFunction = fn(&mut dyn Any) -> Option<Arc<dyn PeekBody>>;
