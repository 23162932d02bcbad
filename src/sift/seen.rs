//! The kinds of fields that a message has, found in one pass over their names.
//!
//! Most fields that a proxy has to remove or join are absent. One pass costs a fraction of a lookup for each name.

use http::HeaderMap;

/// A set of the kinds of fields in a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u16);

/// A kind: fields that are treated alike.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(crate) enum Field {
    /// Common, and of no concern to a proxy.
    Everyday = 0,
    Connection = 1,
    Te = 1 << 1,
    TransferEncoding = 1 << 2,
    /// The other hop-by-hop fields.
    Hop = 1 << 3,
    ContentLength = 1 << 4,
    Cookie = 1 << 5,
    Expect = 1 << 6,
    ForwardedFor = 1 << 7,
    ForwardedHost = 1 << 8,
    ForwardedProto = 1 << 9,
    /// Fields that are removed unless the peer is trusted.
    Stripped = 1 << 10,
    /// A name that some origins confuse with another.
    Odd = 1 << 11,
    Trailer = 1 << 12,
    Via = 1 << 13,
    /// Not a field: `TE: trailers` was there and is removed.
    TakesTrailers = 1 << 14,
    /// Not a field: there may be trailers.
    MayTrail = 1 << 15,
}

impl Seen {
    /// Classifies every name, in one pass.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::of_each(headers, Field::of)
    }

    /// Classifies every name by `field`, in one pass.
    #[inline]
    pub(crate) fn of_each(headers: &HeaderMap, field: impl Fn(&str) -> Option<Field>) -> Self {
        let bits = headers.keys().filter_map(|name| field(name.as_str())).map(|field| field as u16);
        Self(bits.fold(0, |seen, bit| seen | bit))
    }

    /// Is a field of this kind there?
    pub(crate) fn has(self, field: Field) -> bool {
        self.0 & field as u16 != 0
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, field: Field) {
        self.0 |= field as u16;
    }

    /// Removes a kind; returns whether it was there.
    pub(crate) fn take(&mut self, field: Field) -> bool {
        let had = self.has(field);
        self.0 &= !(field as u16);
        had
    }
}

impl Field {
    #[inline]
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "host" | "user-agent" | "accept" | "accept-encoding" | "accept-language" | "content-type" => Self::Everyday,
            "connection" => Self::Connection,
            "te" => Self::Te,
            "transfer-encoding" => Self::TransferEncoding,
            "keep-alive" | "proxy-connection" | "upgrade" | "http2-settings" => Self::Hop,
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
    fn what_is_there_is_seen_and_nothing_else() {
        let mut headers = HeaderMap::new();
        for name in ["accept", "te", "upgrade", "via", "x-forwarded-for"] {
            headers.append(name, HeaderValue::from_static("x"));
        }
        let seen = Seen::of(&headers);
        assert!([Field::Te, Field::Hop, Field::Via, Field::ForwardedFor].into_iter().all(|one| seen.has(one)));
        assert!(![Field::Connection, Field::Cookie, Field::Expect].into_iter().any(|one| seen.has(one)));
    }
}
