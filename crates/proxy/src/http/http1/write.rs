//! Writes message heads.

use std::io::Write;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;

use super::Framing;
use super::date::with_date;
use tidegate_rules::evaluation::reason;

/// The properties of a request and its connection on which the head of a response depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext {
    /// The version of the request.
    pub(crate) version: Version,
    /// Whether the method was HEAD.
    pub(crate) head_only: bool,
    /// The length of the body, if known.
    pub(crate) length: Option<u64>,
    /// Whether the connection stays open.
    pub(crate) keeps_open: bool,
}

/// Writes the head of a request in HTTP/1.1. The target must be in origin form or `*`.
pub(crate) fn write_request<B>(bytes: &mut Vec<u8>, request: &Request<B>) {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    bytes.extend_from_slice(request.method().as_str().as_bytes());
    // `http://host?query` has an empty path, which is written as `/`.
    bytes.extend_from_slice(if target.starts_with('?') { b" /" } else { b" " });
    bytes.extend_from_slice(target.as_bytes());
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    fields(bytes, request.headers());
    bytes.extend_from_slice(b"\r\n");
}

/// Writes the head of a response with its date and framing. Returns the framing. The `Content-Length` of the response
/// is used if `context` has no length, or if no body follows.
pub(crate) fn write_response<B>(bytes: &mut Vec<u8>, response: &Response<B>, context: ResponseContext) -> Framing {
    start(bytes, response);
    let mut has_date = false;
    for (name, value) in response.headers() {
        let is_framing = *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING;
        if !is_framing && *name != header::CONNECTION {
            has_date |= *name == header::DATE;
            field(bytes, name, value);
        }
    }
    if !has_date {
        with_date(|date| line(bytes, b"date", date));
    }
    let (framing, length) = framing(response, context);
    match (length, framing) {
        (Some(length), _) => line(bytes, b"content-length", itoa::Buffer::new().format(length).as_bytes()),
        (None, Framing::Chunked) => line(bytes, b"transfer-encoding", b"chunked"),
        (None, _) => {}
    }
    if response.status() == StatusCode::UPGRADE_REQUIRED && response.headers().contains_key(header::UPGRADE) {
        line(bytes, b"connection", b"upgrade"); // RFC 9110 section 7.8
    }
    match context.version {
        _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => line(bytes, b"connection", b"upgrade"),
        _ if !context.keeps_open || framing == Framing::UntilClose => line(bytes, b"connection", b"close"),
        Version::HTTP_10 => line(bytes, b"connection", b"keep-alive"),
        _ => {}
    }
    bytes.extend_from_slice(b"\r\n");
    framing
}

/// Writes an informational response (1xx), which has no body.
pub(crate) fn write_informational(bytes: &mut Vec<u8>, response: &Response<()>) {
    start(bytes, response);
    fields(bytes, response.headers());
    bytes.extend_from_slice(b"\r\n");
}

/// Returns the framing of a response, and the `Content-Length` to write.
fn framing<B>(response: &Response<B>, context: ResponseContext) -> (Framing, Option<u64>) {
    let own_length = || super::length(response.headers()).unwrap_or_default();
    match response.status().as_u16() {
        101 => return (Framing::UntilClose, None), // the new protocol ends with the connection
        100..=199 | 204 => return (Framing::Length(0), None),
        304 => return (Framing::Length(0), own_length()),
        // A response to HEAD has no body, so the length of the body counts only without `Content-Length`.
        _ if context.head_only => {
            return (Framing::Length(0), own_length().or(context.length.filter(|length| *length > 0)));
        }
        _ => {}
    }
    match context.length.or_else(own_length) {
        Some(length) => (Framing::Length(length), Some(length)),
        None if context.version == Version::HTTP_11 => (Framing::Chunked, None),
        None => (Framing::UntilClose, None),
    }
}

fn start<B>(bytes: &mut Vec<u8>, response: &Response<B>) {
    let status = response.status();
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    let reason = response.extensions().get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
    bytes.extend_from_slice(reason.unwrap_or_else(|| reason::phrase(status).as_bytes()));
    bytes.extend_from_slice(b"\r\n");
}

/// Writes fields, one line each.
pub(super) fn fields(bytes: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        field(bytes, name, value);
    }
}

fn field(bytes: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    line(bytes, name.as_str().as_bytes(), value.as_bytes());
}

fn line(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    // One check of the capacity for the whole line.
    bytes.reserve(name.len() + value.len() + 4);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
}

