//! Compresses responses of upstreams for routes with `compression` (RFC 9110 section 8.4).
//!
//! A response that is compressed is another representation of the resource: it has no strong `ETag`, no ranges and no
//! digests of the original. A response that could be compressed for another client has `Vary: Accept-Encoding`.

mod body;
mod encoder;

use std::sync::Arc;

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;

use self::body::CompressedBody;
pub(crate) use self::encoder::Encoder;
use crate::http::http1;
use crate::transport::Relay;
use crate::upstream::{RequestBody, ResponseBody};
use tidegate_rules::route::{Coding, Compression};

/// Fields that describe the bytes of the original.
const OF_ORIGINAL: [HeaderName; 6] = [
    CONTENT_LENGTH,
    ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// How to compress the response to a request.
#[derive(Debug)]
pub(super) struct ResponseCompression {
    compression: Arc<Compression>,
    /// The coding that the client accepts.
    coding: Option<Coding>,
    is_head: bool,
    /// The versions that the client has.
    if_none_match: Option<HeaderValue>,
}

impl ResponseCompression {
    /// Reads what the client accepts. A client of HTTP/1.0 gets no compressed responses, whose length is unknown.
    pub(super) fn new(compression: Arc<Compression>, request: &Request<RequestBody>) -> Box<Self> {
        let fields = request.headers();
        let coding = compression.coding_for(fields).filter(|_| request.version() != Version::HTTP_10);
        let (is_head, if_none_match) = (request.method() == Method::HEAD, fields.get(IF_NONE_MATCH).cloned());
        Box::new(Self { compression, coding, is_head, if_none_match })
    }

    /// Compresses a response, if the rules and the client allow it.
    pub(super) fn apply(&self, response: &mut Response<ResponseBody>) {
        if response.status() == StatusCode::NOT_MODIFIED {
            return self.match_version_of_client(response.headers_mut());
        }
        if !self.can_compress(response) {
            return;
        }
        add_vary(response.headers_mut());
        let Some(coding) = self.coding else { return };
        if !self.is_head {
            let Some(encoder) = Encoder::new(coding) else { return };
            response.body_mut().wrap(|body| CompressedBody::new(body, encoder));
            response.extensions_mut().remove::<Relay>(); // the bytes are needed in memory
        }
        let headers = response.headers_mut();
        for name in OF_ORIGINAL {
            headers.remove(name);
        }
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        if let Some(weak) = headers.get(ETAG).and_then(weakened) {
            headers.insert(ETAG, weak);
        }
    }

    /// Returns `true` if the response is compressed for clients that accept it. The response to HEAD has the fields of the
    /// response to GET.
    fn can_compress(&self, response: &Response<ResponseBody>) -> bool {
        let (status, headers, body) = (response.status(), response.headers(), response.body());
        let has_whole_body = !status.is_informational()
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT);
        if !has_whole_body || headers.contains_key(CONTENT_ENCODING) || headers.contains_key(CONTENT_RANGE) {
            return false;
        }
        let length = match self.is_head {
            true => None,
            false if body.is_end_stream() => Some(0),
            false => body.size_hint().exact(),
        };
        let length = length.or_else(|| http1::length(headers).ok().flatten());
        self.compression.has_type(headers)
            && length.is_none_or(|length| length > 0 && length >= self.compression.min_size)
    }

    /// Weakens the `ETag` of a 304 if the client has the compressed version. Otherwise, a cache would not recognize it.
    fn match_version_of_client(&self, headers: &mut HeaderMap) {
        let (Some(known), Some(weak)) = (&self.if_none_match, headers.get(ETAG).and_then(weakened)) else { return };
        let mut versions = known.as_bytes().split(|byte| *byte == b',');
        if versions.any(|version| version.trim_ascii() == weak.as_bytes()) {
            headers.insert(ETAG, weak);
            add_vary(headers);
        }
    }
}

/// Returns the weak form of a strong `ETag`.
fn weakened(tag: &HeaderValue) -> Option<HeaderValue> {
    if tag.as_bytes().first() != Some(&b'"') {
        return None;
    }
    HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()
}

/// Adds `Vary: Accept-Encoding`, unless the response has it.
fn add_vary(headers: &mut HeaderMap) {
    let values = headers.get_all(VARY).iter().map(HeaderValue::as_bytes);
    let mut names = values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    if !names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding")) {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}
