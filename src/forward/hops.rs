//! Fields that are for one connection only and go no further (RFC 9110 section 7.6.1).

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::seen::{Field, Seen};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Fields that `Connection` cannot remove: they frame, route or authorise the message, and a client that could strip
/// them would pass for another.
const END_TO_END: [&str; 15] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "authorization",
    "cookie",
    "set-cookie",
    "cache-control",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "expect",
];

/// Removes them, and those that `Connection` names.
pub(crate) fn remove(headers: &mut HeaderMap, seen: Seen) {
    if seen.has(Field::Connection) {
        let values = headers.get_all(header::CONNECTION).iter().filter(|value| !is_keep_alive(value));
        for value in values.cloned().collect::<Vec<HeaderValue>>() {
            remove_named(headers, &value);
        }
        headers.remove(header::CONNECTION);
    }
    if seen.has(Field::Te) {
        headers.remove(header::TE);
    }
    if seen.has(Field::TransferEncoding) {
        headers.remove(header::TRANSFER_ENCODING);
    }
    if seen.has(Field::Hop) {
        for name in [KEEP_ALIVE, PROXY_CONNECTION, header::UPGRADE] {
            headers.remove(name);
        }
    }
}

/// What nearly everybody says who says anything; the field of that name is removed in any case.
fn is_keep_alive(connection: &HeaderValue) -> bool {
    connection.as_bytes().eq_ignore_ascii_case(b"keep-alive")
}

fn remove_named(headers: &mut HeaderMap, connection: &HeaderValue) {
    for token in connection.as_bytes().split(|byte| *byte == b',') {
        let Ok(name) = HeaderName::from_bytes(token.trim_ascii()) else { continue };
        if !END_TO_END.contains(&name.as_str()) {
            headers.remove(name);
        }
    }
}

/// Whether the sender understands trailers: the only thing `TE` may say to us that we say on.
pub(crate) fn accepts_trailers(headers: &HeaderMap) -> bool {
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
        let seen = Seen::of(&headers);
        remove(&mut headers, seen);
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    #[test]
    fn what_belongs_to_one_connection_is_removed() {
        for name in ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"] {
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
        for name in END_TO_END {
            assert_eq!(left(&[("connection", name), (name, "x")]), [name]);
        }
    }

    #[test]
    fn te_is_understood_as_far_as_trailers() {
        assert!(accepts_trailers(&headers(&[("te", "gzip;q=1, Trailers")])));
        assert!(!accepts_trailers(&headers(&[("te", "gzip")])));
        assert!(!accepts_trailers(&headers(&[])));
    }
}
