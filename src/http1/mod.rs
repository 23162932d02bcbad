//! HTTP/1.1 as it is written on a connection (RFC 9112): heads, the framing of bodies, chunks.
//!
//! Bytes in, types of `http` out, and back. Nothing here waits, and nothing knows whose connection it is.
//!
//! The rule for everything that can be read in two ways: it is not read at all.

mod chunked;
mod framing;
mod head;
mod outgoing;

pub(crate) use self::chunked::{Chunked, Piece};
pub(crate) use self::framing::{Framing, length};
pub(crate) use self::head::{Answer, read_answer, write_request};
pub(crate) use self::outgoing::Outgoing;

/// Most fields of a message, and of its trailers.
pub(crate) const MAX_FIELDS: usize = 100;

/// These bytes are no HTTP, or could be taken for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub(crate) struct Malformed;
