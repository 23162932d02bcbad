//! Parses the heads of requests, and the lines of all heads.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use httparse::{ParserConfig, Status};

use super::framing::FramingFields;
use super::{MAX_CONFIGURABLE_FIELDS, MAX_FIELDS, Malformed};

/// The head of a request.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) request: Request<()>,
    /// Its length in bytes.
    pub(crate) length: usize,
    pub(crate) framing_fields: FramingFields,
    /// Whether the client keeps the connection open for another request.
    pub(crate) keeps_open: bool,
    /// The client sent `TE: trailers`.
    pub(crate) accepts_trailers: bool,
    /// The client sent `Expect: 100-continue`.
    pub(crate) expects_continue: bool,
    /// The protocols that the client offers in `Upgrade`.
    pub(crate) offer: Option<HeaderValue>,
}

/// The error of a request head that is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHead {
    /// The head is malformed or ambiguous.
    Malformed,
    /// A version other than 1.0 and 1.1.
    Version,
    /// More fields than allowed.
    TooManyFields,
    /// A transfer coding other than `chunked`.
    Coding,
    /// A target longer than [`Uri`] allows.
    Target,
}

/// Parses the head of a request at the front of `bytes`. Returns `None` if the head is incomplete. The target and the
/// fields share `bytes`, and the request takes the allocation of the empty `fields`. The head may have `max_fields`
/// fields.
///
/// # Errors
/// See [`BadHead`].
pub(crate) fn read_request(
    bytes: &Bytes,
    fields: &mut HeaderMap,
    max_fields: usize,
) -> Result<Option<ParsedRequest>, BadHead> {
    match max_fields {
        ..=MAX_FIELDS => read_lines(bytes, fields, &mut [const { MaybeUninit::uninit() }; MAX_FIELDS][..max_fields]),
        _ => read_many(bytes, fields, max_fields.min(MAX_CONFIGURABLE_FIELDS)),
    }
}

/// Not inlined, so that the large array is on the stack only if many fields are allowed.
#[inline(never)]
fn read_many(bytes: &Bytes, fields: &mut HeaderMap, max_fields: usize) -> Result<Option<ParsedRequest>, BadHead> {
    read_lines(bytes, fields, &mut [const { MaybeUninit::uninit() }; MAX_CONFIGURABLE_FIELDS][..max_fields])
}

fn read_lines<'b>(
    bytes: &'b Bytes,
    fields: &mut HeaderMap,
    lines: &mut [MaybeUninit<httparse::Header<'b>>],
) -> Result<Option<ParsedRequest>, BadHead> {
    let mut parsed = httparse::Request::new(&mut []);
    let status = ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, lines);
    let status = status.map_err(|error| bad_head(error, bytes))?;
    let (Status::Complete(length), Some(method), Some(target)) = (status, parsed.method, parsed.path) else {
        return Ok(None);
    };
    if has_bare_line_feed(&bytes[..length]) {
        return Err(BadHead::Malformed);
    }
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let (mut framing_fields, mut persistence) = (FramingFields::default(), Persistence::new(version));
    let (mut accepts_trailers, mut expects_continue, mut offer) = (false, false, None);
    for line in parsed.headers.iter() {
        let (name, value) = field(bytes, line)?;
        framing_fields.record(&name, &value).map_err(|Malformed| framing_error(&name, &value))?;
        if name == header::CONNECTION {
            persistence.record(&value);
        } else if name == header::TE {
            accepts_trailers |= items(&value).any(|item| item.eq_ignore_ascii_case(b"trailers"));
        } else if name == header::EXPECT {
            // HTTP/1.0 has no 100 (RFC 9110 section 10.1.1).
            expects_continue |= version == Version::HTTP_11 && value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        } else if name == header::UPGRADE {
            offer = Some(if offer.is_none() { value.clone() } else { AMBIGUOUS_OFFER });
        }
        fields.append(name, value);
    }
    if framing_fields.is_chunked() && version != Version::HTTP_11 {
        return Err(BadHead::Malformed); // HTTP/1.0 has no transfer codings, so the framing is unclear
    }
    if target.len() >= usize::from(u16::MAX) {
        return Err(BadHead::Target);
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| Malformed)?;
    *request.uri_mut() = uri(bytes, target)?;
    *request.version_mut() = version;
    *request.headers_mut() = std::mem::take(fields);
    // The bytes after CONNECT may belong to a tunnel, and the gateway opens none.
    let is_tunnel = *request.method() == Method::CONNECT;
    let offer = offer.filter(|offer| version == Version::HTTP_11 && persistence.upgrade && !is_only_h2c(offer));
    // The bytes after an upgrade request may belong to the other protocol, even if the upgrade is rejected.
    let keeps_open = persistence.keeps_open() && !framing_fields.is_ambiguous() && !is_tunnel && offer.is_none();
    Ok(Some(ParsedRequest { request, length, framing_fields, keeps_open, accepts_trailers, expects_continue, offer }))
}

