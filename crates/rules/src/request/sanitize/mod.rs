//! Removes unsafe header fields from a request before the rules read it, and rejects requests with ambiguous fields.
//!
//! Rules, handlers and origins must see the same fields. Three kinds of fields are removed:
//! * hop-by-hop fields, including the fields that `Connection` names;
//! * fields that origins trust, such as `X-Forwarded-For`, unless the peer is a trusted proxy;
//! * fields whose names some origins confuse with other names, such as `X_Real_IP`.

pub mod hop_by_hop;
mod kinds;
mod loops;
pub mod name;
mod strip;
pub mod trailers;

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

pub use self::kinds::{FieldKind, FieldKinds};
pub use self::strip::{BadPattern, Pattern, Strip};
use tidegate_limit::text::words::words;

/// The largest number of `Connection` options that are read. A request has at most this many fields by default.
const MAX_OPTIONS: usize = 100;

/// Checks and filters the header fields of requests. Built once for each set of rules.
#[derive(Clone, Debug, Default)]
pub struct FieldFilter {
    /// The fields that the rules read.
    used: HashSet<HeaderName>,
    strip: Strip,
    underscores: Underscores,
    /// The fields that the rules read and that [`apply`](Self::apply) removes if the peer is untrusted.
    untrusted: Vec<HeaderName>,
}

words! {
    /// How to handle fields whose names have a character other than letters, digits and hyphens.
    pub enum Underscores, default Drop {
        /// The fields are removed.
        Drop = "drop",
        /// The request is rejected with 400.
        Reject = "reject",
        // A field is still removed if its name resembles a field that the rules read, that frames, routes or authorises
        // the message, or that is removed itself.
        /// The fields are kept.
        Keep = "keep",
    }
}

/// The fields of a request that its rules may read.
#[derive(Debug)]
pub struct Screened {
    /// A copy without the fields that the rules must not trust. `None` if the request has no such field.
    pub copy: Option<Box<HeaderMap>>,
    /// The ambiguity in the fields, if there is one.
    pub fault: Option<BadField>,
}

/// The version, the peer and the next hop of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    /// The version of HTTP of the message.
    pub version: Version,
    /// Whether the peer is a trusted proxy.
    pub trusted: bool,
    /// The kind of the recipient.
    pub next: NextHop,
}

/// The next recipient of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextHop {
    /// An origin, on another connection.
    Origin,
    /// A handler in this process. It gets the hop-by-hop fields, since it may upgrade the connection.
    #[default]
    Handler,
}

/// An unsafe or ambiguous header field. The response is a 400, except for [`Loop`](Self::Loop).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadField {
    /// `Connection` names an end-to-end field or a field that the rules read (RFC 9110 section 7.6.1).
    #[error("`connection` names an end-to-end field")]
    Connection,
    /// A field name has an unusual character, and the rules say `underscores: reject`.
    #[error("a field name has a character other than letters, digits and hyphens")]
    Name,
    /// A field value of HTTP/2 starts or ends with whitespace (RFC 9113 section 8.2.1).
    #[error("a field value starts or ends with whitespace")]
    Blank,
    /// The request has passed Tidegate too often, so it loops. The response is a 508 (RFC 5842 section 7.2).
    #[error("the request is in a forwarding loop")]
    Loop,
}

// === impl FieldFilter ===

impl FieldFilter {
    /// Creates a filter for rules that read the `used` fields.
    pub fn new(used: HashSet<HeaderName>, strip: Strip, underscores: Underscores) -> Self {
        let mut filter = Self { used, strip, underscores, untrusted: Vec::new() };
        filter.untrusted = filter.used.iter().filter(|name| filter.is_removed(name, false)).cloned().collect();
        filter
    }

    /// Removes unsafe fields. Returns the kinds of the remaining fields.
    ///
    /// # Errors
    /// The fields are ambiguous: servers interpret them differently.
    pub fn apply(&self, headers: &mut HeaderMap, context: RequestContext) -> Result<FieldKinds, BadField> {
        let mut kinds = self.classify(headers, context.trusted);
        self.check(headers, context, kinds)?;
        if kinds.take(FieldKind::Stripped) | kinds.take(FieldKind::UnusualName) {
            remove(headers, |name| self.is_removed(name, context.trusted));
        }
        if kinds.has(FieldKind::TransferEncoding) || context.version == Version::HTTP_2 {
            kinds.add(FieldKind::MayHaveTrailers);
        }
        if context.next == NextHop::Origin {
            hop_by_hop::remove(headers, &mut kinds);
        }
        Ok(kinds)
    }

