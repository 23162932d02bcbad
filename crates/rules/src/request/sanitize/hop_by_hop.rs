//! Hop-by-hop fields, which are not forwarded (RFC 9110 section 7.6.1).

use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::kinds::{FieldKind, FieldKinds};

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Fields that `Connection` must not name: they frame, route or authorise the message, or describe its path. A client
/// that could remove them could impersonate another client.
const END_TO_END: [&str; 28] = [
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "host",
    "last-modified",
    "location",
    "max-forwards",
    "origin",
    "proxy-authorization",
    "range",
    "retry-after",
    "set-cookie",
    "transfer-encoding",
    "vary",
    "via",
    "www-authenticate",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// Returns `true` if the field is for all recipients, so `Connection` must not name it.
pub fn is_end_to_end(name: &HeaderName) -> bool {
    END_TO_END.binary_search(&name.as_str()).is_ok()
}

/// Returns `true` if the field is hop-by-hop even if `Connection` does not name it.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    let standard = [header::CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE];
    standard.contains(name) || [HTTP2_SETTINGS, KEEP_ALIVE, PROXY_CONNECTION].contains(name)
}

/// Returns the options of a `Connection` line. A line that is only `keep-alive` or `close` has none.
pub fn options(connection: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let line = if is_persistence_option(connection.as_bytes()) { &[] } else { connection.as_bytes() };
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// Removes hop-by-hop fields and the fields that `Connection` names. Adds [`FieldKind::AcceptsTrailers`] to `kinds` if
/// the sender accepts trailers.
pub fn remove(headers: &mut HeaderMap, kinds: &mut FieldKinds) {
    if kinds.take(FieldKind::Connection) {
        for line in take_connection(headers) {
            remove_named(headers, &line);
        }
    }
    if kinds.take(FieldKind::Te) {
        if accepts_trailers(headers) {
            kinds.add(FieldKind::AcceptsTrailers);
        }
        headers.remove(header::TE);
    }
    if kinds.take(FieldKind::TransferEncoding) {
        headers.remove(header::TRANSFER_ENCODING);
    }
    if kinds.take(FieldKind::OtherHopByHop) {
        for name in [KEEP_ALIVE, PROXY_CONNECTION, header::UPGRADE, HTTP2_SETTINGS] {
            headers.remove(name);
        }
    }
}

/// Removes `Connection`. Returns its lines that name fields.
fn take_connection(headers: &mut HeaderMap) -> Vec<HeaderValue> {
    let Entry::Occupied(lines) = headers.entry(header::CONNECTION) else { return Vec::new() };
    let naming = lines.iter().filter(|line| !is_persistence_option(line.as_bytes())).cloned().collect();
    lines.remove();
    naming
}

/// Returns `true` for `keep-alive` and `close`, which name no field that is removed only because of `Connection`.
fn is_persistence_option(connection: &[u8]) -> bool {
    connection.eq_ignore_ascii_case(b"keep-alive") || connection.eq_ignore_ascii_case(b"close")
}

fn remove_named(headers: &mut HeaderMap, connection: &HeaderValue) {
    for option in options(connection) {
        let Ok(name) = HeaderName::from_bytes(option) else { continue };
        // `TE` is handled by the caller, which reads it first.
        if name != header::TE && !is_end_to_end(&name) {
            headers.remove(name);
        }
    }
}

/// Returns `true` if the sender accepts trailers, the only member of `TE` that is forwarded.
fn accepts_trailers(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(header::TE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    codings.map(<[u8]>::trim_ascii).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in fields.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    fn remaining(fields: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = headers(fields);
        let mut kinds = FieldKinds::classify(&headers);
        remove(&mut headers, &mut kinds);
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    #[test]
    fn hop_by_hop_fields_are_removed() {
        for name in
            ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "http2-settings"]
        {
            assert_eq!(remaining(&[(name, "x"), ("accept", "*/*")]), ["accept"], "{name}");
        }
    }

    #[test]
    fn fields_named_by_connection_are_removed() {
        let fields = [("connection", "X-One , close,,"), ("connection", "x-two"), ("x-one", "1"), ("x-two", "2")];
        assert_eq!(remaining(&fields), [""; 0]);
    }

    #[test]
    fn connection_cannot_remove_end_to_end_fields() {
        assert!(END_TO_END.is_sorted());
        for name in END_TO_END {
            let expected = if name == "transfer-encoding" { vec![] } else { vec![name] };
            assert_eq!(remaining(&[("connection", name), (name, "x")]), expected);
        }
    }

    #[test]
    fn te_is_searched_for_trailers_only() {
        let is_accepted = |fields: &[_]| {
            let mut headers = headers(fields);
            let mut kinds = FieldKinds::classify(&headers);
            remove(&mut headers, &mut kinds);
            kinds.has(FieldKind::AcceptsTrailers)
        };
        assert!(is_accepted(&[("te", "gzip;q=1, Trailers")]));
        assert!(is_accepted(&[("connection", "te"), ("te", "trailers")]));
        assert!(!is_accepted(&[("te", "gzip")]));
        assert!(!is_accepted(&[]));
    }
}
