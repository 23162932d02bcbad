//! Hop-by-hop fields, which are not forwarded (RFC 9110 section 7.6.1).

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::seen::{Field, Seen};

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Fields that `Connection` may not name: they frame, route or authorise the message, or describe its path. A client that
/// could have them removed could pass for another.
const FOR_ALL: [&str; 28] = [
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

/// Whether `Connection` may not name this field.
pub(crate) fn is_for_all(name: &HeaderName) -> bool {
    FOR_ALL.binary_search(&name.as_str()).is_ok()
}

/// Whether a field is hop-by-hop even if `Connection` does not name it.
pub(crate) fn is_hop(name: &HeaderName) -> bool {
    let hops = [header::CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE];
    hops.contains(name) || [HTTP2_SETTINGS, KEEP_ALIVE, PROXY_CONNECTION].contains(name)
}

/// The options of a line of `Connection`, without the most common ones.
pub(crate) fn options(connection: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let line = if is_everyday(connection.as_bytes()) { &[] } else { connection.as_bytes() };
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// Removes hop-by-hop fields and those that `Connection` names. Notes first whether the sender accepts trailers.
pub(crate) fn remove(headers: &mut HeaderMap, seen: &mut Seen) {
    if seen.take(Field::Connection) {
        let lines = headers.get_all(header::CONNECTION).iter().filter(|line| !is_everyday(line.as_bytes()));
        for line in lines.cloned().collect::<Vec<HeaderValue>>() {
            remove_named(headers, &line);
        }
        headers.remove(header::CONNECTION);
    }
    if seen.take(Field::Te) {
        if accepts_trailers(headers) {
            seen.add(Field::TakesTrailers);
        }
        headers.remove(header::TE);
    }
    if seen.take(Field::TransferEncoding) {
        headers.remove(header::TRANSFER_ENCODING);
    }
    if seen.take(Field::Hop) {
        for name in [KEEP_ALIVE, PROXY_CONNECTION, header::UPGRADE, HTTP2_SETTINGS] {
            headers.remove(name);
        }
    }
}

/// Whether a line names only fields that are removed anyway.
fn is_everyday(connection: &[u8]) -> bool {
    connection.eq_ignore_ascii_case(b"keep-alive") || connection.eq_ignore_ascii_case(b"close")
}

fn remove_named(headers: &mut HeaderMap, connection: &HeaderValue) {
    for option in options(connection) {
        let Ok(name) = HeaderName::from_bytes(option) else { continue };
        // It has a word of its own for each of the others: TE.
        if name != header::TE && !is_for_all(&name) {
            headers.remove(name);
        }
    }
}

/// Whether the sender accepts trailers, the only part of `TE` that is forwarded.
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

    fn left(fields: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = headers(fields);
        let mut seen = Seen::of(&headers);
        remove(&mut headers, &mut seen);
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    #[test]
    fn what_belongs_to_one_connection_is_removed() {
        for name in
            ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "http2-settings"]
        {
            assert_eq!(left(&[(name, "x"), ("accept", "*/*")]), ["accept"], "{name}");
        }
    }

    #[test]
    fn what_connection_names_is_removed_on_every_line_and_in_any_case() {
        let fields = [("connection", "X-One , close,,"), ("connection", "x-two"), ("x-one", "1"), ("x-two", "2")];
        assert_eq!(left(&fields), [""; 0]);
    }

    #[test]
    fn connection_cannot_remove_what_frames_routes_or_authorises() {
        assert!(FOR_ALL.is_sorted());
        for name in FOR_ALL {
            let expected = if name == "transfer-encoding" { vec![] } else { vec![name] };
            assert_eq!(left(&[("connection", name), (name, "x")]), expected);
        }
    }

    #[test]
    fn te_is_understood_as_far_as_trailers() {
        let takes_trailers = |fields: &[_]| {
            let mut headers = headers(fields);
            let mut seen = Seen::of(&headers);
            remove(&mut headers, &mut seen);
            seen.has(Field::TakesTrailers)
        };
        assert!(takes_trailers(&[("te", "gzip;q=1, Trailers")]));
        assert!(takes_trailers(&[("connection", "te"), ("te", "trailers")]));
        assert!(!takes_trailers(&[("te", "gzip")]));
        assert!(!takes_trailers(&[]));
    }
}