    /// Returns the fields that the rules may read. Does not change the request.
    pub fn screen(&self, headers: &HeaderMap, context: RequestContext) -> Screened {
        let hidden = |name: &HeaderName| self.untrusted.contains(name) && self.is_removed(name, context.trusted);
        let copy = headers.keys().any(hidden).then(|| {
            let mut copy = Box::new(headers.clone());
            remove(&mut copy, hidden);
            copy
        });
        Screened { copy, fault: self.check(headers, context, self.classify(headers, context.trusted)).err() }
    }

    /// Rejects fields that servers interpret differently.
    fn check(&self, headers: &HeaderMap, context: RequestContext, kinds: FieldKinds) -> Result<(), BadField> {
        if context.version == Version::HTTP_2 && headers.values().any(has_outer_blank) {
            return Err(BadField::Blank); // HTTP/1 would drop the whitespace
        }
        if kinds.has(FieldKind::UnusualName) && self.underscores == Underscores::Reject {
            return Err(BadField::Name);
        }
        if kinds.has(FieldKind::Connection) {
            self.check_connection(headers)?;
        }
        if kinds.has(FieldKind::Via) && context.next == NextHop::Origin && loops::is_loop(headers) {
            return Err(BadField::Loop);
        }
        Ok(())
    }

    /// Classifies every field name in one pass.
    fn classify(&self, headers: &HeaderMap, trusted: bool) -> FieldKinds {
        FieldKinds::classify_with(headers, |name| match FieldKind::from_name(name) {
            _ if !trusted && self.strip.has(name) => Some(FieldKind::Stripped),
            None if name::has_unusual_chars(name) => Some(FieldKind::UnusualName),
            kind => kind,
        })
    }

    /// Rejects a `Connection` that names a field which the rules read or an end-to-end field.
    fn check_connection(&self, headers: &HeaderMap) -> Result<(), BadField> {
        let options = headers.get_all(header::CONNECTION).iter().flat_map(hop_by_hop::options);
        for (count, option) in options.enumerate() {
            let Ok(name) = HeaderName::from_bytes(option) else { continue };
            if count >= MAX_OPTIONS || hop_by_hop::is_end_to_end(&name) || self.used.contains(&name) {
                return Err(BadField::Connection);
            }
        }
        Ok(())
    }

    /// Returns `true` if a field is removed because of its name.
    fn is_removed(&self, name: &HeaderName, trusted: bool) -> bool {
        let is_stripped = |name: &HeaderName| !trusted && self.strip.has(name.as_str());
        let is_reserved = |name: &HeaderName| {
            hop_by_hop::is_end_to_end(name) || hop_by_hop::is_hop_by_hop(name) || self.used.contains(name)
        };
        let imitates_another =
            || name::canonical_twin(name.as_str()).is_some_and(|twin| is_stripped(&twin) || is_reserved(&twin));
        match name::has_unusual_chars(name.as_str()) {
            true if self.underscores == Underscores::Keep => !self.used.contains(name) && imitates_another(),
            true => true,
            false => is_stripped(name),
        }
    }

    /// Returns `true` if a request trailer is removed. Every peer counts as untrusted: no proxy puts forwarding fields
    /// into trailers, and an origin may merge trailers into the header fields.
    pub fn is_forbidden_trailer(&self, name: &HeaderName) -> bool {
        trailers::is_forbidden(name) || self.used.contains(name) || self.is_removed(name, false)
    }

    /// Removes forbidden trailers.
    ///
    /// # Errors
    /// The trailers are ambiguous.
    pub fn apply_to_trailers(&self, trailers: &mut HeaderMap) -> Result<(), BadField> {
        if trailers.values().any(has_outer_blank) {
            return Err(BadField::Blank);
        }
        remove(trailers, |name| self.is_forbidden_trailer(name));
        Ok(())
    }
}

impl BadField {
    /// Returns the label in metrics.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Connection => "connection_option",
            Self::Name => "field_name",
            Self::Blank => "malformed",
            Self::Loop => "circle",
        }
    }
}

