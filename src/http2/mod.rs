//! Finds malformed HTTP/2 trailers, which the crate `h2` accepts, in requests and responses.

mod hpack;
mod trailer_scanner;

pub(crate) use self::trailer_scanner::{MalformedStreams, TrailerScanner};
