//! One look over the names of a message's fields.
//!
//! Most of what a proxy has to remove or to join is not there, and asking for every name by itself costs several times
//! as much as looking at all once.

use http::HeaderMap;

/// Which of the fields that concern a proxy a message has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u16);

/// Fields that are treated alike.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(crate) enum Field {
    /// Of no concern, and in most messages.
    Everyday = 0,
    Connection = 1,
    Te = 1 << 1,
    TransferEncoding = 1 << 2,
    /// The others that are for one connection only.
    Hop = 1 << 3,
    ContentLength = 1 << 4,
    Cookie = 1 << 5,
    Expect = 1 << 6,
    ForwardedFor = 1 << 7,
    ForwardedHost = 1 << 8,
    ForwardedProto = 1 << 9,
    /// What is removed from requests of peers that are not trusted.
    Stripped = 1 << 10,
    /// A name that some take for another.
    Odd = 1 << 11,
    Trailer = 1 << 12,
    Via = 1 << 13,
    /// No field, but what `TE` said before it was removed.
    TakesTrailers = 1 << 14,
    /// No field: there may be trailers.
    MayTrail = 1 << 15,
}

impl Seen {
    /// Looks at every name once.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::of_each(headers, Field::of)
    }

    /// Looks at every name once, and sees in it what `field` says.
    #[inline]
    pub(crate) fn of_each(headers: &HeaderMap, field: impl Fn(&str) -> Option<Field>) -> Self {
        let bits = headers.keys().filter_map(|name| field(name.as_str())).map(|field| field as u16);
        Self(bits.fold(0, |seen, bit| seen | bit))
    }

    /// Is there a field of this kind?
    pub(crate) fn has(self, field: Field) -> bool {
        self.0 & field as u16 != 0
    }

    /// Notes one more.
    pub(crate) fn add(&mut self, field: Field) {
        self.0 |= field as u16;
    }

    /// Forgets a field that is about to be removed; returns whether it is there.
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
