//! Finds malformed trailers of HTTP/2, which the crate `h2` accepts, for clients and upstreams.

mod hpack;
mod trailers;

pub(crate) use self::trailers::{MalformedStreams, Trailers};