/// Replaces several `Upgrade` fields. No protocol has this name.
const AMBIGUOUS_OFFER: HeaderValue = HeaderValue::from_static("");

/// Returns `true` if the client offers only HTTP/2. Such clients wait for the response before they switch, and accept a
/// response over HTTP/1.
fn is_only_h2c(offer: &HeaderValue) -> bool {
    items(offer).all(|item| item.eq_ignore_ascii_case(b"h2c"))
}

/// Parses the target. Encodes quotation marks in the query, which `Uri` accepts only in the path.
fn uri(bytes: &Bytes, target: &str) -> Result<Uri, Malformed> {
    if target.contains('#') {
        return Err(Malformed); // a target has no fragment; `Uri` would drop it
    }
    Uri::from_maybe_shared(bytes.slice_ref(target.as_bytes())).or_else(|_| match target.split_once('?') {
        Some((path, query)) if query.contains('"') => {
            format!("{path}?{}", query.replace('"', "%22")).parse().map_err(|_| Malformed)
        }
        _ => Err(Malformed),
    })
}

/// Returns `true` if a line ends with a bare line feed (RFC 9112 section 2.2). A proxy in front of the gateway may read
/// it as part of a value, and miss the next field.
pub(super) fn has_bare_line_feed(head: &[u8]) -> bool {
    // Without an early exit and `&&` the compiler vectorizes the loop: half an instruction per byte instead of nine.
    let pairs = head.iter().zip(head.iter().skip(1));
    let bare = pairs.fold(false, |bare, (before, byte)| bare | ((*byte == b'\n') & (*before != b'\r')));
    bare || head.first() == Some(&b'\n')
}

/// Returns the error for an invalid framing field. Other codings before `chunked` are valid HTTP, but not supported.
fn framing_error(name: &HeaderName, value: &HeaderValue) -> BadHead {
    let last = items(value).next_back().unwrap_or_default();
    let is_valid = *name == header::TRANSFER_ENCODING && last.eq_ignore_ascii_case(b"chunked");
    if is_valid { BadHead::Coding } else { BadHead::Malformed }
}

/// Converts a field. Its value shares the bytes of the head.
pub(super) fn field(bytes: &Bytes, line: &httparse::Header<'_>) -> Result<(HeaderName, HeaderValue), Malformed> {
    let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| Malformed)?;
    let value = HeaderValue::from_maybe_shared(bytes.slice_ref(line.value)).map_err(|_| Malformed)?;
    Ok((name, value))
}

