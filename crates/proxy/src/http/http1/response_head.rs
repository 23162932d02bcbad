//! Parses the heads of responses.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response, StatusCode, Version, header};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use super::framing::FramingFields;
use super::head::{Persistence, field, has_bare_line_feed};
use super::{MAX_CONFIGURABLE_FIELDS, MAX_FIELDS, Malformed};
use tidegate_rules::evaluation::reason;

/// The head of a response, without its fields.
#[derive(Debug)]
pub(crate) struct ParsedResponse {
    pub(crate) line: StatusLine,
    /// Its length in bytes.
    pub(crate) length: usize,
    pub(crate) framing_fields: FramingFields,
    /// Whether the sender keeps the connection open for another request.
    pub(crate) keeps_open: bool,
    /// Whether `Connection` has the option `upgrade`.
    pub(crate) upgrades: bool,
}

/// Why a response is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadResponse {
    /// The first line has another version, or is not HTTP.
    #[error("the response does not begin with HTTP/1.0 or HTTP/1.1")]
    Version,
    /// A line ends with a bare line feed (RFC 9112 section 2.2).
    #[error("a line of the response head ends with a bare line feed")]
    LineFeed,
    /// More fields than allowed.
    #[error("the response has more header fields than `max_fields`")]
    TooManyFields,
    /// A larger head than allowed.
    #[error("the response head is larger than `max_field_bytes`")]
    TooLarge,
    /// The end of the body is ambiguous.
    #[error("`Content-Length` or `Transfer-Encoding` is invalid or repeated")]
    Framing,
    /// The chunks are malformed.
    #[error("the chunks of the response are malformed")]
    Chunks,
    /// Another fault.
    #[error("the response head is malformed")]
    Syntax,
}

/// The first line of a response.
#[derive(Debug)]
pub(crate) struct StatusLine {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    /// The reason phrase, unless it is the standard phrase of the status.
    pub(crate) reason: Option<ReasonPhrase>,
}

/// Parses the head of a response at the front of `bytes`. Returns `None` if the head is incomplete; then `fields` is
/// unchanged. The fields of the head replace the content of `fields`, and share `bytes`. The head may have `max_fields`
/// fields.
///
/// # Errors
/// The head is malformed or ambiguous.
pub(crate) fn read_response(
    bytes: &Bytes,
    fields: &mut HeaderMap,
    max_fields: usize,
) -> Result<Option<ParsedResponse>, BadResponse> {
    match max_fields {
        ..=MAX_FIELDS => read_lines(bytes, fields, &mut [const { MaybeUninit::uninit() }; MAX_FIELDS][..max_fields]),
        _ => read_many(bytes, fields, max_fields.min(MAX_CONFIGURABLE_FIELDS)),
    }
}

/// Not inlined, so that the large array is on the stack only if many fields are allowed.
#[inline(never)]
fn read_many(bytes: &Bytes, fields: &mut HeaderMap, max_fields: usize) -> Result<Option<ParsedResponse>, BadResponse> {
    read_lines(bytes, fields, &mut [const { MaybeUninit::uninit() }; MAX_CONFIGURABLE_FIELDS][..max_fields])
}

fn read_lines<'b>(
    bytes: &'b Bytes,
    fields: &mut HeaderMap,
    lines: &mut [MaybeUninit<httparse::Header<'b>>],
) -> Result<Option<ParsedResponse>, BadResponse> {
    let mut parsed = httparse::Response::new(&mut []);
    let mut config = ParserConfig::default();
    // RFC 9112 section 5.1: a proxy removes this whitespace from responses.
    config.allow_spaces_after_header_name_in_responses(true);
    let status = config.parse_response_with_uninit_headers(&mut parsed, bytes, lines)?;
    let (Status::Complete(length), Some(code)) = (status, parsed.code) else { return Ok(None) };
    if has_bare_line_feed(&bytes[..length]) {
        return Err(BadResponse::LineFeed);
    }
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let (mut framing_fields, mut persistence) = (FramingFields::default(), Persistence::new(version));
    fields.clear();
    for line in parsed.headers.iter() {
        let (name, value) = field(bytes, line)?;
        framing_fields.record(&name, &value).map_err(|Malformed| BadResponse::Framing)?;
        if name == header::CONNECTION {
            persistence.record(&value);
        }
        fields.append(name, value);
    }
    if framing_fields.is_chunked() && version != Version::HTTP_11 {
        return Err(BadResponse::Framing); // HTTP/1.0 has no transfer codings, so the framing is unclear
    }
    let status = StatusCode::from_u16(code).map_err(|_| BadResponse::Syntax)?;
    let reason = parsed.reason.filter(|reason| *reason != reason::phrase(status));
    let reason = reason.and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok());
    let line = StatusLine { status, version, reason };
    // A body that a 204 announces may follow. It is no response to the next request.
    let may_have_body = status == StatusCode::NO_CONTENT && framing_fields.announces_body();
    let keeps_open = persistence.keeps_open() && !framing_fields.is_ambiguous() && !may_have_body;
    Ok(Some(ParsedResponse { line, length, framing_fields, keeps_open, upgrades: persistence.upgrade }))
}

impl From<httparse::Error> for BadResponse {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TooManyFields,
            httparse::Error::Version => Self::Version,
            _ => Self::Syntax,
        }
    }
}

