//! The HTTP/1.1 codec (RFC 9112): heads, the framing of bodies, chunks.
//!
//! Converts bytes to types of the crate `http`, and back. The [server](mod@crate::server) and the
//! [upstreams](mod@crate::upstream) share it. Ambiguous messages are rejected.

mod chunked;
mod date;
mod framing;
mod head;
mod remaining_body;
mod response_head;
mod write;
mod write_buffer;

pub(crate) use self::chunked::Piece;
pub(crate) use self::date::date_value;
pub(crate) use self::framing::{Framing, length};
pub(crate) use self::head::{BadHead, ParsedRequest, read_request};
pub(crate) use self::remaining_body::{Readable, RemainingBody, poll_head_bytes};
pub(crate) use self::response_head::{BadResponse, ParsedResponse, StatusLine, read_response};
pub(crate) use self::write::{ResponseContext, write_informational, write_request, write_response};
pub(crate) use self::write_buffer::{BodySink, WriteBuffer};

/// The default limit of the fields of a message, and the limit of its trailers.
pub(crate) const MAX_FIELDS: usize = 100;

/// The largest number of fields that a rule file can allow.
const MAX_CONFIGURABLE_FIELDS: usize = 1000;

/// The message is invalid or ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub(crate) struct Malformed;
