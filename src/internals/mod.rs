//! What benchmarks measure and the fuzzer drives beneath the public names. It is no API: what is here changes and vanishes without notice.

mod passage;

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::Full;

use crate::admission::LimitStatus;
pub use crate::facts::{Facts, Requests};
use crate::headers::Members;
use crate::http1::{Framing, Malformed, Piece, RemainingBody};
pub use crate::internals::passage::{Passage, Passed};
use crate::limit::{Charge, Decision};
use crate::local_response::LocalResponse;
use crate::path::EncodedSlash;
use crate::rule::Limit;
use crate::server::proxy_protocol::header;
use crate::store::settings::KeySecret;

/// Writes the keys of a charge's bucket in Redis, one after the other, into `key`; returns their length together, in bytes.
pub fn redis_keys(charge: &Charge, secret: &KeySecret, key: &mut String) -> usize {
    let mut length = 0;
    crate::store::redis_keys(charge, secret, key, |key| length += key.len());
    length
}

/// What `RateLimit` is made of: the limits of a route, as they are prepared at load, and what each of them said.
#[derive(Debug)]
pub struct RateLimitField {
    members: Members,
    status: LimitStatus,
}

impl RateLimitField {
    /// Of these limits, with what each said.
    pub fn new(limits: &[Limit], said: &[Decision]) -> Self {
        Self { members: Members::new(limits), status: said.iter().copied().enumerate().collect() }
    }

    /// The field; none if no limit is told of.
    pub fn write(&self) -> Option<HeaderValue> {
        self.members.rate_limit(&self.status)
    }
}

/// The answer to a request that the limits of these names refused for so many seconds.
pub fn limited(names: &[&str], seconds: u64) -> Response<Full<Bytes>> {
    let violated = names.iter().copied().collect();
    LocalResponse::Limited { violated, retry_after: Some(seconds) }.into_response()
}

/// The keys of a charge's bucket in Redis.
pub fn each_redis_key(charge: &Charge, secret: &KeySecret, mut each: impl FnMut(&str)) {
    crate::store::redis_keys(charge, secret, &mut String::new(), |key| each(key));
}

/// What some bytes are as the beginning of a connection of the PROXY protocol: how many more are the header's; or, of a whole
/// one, the client that it tells of, if any; nothing if they are no header.
pub fn proxy_header(bytes: &[u8]) -> Option<Result<usize, Option<SocketAddr>>> {
    Some(match header::parse(bytes).ok()? {
        header::Parsed::More(more) => Ok(more),
        header::Parsed::Complete(header::ProxySource::Client(client)) => Err(Some(client)),
        header::Parsed::Complete(header::ProxySource::Proxy) => Err(None),
    })
}

/// The normal form of a path; nothing if it has none.
pub fn normal_path(path: &str) -> Option<String> {
    let normal = crate::path::normalize(path, EncodedSlash::Reject).ok()?;
    Some(normal.normalized().to_owned())
}

/// A body in chunks that was read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unchunked {
    /// What was in the chunks.
    pub data: Vec<u8>,
    /// The fields behind them.
    pub trailers: HeaderMap,
    /// How many bytes came behind it.
    pub rest: usize,
}

/// These bytes are no body in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBody;

/// Reads a body in chunks that comes in these parts; nothing if it has no end.
///
/// # Errors
/// It is no such body.
pub fn unchunk<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> Result<Option<Unchunked>, NoBody> {
    let (mut left, mut unread, mut body) = (RemainingBody::new(Framing::Chunked), Bytes::new(), Unchunked::default());
    let mut parts = parts.into_iter();
    loop {
        match left.take(&mut unread).map_err(|Malformed| NoBody)? {
            Piece::Data(data) => body.data.extend_from_slice(&data),
            Piece::End(trailers) => {
                body.trailers = trailers.unwrap_or_default();
                body.rest = unread.len() + parts.map(<[u8]>::len).sum::<usize>();
                return Ok(Some(body));
            }
            Piece::NeedInput => match parts.next() {
                Some(part) => unread = Bytes::copy_from_slice(part),
                None => return Ok(None),
            },
        }
    }
}
