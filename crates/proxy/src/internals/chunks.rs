//! Decodes chunked bodies, for the fuzzer.

use bytes::Bytes;
use http::HeaderMap;

use crate::http::http1::{Framing, Malformed, Piece, RemainingBody};

/// A decoded chunked body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedBody {
    /// The data of the chunks.
    pub data: Vec<u8>,
    /// The trailers.
    pub trailers: HeaderMap,
    /// The number of bytes after the body.
    pub rest: usize,
}

/// The chunked body is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedChunks;

/// Decodes a chunked body that arrives in these parts. Returns `None` if the body is incomplete.
///
/// # Errors
/// The body is malformed.
pub fn decode_chunked<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> Result<Option<DecodedBody>, MalformedChunks> {
    let (mut left, mut unread, mut body) = (RemainingBody::new(Framing::Chunked), Bytes::new(), DecodedBody::default());
    let mut parts = parts.into_iter();
    loop {
        match left.take(&mut unread).map_err(|Malformed| MalformedChunks)? {
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
