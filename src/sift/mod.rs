//! Removes unsafe fields from a request before anything reads them, and refuses requests with ambiguous fields.
//!
//! Rules, handlers and origins must see the same fields. So three kinds are removed first: fields of one connection, with
//! those that `Connection` names; fields that origins trust (`X-Forwarded-For`), if the peer is no trusted proxy; and fields
//! whose names some origins confuse with others (`X_Real_IP`).

mod circle;
pub(crate) mod hops;
pub(crate) mod name;
mod seen;
mod strip;
pub(crate) mod trailers;

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

pub(crate) use self::seen::{Field, Seen};
pub use self::strip::{BadPattern, Pattern, Strip};

/// Most options of `Connection`: more than the fields that a request may have.
const MAX_OPTIONS: usize = 100;

/// What fields are checked against, built once from the rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sieve {
    /// The fields that the rules read.
    used: HashSet<HeaderName>,
    strip: Strip,
    underscores: Underscores,
    /// The fields that the rules read and that `sift` removes from the requests of untrusted peers.
    untrusted: Vec<HeaderName>,
}

/// How fields are treated whose names have a character other than letters, digits and hyphens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// They are removed.
    #[default]
    Drop,
    /// Requests with such fields are answered with 400.
    Reject,
    /// They are forwarded, unless they look like a field that rules read, that frames, routes or authorises, or that is
    /// removed.
    Keep,
}

/// The fields of a request as its rules may read them.
#[derive(Debug)]
pub(crate) struct Screened {
    /// The fields without those that the rules must not trust; `None` if the request has no such field.
    pub(crate) copy: Option<Box<HeaderMap>>,
    /// Why servers disagree about the fields, if they do.
    pub(crate) fault: Option<BadField>,
}

/// The circumstances of a request beside its fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) version: Version,
    /// Whether it comes from a trusted proxy.
    pub(crate) trusted: bool,
    pub(crate) next: NextHop,
}

/// Who receives the request next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// An origin, on another connection.
    Origin,
    /// A handler in this process. It keeps the fields of the connection, since it may have to upgrade it.
    #[default]
    Handler,
}

/// Why a request is refused for a field, with 400 unless another status is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadField {
    /// RFC 9110 section 7.6.1: a field for all recipients is no connection option.
    #[error("connection names a field that is not for one connection only")]
    Connection,
    /// `underscores: reject`.
    #[error("a field has a name with a character that is no letter, digit or hyphen")]
    Name,
    /// RFC 9113 section 8.2.1.
    #[error("a field has a value that begins or ends with a blank")]
    Blank,
    /// It has passed gateways of this name too often, so it loops; answered with 508 (RFC 5842 section 7.2).
    #[error("the request goes in a circle")]
    Circle,
}

// === impl Sieve ===

impl Sieve {
    /// A sieve for rules that read these fields.
    pub(crate) fn new(used: HashSet<HeaderName>, strip: Strip, underscores: Underscores) -> Self {
        let mut sieve = Self { used, strip, underscores, untrusted: Vec::new() };
        sieve.untrusted = sieve.used.iter().filter(|name| sieve.is_removed(name, false)).cloned().collect();
        sieve
    }

    /// Removes unsafe fields; returns which of the fields left concern a proxy.
    ///
    /// # Errors
    /// A request with fields that mean different things to different servers.
    pub(crate) fn sift(&self, headers: &mut HeaderMap, arrival: Arrival) -> Result<Seen, BadField> {
        let mut seen = self.look(headers, arrival.trusted);
        self.check(headers, arrival, seen)?;
        if seen.take(Field::Stripped) | seen.take(Field::Odd) {
            remove(headers, |name| self.is_removed(name, arrival.trusted));
        }
        if seen.has(Field::TransferEncoding) || arrival.version == Version::HTTP_2 {
            seen.add(Field::MayTrail);
        }
        if arrival.next == NextHop::Origin {
            hops::remove(headers, &mut seen);
        }
        Ok(seen)
    }

    /// Returns the fields that the rules may read, without a change of the request.
    pub(crate) fn screen(&self, headers: &HeaderMap, arrival: Arrival) -> Screened {
        let hidden = |name: &HeaderName| self.untrusted.contains(name) && self.is_removed(name, arrival.trusted);
        let copy = headers.keys().any(hidden).then(|| {
            let mut copy = Box::new(headers.clone());
            remove(&mut copy, hidden);
            copy
        });
        Screened { copy, fault: self.check(headers, arrival, self.look(headers, arrival.trusted)).err() }
    }

