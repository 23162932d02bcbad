//! Limits on the size of a request head.

use http::{HeaderMap, Method, Uri};

/// The longest method. Registered methods are less than half as long; longer ones would burden metrics, logs and
/// upstreams.
pub const MAX_METHOD: usize = 32;

/// The limits of a listener on the size of request heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// The maximum number of header fields.
    pub fields: usize,
    /// The maximum number of bytes of header fields, as written in HTTP/1.
    pub field_bytes: usize,
    /// The maximum number of bytes of a target.
    pub target: usize,
}

/// The part of a head that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeHead {
    /// 501: the method.
    Method,
    /// 414: the target.
    Target,
    /// 431: the header fields.
    Fields,
}

impl HeadLimits {
    /// Returns the first part of a head that is too large, or `None` if all parts are within the limits.
    pub fn check(&self, method: &Method, uri: &Uri, fields: &HeaderMap) -> Option<LargeHead> {
        if fields.len() > self.fields {
            return Some(LargeHead::Fields); // first, as the codec of HTTP/1 stops there
        }
        if method.as_str().len() > MAX_METHOD {
            return Some(LargeHead::Method);
        }
        let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
        if authority + uri.path_and_query().map_or(0, |path| path.as_str().len()) > self.target {
            return Some(LargeHead::Target);
        }
        // The separator `: ` and the end of the line.
        let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        (bytes > self.field_bytes).then_some(LargeHead::Fields)
    }
}
