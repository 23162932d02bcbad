//! The HTTP/1.1 codec (RFC 9112): heads, the framing of bodies, chunks.
//!
//! It turns bytes into types of `http`, and back. The [server](mod@crate::server) and the [upstreams](mod@crate::upstream)
//! share it.
//!
//! Whatever is ambiguous is refused.

mod chunked;
mod date;
mod framing;
mod head;
mod incoming;
mod outgoing;
mod write;

pub(crate) use self::chunked::Piece;
pub(crate) use self::date::date_value;
pub(crate) use self::framing::{Framing, length};
pub(crate) use self::head::{BadHead, ParsedRequest, ParsedResponse, StatusLine, read_answer, read_request};
pub(crate) use self::incoming::{Left, Readable, poll_head_bytes};
pub(crate) use self::outgoing::Outgoing;
pub(crate) use self::write::{Terms, write_answer, write_information, write_request};

/// Most fields of a message, and of its trailers.
pub(crate) const MAX_FIELDS: usize = 100;

/// Most fields of a request where the rule file allows more.
const MOST_FIELDS: usize = 1000;

/// The bytes are not valid HTTP, or ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub(crate) struct Malformed;