    /// Rejects fields that mean different things to different servers.
    fn check(&self, headers: &HeaderMap, arrival: Arrival, seen: Seen) -> Result<(), BadField> {
        if arrival.version == Version::HTTP_2 && headers.values().any(has_outer_blank) {
            return Err(BadField::Blank); // HTTP/1 would drop the blank
        }
        if seen.has(Field::Odd) && self.underscores == Underscores::Reject {
            return Err(BadField::Name);
        }
        if seen.has(Field::Connection) {
            self.check_connection(headers)?;
        }
        if seen.has(Field::Via) && arrival.next == NextHop::Origin && circle::is_one(headers) {
            return Err(BadField::Circle);
        }
        Ok(())
    }

    /// Checks every name in one pass.
    fn look(&self, headers: &HeaderMap, trusted: bool) -> Seen {
        Seen::of_each(headers, |name| match Field::of(name) {
            _ if !trusted && self.strip.has(name) => Some(Field::Stripped),
            None if name::is_odd(name) => Some(Field::Odd),
            known => known,
        })
    }

    /// Refuses a `Connection` that names a field which rules read or which frames the message.
    fn check_connection(&self, headers: &HeaderMap) -> Result<(), BadField> {
        let options = headers.get_all(header::CONNECTION).iter().flat_map(hops::options);
        for (count, option) in options.enumerate() {
            let Ok(name) = HeaderName::from_bytes(option) else { continue };
            if count >= MAX_OPTIONS || hops::is_for_all(&name) || self.used.contains(&name) {
                return Err(BadField::Connection);
            }
        }
        Ok(())
    }

    /// Whether a field is removed because of its name.
    fn is_removed(&self, name: &HeaderName, trusted: bool) -> bool {
        let is_stripped = |name: &HeaderName| !trusted && self.strip.has(name.as_str());
        let is_taken = |name: &HeaderName| hops::is_for_all(name) || hops::is_hop(name) || self.used.contains(name);
        let passes_for_another =
            || name::look_alike(name.as_str()).is_some_and(|one| is_stripped(&one) || is_taken(&one));
        match name::is_odd(name.as_str()) {
            true if self.underscores == Underscores::Keep => !self.used.contains(name) && passes_for_another(),
            true => true,
            false => is_stripped(name),
        }
    }

    /// Whether a trailer of a request is removed. Every peer counts as untrusted: no proxy says in trailers whom it forwards
    /// for, and an origin may merge trailers into the header fields.
    pub(crate) fn is_forbidden_trailer(&self, name: &HeaderName) -> bool {
        trailers::is_forbidden(name) || self.used.contains(name) || self.is_removed(name, false)
    }

    /// Removes forbidden trailers.
    ///
    /// # Errors
    /// The trailers are ambiguous.
    pub(crate) fn sift_trailers(&self, trailers: &mut HeaderMap) -> Result<(), BadField> {
        if trailers.values().any(has_outer_blank) {
            return Err(BadField::Blank);
        }
        remove(trailers, |name| self.is_forbidden_trailer(name));
        Ok(())
    }
}

impl Underscores {
    /// The word in the rule file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::Keep => "keep",
        }
    }
}

impl BadField {
    /// Its label in metrics.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Connection => "connection_option",
            Self::Name => "field_name",
            Self::Blank => "malformed",
            Self::Circle => "circle",
        }
    }
}