/// Writes the size at the start of a chunk.
pub(super) fn chunk_size(bytes: &mut Vec<u8>, size: usize) {
    // Writing to memory cannot fail.
    _ = write!(bytes, "{size:x}\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(response: http::response::Builder, context: ResponseContext) -> (Framing, String) {
        let mut bytes = Vec::new();
        let framing = write_response(&mut bytes, &response.body(()).unwrap(), context);
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.split("\r\n").filter(|line| !line.starts_with("date: "));
        (framing, lines.collect::<Vec<_>>().join("|"))
    }

    const CONTEXT: ResponseContext =
        ResponseContext { version: Version::HTTP_11, head_only: false, length: None, keeps_open: true };

    #[test]
    fn request_is_written_in_origin_form() {
        let request = Request::put("/a/b?c=d").header("host", "api.example").header("x-one", "1").header("x-one", "2");
        let mut bytes = b"before ".to_vec();
        write_request(&mut bytes, &request.body(()).unwrap());
        assert_eq!(bytes, b"before PUT /a/b?c=d HTTP/1.1\r\nhost: api.example\r\nx-one: 1\r\nx-one: 2\r\n\r\n");
        let line = |uri| {
            let mut bytes = Vec::new();
            write_request(&mut bytes, &Request::get(uri).body(()).unwrap());
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(line("http://a.example?b"), "GET /?b HTTP/1.1\r\n\r\n");
        assert_eq!(line("http://a.example"), "GET / HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn response_framing_depends_on_length_and_version() {
        let ok = || Response::builder().header("x", "1").header("connection", "x").header("transfer-encoding", "x");
        let known = ResponseContext { length: Some(5), ..CONTEXT };
        let old = ResponseContext { version: Version::HTTP_10, ..CONTEXT };
        for (context, framing, line) in [
            (known, Framing::Length(5), "content-length: 5|"),
            (CONTEXT, Framing::Chunked, "transfer-encoding: chunked|"),
            (old, Framing::UntilClose, "connection: close|"),
            (
                ResponseContext { length: Some(5), ..old },
                Framing::Length(5),
                "content-length: 5|connection: keep-alive|",
            ),
            (ResponseContext { keeps_open: false, ..old }, Framing::UntilClose, "connection: close|"),
            (
                ResponseContext { keeps_open: false, ..known },
                Framing::Length(5),
                "content-length: 5|connection: close|",
            ),
        ] {
            assert_eq!(write(ok(), context), (framing, format!("HTTP/1.1 200 OK|x: 1|{line}|")));
        }
        let from_field = write(Response::builder().header("content-length", "7"), CONTEXT);
        assert_eq!(from_field, (Framing::Length(7), "HTTP/1.1 200 OK|content-length: 7||".into()));
        let wrong = write(Response::builder().header("content-length", "7"), known);
        assert_eq!(wrong.0, Framing::Length(5));
    }

    #[test]
    fn response_without_body_keeps_its_content_length() {
        let head = ResponseContext { head_only: true, ..CONTEXT };
        let lines = |status: u16, length: Option<u64>, context| {
            let response = Response::builder().status(status);
            let response = if length.is_some() { response.header("content-length", "9") } else { response };
            let (framing, text) = write(response, context);
            assert_eq!(framing, Framing::Length(0));
            text.split('|').nth(1).unwrap().to_owned()
        };
        assert_eq!(lines(204, Some(9), CONTEXT), "");
        assert_eq!(lines(304, Some(9), ResponseContext { length: Some(0), ..CONTEXT }), "content-length: 9");
        assert_eq!(lines(304, None, ResponseContext { length: Some(0), ..CONTEXT }), "");
        assert_eq!(lines(200, Some(9), ResponseContext { length: Some(0), ..head }), "content-length: 9");
        assert_eq!(lines(200, None, ResponseContext { length: Some(0), ..head }), "");
        assert_eq!(lines(200, None, ResponseContext { length: Some(5), ..head }), "content-length: 5");
    }

    #[test]
    fn date_is_written_once_and_reason_is_kept() {
        let mut response = Response::builder().header("date", "then").body(()).unwrap();
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Fine"));
        let mut bytes = Vec::new();
        write_response(&mut bytes, &response, ResponseContext { length: Some(0), ..CONTEXT });
        assert_eq!(bytes, b"HTTP/1.1 200 Fine\r\ndate: then\r\ncontent-length: 0\r\n\r\n");
        bytes.clear();
        write_response(&mut bytes, &Response::new(()), CONTEXT);
        assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\ndate: ") && bytes.windows(6).any(|six| six == b" GMT\r\n"));
    }
}