/// Returns the items of a comma-separated list.
pub(super) fn items(value: &HeaderValue) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Determines whether the connection persists (RFC 9112 section 9.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Persistence {
    by_default: bool,
    close: bool,
    keep_alive: bool,
    pub(super) upgrade: bool,
}

impl Persistence {
    pub(super) fn new(version: Version) -> Self {
        Self { by_default: version == Version::HTTP_11, close: false, keep_alive: false, upgrade: false }
    }

    pub(super) fn record(&mut self, connection: &HeaderValue) {
        if connection == "keep-alive" {
            self.keep_alive = true; // the most common value; saves the split
            return;
        }
        for option in items(connection) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// Returns `true` if the connection persists. `close` overrides `keep-alive`.
    pub(super) fn keeps_open(self) -> bool {
        !self.close && (self.by_default || self.keep_alive)
    }
}

impl From<Malformed> for BadHead {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

fn bad_head(error: httparse::Error, bytes: &[u8]) -> BadHead {
    match error {
        httparse::Error::TooManyHeaders => BadHead::TooManyFields,
        httparse::Error::Version if has_other_version(bytes) => BadHead::Version,
        _ => BadHead::Malformed,
    }
}

/// Returns `true` if the first line is a request line with another HTTP version.
fn has_other_version(bytes: &[u8]) -> bool {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ');
    let version = words.nth(2).and_then(|version| version.strip_prefix(b"HTTP/"));
    words.next().is_none() && version.is_some_and(|version| version.first().is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<ParsedRequest>, BadHead> {
        read_request(&Bytes::copy_from_slice(text.as_bytes()), &mut HeaderMap::new(), MAX_FIELDS)
    }

    #[test]
    fn request_is_parsed_once_its_head_is_complete() {
        let text = "\r\nPUT http://a.example/b?c HTTP/1.1\r\n\
                    Host: x\r\nTE: gzip, Trailers\r\nExpect: 100-Continue\r\n\r\nbody";
        for end in 0..text.len() - 4 {
            assert!(parse(&text[..end]).unwrap().is_none(), "{end}");
        }
        let parsed = parse(text).unwrap().unwrap();
        assert_eq!((parsed.length, parsed.keeps_open), (text.len() - 4, true));
        assert!(parsed.accepts_trailers && parsed.expects_continue);
        assert_eq!((parsed.request.method(), parsed.request.version()), (&Method::PUT, Version::HTTP_11));
        assert_eq!(parsed.request.uri(), "http://a.example/b?c");
        assert_eq!(parsed.request.headers()["host"], "x");
    }

    #[test]
    fn http_1_0_request_persists_only_with_keep_alive() {
        let parsed = |fields: &str| parse(&format!("GET / HTTP/1.0\r\n{fields}\r\n")).unwrap().unwrap();
        assert!(!parsed("").keeps_open && parsed("Connection: keep-alive\r\n").keeps_open);
        assert!(!parsed("Expect: 100-continue\r\n").expects_continue);
    }

    #[test]
    fn upgrade_needs_one_line_and_a_connection_option() {
        let offer_of = |fields: &str| {
            let parsed = parse(&format!("GET / HTTP/1.1\r\n{fields}\r\n")).unwrap().unwrap();
            (parsed.offer.map(|offer| offer.to_str().unwrap().to_owned()), parsed.keeps_open)
        };
        let offer = |text: &str| (Some(text.to_owned()), false);
        assert_eq!(offer_of("Connection: keep-alive, Upgrade\r\nUpgrade: a/1, b\r\n"), offer("a/1, b"));
        assert_eq!(offer_of("Upgrade: a\r\nconnection: x\r\nconnection: UPGRADE\r\n"), offer("a"));
        assert_eq!(offer_of("Connection: upgrade\r\nUpgrade: h2c, a\r\n"), offer("h2c, a"));
        assert_eq!(offer_of("Connection: upgrade\r\nUpgrade: a\r\nUpgrade: a\r\n"), offer(""));
        for none in ["Upgrade: a\r\n", "Connection: upgrade\r\n", "Connection: upgrade\r\nUpgrade: H2C, h2c\r\n"] {
            assert_eq!(offer_of(none), (None, true), "{none:?}");
        }
        let old = parse("GET / HTTP/1.0\r\nConnection: upgrade, keep-alive\r\nUpgrade: a\r\n\r\n");
        assert!(old.unwrap().unwrap().keeps_open);
    }

    #[test]
    fn invalid_requests_are_rejected_with_their_cause() {
        for (bad, error) in [
            ("GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", BadHead::Coding),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\r\nA: b\0\r\n\r\n", BadHead::Malformed),
            ("GET  / HTTP/1.1\r\n\r\n", BadHead::Malformed),
            ("GET /a b HTTP/1.1\r\n\r\n", BadHead::Malformed),
            ("G@T / HTTP/1.1\r\n\r\n", BadHead::Malformed),
            ("GET a/b HTTP/1.1\r\n\r\n", BadHead::Malformed),
            ("\nGET / HTTP/1.1\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\nA: b\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\r\nA: b\nTransfer-Encoding: chunked\r\n\r\n", BadHead::Malformed),
            ("GET / HTTP/1.1\r\nA: b\r\n\n", BadHead::Malformed),
            ("GET / HTTP/2.0\r\n\r\n", BadHead::Version),
            ("GET / HTTP/1.2\r\n\r\n", BadHead::Version),
        ] {
            assert_eq!(parse(bad).map(|_| ()), Err(error), "{bad:?}");
        }
        let many = |count| parse(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count))).map(|_| ());
        assert_eq!((many(100), many(101)), (Ok(()), Err(BadHead::TooManyFields)));
    }
}
