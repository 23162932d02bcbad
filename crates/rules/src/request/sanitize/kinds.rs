//! Classifies the header fields of a message in one pass over their names.
//!
//! Most fields that a proxy must remove or join (`Cookie`) are absent. One pass is cheaper than a lookup for each.

use http::HeaderMap;

/// A set of the kinds of fields in a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldKinds(u16);

/// A group of fields that the gateway treats in the same way.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub enum FieldKind {
    /// A common field that needs no check. The set does not record it.
    Common = 0,
    /// `Connection`.
    Connection = 1,
    /// `TE`.
    Te = 1 << 1,
    /// `Transfer-Encoding`.
    TransferEncoding = 1 << 2,
    /// The other hop-by-hop fields.
    OtherHopByHop = 1 << 3,
    /// `Content-Length`.
    ContentLength = 1 << 4,
    /// `Cookie`.
    Cookie = 1 << 5,
    /// `Expect`.
    Expect = 1 << 6,
    /// `X-Forwarded-For`.
    ForwardedFor = 1 << 7,
    /// `X-Forwarded-Host`.
    ForwardedHost = 1 << 8,
    /// `X-Forwarded-Proto`.
    ForwardedProto = 1 << 9,
    /// A field that is removed because the peer is not trusted.
    Stripped = 1 << 10,
    /// An unlisted name with other characters than letters, digits and hyphens, which some origins confuse with another.
    UnusualName = 1 << 11,
    /// `Trailer`.
    Trailer = 1 << 12,
    /// `Via`.
    Via = 1 << 13,
    /// Not a field: the message had `TE: trailers`, which has been removed.
    AcceptsTrailers = 1 << 14,
    /// Not a field: trailers may follow the body.
    MayHaveTrailers = 1 << 15,
}

impl FieldKinds {
    /// Classifies every field name.
    pub fn classify(headers: &HeaderMap) -> Self {
        Self::classify_with(headers, FieldKind::from_name)
    }

    /// Classifies every field name with `classify`.
    #[inline]
    pub fn classify_with(headers: &HeaderMap, classify: impl Fn(&str) -> Option<FieldKind>) -> Self {
        let bits = headers.keys().filter_map(|name| classify(name.as_str())).map(|field| field as u16);
        Self(bits.fold(0, |kinds, bit| kinds | bit))
    }

    /// Returns `true` if the message has a field of this kind.
    pub fn has(self, field: FieldKind) -> bool {
        self.0 & field as u16 != 0
    }

    /// Adds a kind.
    pub fn add(&mut self, field: FieldKind) {
        self.0 |= field as u16;
    }

    /// Removes a kind. Returns `true` if the set had it.
    pub fn take(&mut self, field: FieldKind) -> bool {
        let had = self.has(field);
        self.0 &= !(field as u16);
        had
    }
}

impl FieldKind {
    /// Returns the kind of a field by its name in lower case. Returns `None` for names without a kind.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "host" | "user-agent" | "accept" | "accept-encoding" | "accept-language" | "content-type" => Self::Common,
            "connection" => Self::Connection,
            "te" => Self::Te,
            "transfer-encoding" => Self::TransferEncoding,
            "keep-alive" | "proxy-connection" | "upgrade" | "http2-settings" => Self::OtherHopByHop,
            "content-length" => Self::ContentLength,
            "cookie" => Self::Cookie,
            "expect" => Self::Expect,
            "x-forwarded-for" => Self::ForwardedFor,
            "x-forwarded-host" => Self::ForwardedHost,
            "x-forwarded-proto" => Self::ForwardedProto,
            "trailer" => Self::Trailer,
            "via" => Self::Via,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn classify_finds_exactly_the_present_kinds() {
        let mut headers = HeaderMap::new();
        for name in ["accept", "te", "upgrade", "via", "x-forwarded-for"] {
            headers.append(name, HeaderValue::from_static("x"));
        }
        let kinds = FieldKinds::classify(&headers);
        assert!(
            [FieldKind::Te, FieldKind::OtherHopByHop, FieldKind::Via, FieldKind::ForwardedFor]
                .into_iter()
                .all(|kind| kinds.has(kind))
        );
        assert!(![FieldKind::Connection, FieldKind::Cookie, FieldKind::Expect].into_iter().any(|kind| kinds.has(kind)));
    }
}
