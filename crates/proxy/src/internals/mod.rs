//! Internals for benchmarks, tests and the fuzzer. The crate `tidegate` re-exports them.

mod chunks;
mod compression;
mod pipeline;

use std::net::SocketAddr;

pub use self::chunks::{DecodedBody, MalformedChunks, decode_chunked};
pub use self::compression::ResponseEncoder;
pub use self::pipeline::{Pipeline, PipelineOutcome};
use crate::server::proxy_protocol::header;

/// Parses a PROXY protocol header. Returns `None` if the bytes are not a header, `Some(Ok(n))` if `n` more bytes are
/// needed, and `Some(Err(client))` for a complete header, with the client if it names one.
pub fn parse_proxy_header(bytes: &[u8]) -> Option<Result<usize, Option<SocketAddr>>> {
    Some(match header::parse(bytes).ok()? {
        header::Parsed::More(more) => Ok(more),
        header::Parsed::Complete(header::ProxySource::Client(client)) => Err(Some(client.address)),
        header::Parsed::Complete(header::ProxySource::Proxy) => Err(None),
    })
}