impl From<Malformed> for BadResponse {
    fn from(_: Malformed) -> Self {
        Self::Syntax
    }
}

impl StatusLine {
    /// Returns the response with this status line. It takes the allocation of `extensions`.
    pub(crate) fn into_response<B>(self, fields: HeaderMap, extensions: Extensions, body: B) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.version_mut() = self.version;
        *response.headers_mut() = fields;
        *response.extensions_mut() = extensions;
        if let Some(reason) = self.reason {
            response.extensions_mut().insert(reason);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<ParsedResponse>, BadResponse> {
        read_with_fields(text).0
    }

    fn read_with_fields(text: &str) -> (Result<Option<ParsedResponse>, BadResponse>, HeaderMap) {
        let mut fields = HeaderMap::new();
        (read_response(&Bytes::copy_from_slice(text.as_bytes()), &mut fields, MAX_FIELDS), fields)
    }

    #[test]
    fn response_is_parsed_once_its_head_is_complete() {
        let text = "HTTP/1.1 404 Not Here\r\nServer: x\r\nX-A:  1 \r\nx-a: 2\r\n\r\nbody";
        for end in 0..text.len() - 4 {
            assert!(read(&text[..end]).unwrap().is_none(), "{end}");
        }
        let parsed = read(text).unwrap().unwrap();
        assert_eq!((parsed.length, parsed.keeps_open), (text.len() - 4, true));
        let response = parsed.line.into_response(read_with_fields(text).1, Extensions::new(), ());
        assert_eq!((response.status(), response.version()), (StatusCode::NOT_FOUND, Version::HTTP_11));
        assert_eq!(response.headers().get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        let reason = response.extensions().get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        assert_eq!(reason, Some(&b"Not Here"[..]));
    }

    /// Regression test: such a response was malformed (RFC 9112 section 5.1).
    #[test]
    fn response_field_names_lose_whitespace_before_the_colon() {
        let (parsed, fields) = read_with_fields("HTTP/1.1 200 OK\r\nX-A : 1\r\nContent-Length\t \t:2\r\n\r\n");
        assert!(parsed.unwrap().is_some());
        assert!(fields.len() == 2 && fields["x-a"] == "1" && fields["content-length"] == "2", "{fields:?}");
        // Two fields whose names differ only in this whitespace are one field with two values.
        let twice = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length : 2\r\n\r\n";
        assert_eq!(read(twice).map(|_| ()), Err(BadResponse::Framing));
    }

    #[test]
    fn response_tells_if_the_connection_persists() {
        let keeps_open = |version: &str, connection: &str| {
            let parsed = read(&format!("HTTP/{version} 200 OK\r\n{connection}\r\n")).unwrap().unwrap();
            assert!(parsed.line.reason.is_none());
            parsed.keeps_open
        };
        assert!(keeps_open("1.1", ""));
        assert!(keeps_open("1.1", "Connection: x\r\n"));
        assert!(keeps_open("1.0", "Connection: x, Keep-Alive\r\n"));
        assert!(!keeps_open("1.0", ""));
        assert!(!keeps_open("1.0", "Connection: keep-alive, close\r\n"));
        assert!(!keeps_open("1.1", "Connection: x ,\tClose\r\n"));
        assert!(!keeps_open("1.1", "Connection: close\r\nConnection: keep-alive\r\n"));
        assert!(!keeps_open("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"));
        let no_content = |field: &str| read(&format!("HTTP/1.1 204 x\r\n{field}\r\n")).unwrap().unwrap().keeps_open;
        assert!(no_content("Content-Length: 0\r\n") && !no_content("Content-Length: 5\r\n"));
        assert!(!no_content("Transfer-Encoding: chunked\r\n"));
    }

    #[test]
    fn invalid_responses_are_malformed() {
        for (bad, error) in [
            ("no http\r\n\r\n", BadResponse::Version),
            ("ICY 200 OK\r\n\r\n", BadResponse::Version),
            ("HTTP/2.0 200 OK\r\n\r\n", BadResponse::Version),
            ("HTTP/1.1 20 OK\r\n\r\n", BadResponse::Syntax),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BadResponse::Framing),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", BadResponse::Framing),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", BadResponse::Framing),
            ("HTTP/1.1 200 OK\nContent-Length: 1\n\n", BadResponse::LineFeed),
            ("HTTP/1.1 099 OK\r\n\r\n", BadResponse::Syntax),
            ("HTTP/1.1 200 OK\r\nno field\r\n\r\n", BadResponse::Syntax),
            ("HTTP/1.1 200 OK\r\na b: c\r\n\r\n", BadResponse::Syntax),
            ("HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n", BadResponse::Syntax),
            ("HTTP/1.1 200 OK\r\n : b\r\n\r\n", BadResponse::Syntax),
            ("HTTP/1.1 200 OK\r\na: b\0\r\n\r\n", BadResponse::Syntax),
        ] {
            assert_eq!(read(bad).map(|_| ()), Err(error), "{bad:?}");
        }
        let many = |count, max| {
            let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
            read_response(&Bytes::from(text), &mut HeaderMap::new(), max).map(|head| head.is_some())
        };
        for max in [1, 99, 100, 101, 1000] {
            assert_eq!((many(max, max), many(max + 1, max)), (Ok(true), Err(BadResponse::TooManyFields)));
        }
    }
}
