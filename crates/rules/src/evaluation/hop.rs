//! Requests that end at this proxy: `Max-Forwards: 0` (RFC 9110 section 7.6.2), and methods that it does not forward.

use http::header::MAX_FORWARDS;
use http::{HeaderMap, Method};

/// The answer to a request that is not forwarded, although its limits have granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastHop {
    /// 204: `OPTIONS` with `Max-Forwards: 0`.
    Options,
    /// 200: `TRACE` with `Max-Forwards: 0` is echoed.
    Trace,
    /// 501: `TRACE`, since the response of an origin server would reveal fields that proxies have added, and `CONNECT`,
    /// since a tunnel would bypass all rules.
    NotForwarded,
}

/// Returns the answer to a request that ends at this proxy. Returns `None` for other requests.
pub fn last_hop(method: &Method, fields: &HeaderMap) -> Option<LastHop> {
    let is_last = || max_forwards(fields) == Some(0);
    match *method {
        Method::CONNECT => Some(LastHop::NotForwarded),
        Method::TRACE => Some(if is_last() { LastHop::Trace } else { LastHop::NotForwarded }),
        Method::OPTIONS => is_last().then_some(LastHop::Options),
        _ => None,
    }
}

/// Returns the number of proxies that may forward the request. Returns `None` if the field is missing or not valid.
pub fn max_forwards(fields: &HeaderMap) -> Option<u64> {
    let digits = fields.get(MAX_FORWARDS)?.to_str().ok()?;
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

impl LastHop {
    /// Returns the HTTP status of the response, as each variant documents it.
    pub fn status(self) -> u16 {
        match self {
            Self::Options => 204,
            Self::Trace => 200,
            Self::NotForwarded => 501,
        }
    }
}