/// Removes the fields whose names match `is_removed`.
pub fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn has_outer_blank(value: &HeaderValue) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_blank(value.as_bytes().first()) || is_blank(value.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn filter() -> FieldFilter {
        FieldFilter { used: [HeaderName::from_static("x-key")].into(), ..FieldFilter::default() }
    }

    fn context(next: NextHop) -> RequestContext {
        RequestContext { version: Version::HTTP_11, trusted: false, next }
    }

    fn remaining(next: NextHop, fields: &[(&'static str, &'static str)]) -> Result<Vec<String>, BadField> {
        let mut headers = headers(fields);
        filter().apply(&mut headers, context(next))?;
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn fields_named_by_connection_are_removed() {
        let fields = [("connection", "X-One , close,,"), ("connection", "x-two, @"), ("x-one", "1"), ("x-two", "2")];
        assert_eq!(remaining(NextHop::Origin, &fields), Ok(Vec::new()));
    }

    #[test]
    fn connection_naming_a_protected_field_is_rejected() {
        let end_to_end =
            ["host", "Content-Length", "transfer-encoding", "authorization", "cookie", "via", "X-Forwarded-For"];
        for next in [NextHop::Origin, NextHop::Handler] {
            for name in end_to_end.into_iter().chain(["X-Key"]) {
                for (first, second) in [(name, "close"), ("keep-alive", name)] {
                    let twice = remaining(next, &[("connection", first), ("connection", second)]);
                    assert_eq!(twice, Err(BadField::Connection), "{name}");
                }
                let value = HeaderValue::from_str(&format!("close ,\t{name} ,te")).expect("a value");
                let result = filter().apply(&mut HeaderMap::from_iter([(header::CONNECTION, value)]), context(next));
                assert_eq!(result.map(|_| ()), Err(BadField::Connection), "{name}");
            }
        }
        assert_eq!(remaining(NextHop::Origin, &[("connection", "close, te, upgrade, x-other")]), Ok(Vec::new()));
    }

    #[test]
    fn connection_options_are_bounded() {
        let named = |count| {
            let value = HeaderValue::from_str(&"a,".repeat(count)).expect("a value");
            filter()
                .apply(&mut HeaderMap::from_iter([(header::CONNECTION, value)]), context(NextHop::Origin))
                .map(|_| ())
        };
        assert_eq!((named(MAX_OPTIONS), named(MAX_OPTIONS + 1)), (Ok(()), Err(BadField::Connection)));
    }

    #[test]
    fn handler_receives_hop_by_hop_fields() {
        let fields = [("connection", "upgrade"), ("upgrade", "websocket"), ("te", "trailers")];
        assert_eq!(
            remaining(NextHop::Handler, &fields),
            Ok(["connection", "te", "upgrade"].map(String::from).to_vec())
        );
    }

    #[test]
    fn only_trusted_proxies_send_forwarding_fields() {
        let names = ["forwarded", "x-real-ip", "x-forwarded-for", "x-forwarded-ssl", "x-http-method-override", "proxy"];
        let sent: Vec<_> = names.iter().map(|name| (*name, "1")).collect();
        let kept = |trusted| {
            let mut headers = headers(&sent);
            let kinds = filter()
                .apply(&mut headers, RequestContext { trusted, ..context(NextHop::Handler) })
                .expect("accepted");
            (headers.len(), kinds.has(FieldKind::ForwardedFor))
        };
        assert_eq!((kept(true), kept(false)), ((names.len(), true), (0, false)));
    }

    #[test]
    fn underscores_setting_decides_about_unusual_names() {
        let sent =
            [("x_real_ip", "1"), ("x.key", "1"), ("content_length", "5"), ("te_", "1"), ("my_own", "1"), ("x-a", "1")];
        let kept = |underscores, trusted| {
            let mut headers = headers(&sent);
            let filter = FieldFilter { underscores, ..filter() };
            filter.apply(&mut headers, RequestContext { trusted, ..context(NextHop::Origin) })?;
            let mut kept: Vec<_> = headers.keys().map(ToString::to_string).collect();
            kept.sort();
            Ok(kept)
        };
        for trusted in [false, true] {
            assert_eq!(kept(Underscores::Drop, trusted), Ok(vec!["x-a".into()]));
            assert_eq!(kept(Underscores::Reject, trusted), Err(BadField::Name));
        }
        assert_eq!(kept(Underscores::Keep, false), Ok(["my_own", "te_", "x-a"].map(String::from).to_vec()));
        assert_eq!(kept(Underscores::Keep, true), Ok(["my_own", "te_", "x-a", "x_real_ip"].map(String::from).to_vec()));
    }

    #[test]
    fn http2_value_with_outer_whitespace_is_rejected() {
        for (value, bad) in [(" 1", true), ("1\t", true), ("1 2", false), ("", false), (" ", true)] {
            let apply = |version| {
                filter().apply(&mut headers(&[("x-a", value)]), RequestContext { version, ..context(NextHop::Origin) })
            };
            assert_eq!(apply(Version::HTTP_2).err(), bad.then_some(BadField::Blank), "{value:?}");
            assert!(apply(Version::HTTP_11).is_ok());
        }
    }

    #[test]
    fn protected_fields_are_removed_from_trailers() {
        let names = ["x-key", "x-real-ip", "x-forwarded-for", "x_sum", "host", "authorization", "x-sum", "etag"];
        let mut trailers = headers(&names.map(|name| (name, "1")));
        assert_eq!(filter().apply_to_trailers(&mut trailers), Ok(()));
        assert!(trailers.len() == 2 && trailers.contains_key("x-sum") && trailers.contains_key("etag"));
        assert_eq!(filter().apply_to_trailers(&mut headers(&[("x-sum", " 1")])), Err(BadField::Blank));
    }
}