/// Removes the fields whose names match.
pub(crate) fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
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

    fn sieve() -> Sieve {
        Sieve { used: [HeaderName::from_static("x-key")].into(), ..Sieve::default() }
    }

    fn from(next: NextHop) -> Arrival {
        Arrival { version: Version::HTTP_11, trusted: false, next }
    }

    fn left(next: NextHop, fields: &[(&'static str, &'static str)]) -> Result<Vec<String>, BadField> {
        let mut headers = headers(fields);
        sieve().sift(&mut headers, from(next))?;
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn what_connection_names_is_gone_before_it_could_be_read() {
        let fields = [("connection", "X-One , close,,"), ("connection", "x-two, @"), ("x-one", "1"), ("x-two", "2")];
        assert_eq!(left(NextHop::Origin, &fields), Ok(Vec::new()));
    }

    #[test]
    fn a_connection_that_names_a_field_of_the_rules_or_one_that_frames_is_refused() {
        let for_all =
            ["host", "Content-Length", "transfer-encoding", "authorization", "cookie", "via", "X-Forwarded-For"];
        for next in [NextHop::Origin, NextHop::Handler] {
            for name in for_all.into_iter().chain(["X-Key"]) {
                for (first, second) in [(name, "close"), ("keep-alive", name)] {
                    let twice = left(next, &[("connection", first), ("connection", second)]);
                    assert_eq!(twice, Err(BadField::Connection), "{name}");
                }
                let value = HeaderValue::from_str(&format!("close ,\t{name} ,te")).expect("a value");
                let sifted = sieve().sift(&mut HeaderMap::from_iter([(header::CONNECTION, value)]), from(next));
                assert_eq!(sifted.map(|_| ()), Err(BadField::Connection), "{name}");
            }
        }
        assert_eq!(left(NextHop::Origin, &[("connection", "close, te, upgrade, x-other")]), Ok(Vec::new()));
    }

    #[test]
    fn a_connection_names_no_more_fields_than_a_request_may_have() {
        let named = |count| {
            let value = HeaderValue::from_str(&"a,".repeat(count)).expect("a value");
            sieve().sift(&mut HeaderMap::from_iter([(header::CONNECTION, value)]), from(NextHop::Origin)).map(|_| ())
        };
        assert_eq!((named(MAX_OPTIONS), named(MAX_OPTIONS + 1)), (Ok(()), Err(BadField::Connection)));
    }

    #[test]
    fn a_handler_is_told_what_was_said_of_its_connection() {
        let fields = [("connection", "upgrade"), ("upgrade", "websocket"), ("te", "trailers")];
        assert_eq!(left(NextHop::Handler, &fields), Ok(["connection", "te", "upgrade"].map(String::from).to_vec()));
    }

    #[test]
    fn what_origins_believe_is_removed_unless_a_trusted_proxy_says_it() {
        let names = ["forwarded", "x-real-ip", "x-forwarded-for", "x-forwarded-ssl", "x-http-method-override", "proxy"];
        let sent: Vec<_> = names.iter().map(|name| (*name, "1")).collect();
        let left = |trusted| {
            let mut headers = headers(&sent);
            let seen = sieve().sift(&mut headers, Arrival { trusted, ..from(NextHop::Handler) }).expect("it goes on");
            (headers.len(), seen.has(Field::ForwardedFor))
        };
        assert_eq!((left(true), left(false)), ((names.len(), true), (0, false)));
    }

    #[test]
    fn a_name_that_origins_may_take_for_another_is_removed_refused_or_kept() {
        let sent =
            [("x_real_ip", "1"), ("x.key", "1"), ("content_length", "5"), ("te_", "1"), ("my_own", "1"), ("x-a", "1")];
        let left = |underscores, trusted| {
            let mut headers = headers(&sent);
            let sieve = Sieve { underscores, ..sieve() };
            sieve.sift(&mut headers, Arrival { trusted, ..from(NextHop::Origin) })?;
            let mut left: Vec<_> = headers.keys().map(ToString::to_string).collect();
            left.sort();
            Ok(left)
        };
        for trusted in [false, true] {
            assert_eq!(left(Underscores::Drop, trusted), Ok(vec!["x-a".into()]));
            assert_eq!(left(Underscores::Reject, trusted), Err(BadField::Name));
        }
        assert_eq!(left(Underscores::Keep, false), Ok(["my_own", "te_", "x-a"].map(String::from).to_vec()));
        assert_eq!(left(Underscores::Keep, true), Ok(["my_own", "te_", "x-a", "x_real_ip"].map(String::from).to_vec()));
    }

    #[test]
    fn a_value_of_http2_has_no_blank_around_it() {
        for (value, bad) in [(" 1", true), ("1\t", true), ("1 2", false), ("", false), (" ", true)] {
            let sift =
                |version| sieve().sift(&mut headers(&[("x-a", value)]), Arrival { version, ..from(NextHop::Origin) });
            assert_eq!(sift(Version::HTTP_2).err(), bad.then_some(BadField::Blank), "{value:?}");
            assert!(sift(Version::HTTP_11).is_ok());
        }
    }

    #[test]
    fn nothing_that_was_judged_comes_again_behind_the_body() {
        let names = ["x-key", "x-real-ip", "x-forwarded-for", "x_sum", "host", "authorization", "x-sum", "etag"];
        let mut trailers = headers(&names.map(|name| (name, "1")));
        assert_eq!(sieve().sift_trailers(&mut trailers), Ok(()));
        assert!(trailers.len() == 2 && trailers.contains_key("x-sum") && trailers.contains_key("etag"));
        assert_eq!(sieve().sift_trailers(&mut headers(&[("x-sum", " 1")])), Err(BadField::Blank));
    }
}
