//! Writes heads.

use std::io::Write;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;

use super::Framing;
use super::date::date;
use crate::reason;

/// What the head of an answer depends on, beside the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The version of the request.
    pub(crate) version: Version,
    /// Whether the method was HEAD.
    pub(crate) head_only: bool,
    /// The length of the body, if known.
    pub(crate) length: Option<u64>,
    /// Whether the connection stays open.
    pub(crate) keeps_open: bool,
}

/// Writes the head of a request in HTTP/1.1. The target has to be in origin form or `*`.
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

/// Writes the head of an answer with date and framing, and returns the framing. The answer's own `Content-Length` counts if
/// the length is not known otherwise, or if no body follows.
pub(crate) fn write_answer<B>(bytes: &mut Vec<u8>, response: &Response<B>, terms: Terms) -> Framing {
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
        date(|date| line(bytes, b"date", date));
    }
    let (framing, length) = framing(response, terms);
    match (length, framing) {
        (Some(length), _) => line(bytes, b"content-length", itoa::Buffer::new().format(length).as_bytes()),
        (None, Framing::Chunked) => line(bytes, b"transfer-encoding", b"chunked"),
        (None, _) => {}
    }
    match terms.version {
        _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => line(bytes, b"connection", b"upgrade"),
        _ if !terms.keeps_open || framing == Framing::UntilClose => line(bytes, b"connection", b"close"),
        Version::HTTP_10 => line(bytes, b"connection", b"keep-alive"),
        _ => {}
    }
    bytes.extend_from_slice(b"\r\n");
    framing
}

/// Writes an answer that only informs (1xx), which has no body.
pub(crate) fn write_information(bytes: &mut Vec<u8>, answer: &Response<()>) {
    start(bytes, answer);
    fields(bytes, answer.headers());
    bytes.extend_from_slice(b"\r\n");
}

/// The framing, and the `Content-Length` to write.
fn framing<B>(response: &Response<B>, terms: Terms) -> (Framing, Option<u64>) {
    let told = || super::length(response.headers()).unwrap_or_default();
    match response.status().as_u16() {
        101 => return (Framing::UntilClose, None), // of what is spoken from here on
        100..=199 | 204 => return (Framing::Length(0), None),
        304 => return (Framing::Length(0), told()),
        // HEAD sends no body: take the length from the fields, else that of an answer of our own.
        _ if terms.head_only => return (Framing::Length(0), told().or(terms.length.filter(|length| *length > 0))),
        _ => {}
    }
    match terms.length.or_else(told) {
        Some(length) => (Framing::Length(length), Some(length)),
        None if terms.version == Version::HTTP_11 => (Framing::Chunked, None),
        None => (Framing::UntilClose, None),
    }
}

fn start<B>(bytes: &mut Vec<u8>, response: &Response<B>) {
    let status = response.status();
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    let said = response.extensions().get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
    bytes.extend_from_slice(said.unwrap_or_else(|| reason::phrase(status).as_bytes()));
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

/// Writes the size that a chunk begins with.
pub(super) fn chunk_size(bytes: &mut Vec<u8>, size: usize) {
    // Writing to memory cannot fail.
    _ = write!(bytes, "{size:x}\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: http::response::Builder, terms: Terms) -> (Framing, String) {
        let mut bytes = Vec::new();
        let framing = write_answer(&mut bytes, &response.body(()).unwrap(), terms);
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.split("\r\n").filter(|line| !line.starts_with("date: "));
        (framing, lines.collect::<Vec<_>>().join("|"))
    }

    const TERMS: Terms = Terms { version: Version::HTTP_11, head_only: false, length: None, keeps_open: true };

    #[test]
    fn a_request_is_written_in_origin_form() {
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
    fn an_answer_is_framed_by_what_is_known_of_its_length_and_its_reader() {
        let ok = || Response::builder().header("x", "1").header("connection", "x").header("transfer-encoding", "x");
        let known = Terms { length: Some(5), ..TERMS };
        let old = Terms { version: Version::HTTP_10, ..TERMS };
        for (terms, framing, line) in [
            (known, Framing::Length(5), "content-length: 5|"),
            (TERMS, Framing::Chunked, "transfer-encoding: chunked|"),
            (old, Framing::UntilClose, "connection: close|"),
            (Terms { length: Some(5), ..old }, Framing::Length(5), "content-length: 5|connection: keep-alive|"),
            (Terms { keeps_open: false, ..old }, Framing::UntilClose, "connection: close|"),
            (Terms { keeps_open: false, ..known }, Framing::Length(5), "content-length: 5|connection: close|"),
        ] {
            assert_eq!(answer(ok(), terms), (framing, format!("HTTP/1.1 200 OK|x: 1|{line}|")));
        }
        let told = answer(Response::builder().header("content-length", "7"), TERMS);
        assert_eq!(told, (Framing::Length(7), "HTTP/1.1 200 OK|content-length: 7||".into()));
        let wrong = answer(Response::builder().header("content-length", "7"), known);
        assert_eq!(wrong.0, Framing::Length(5));
    }

    #[test]
    fn where_no_body_follows_only_what_is_known_of_it_is_told() {
        let head = Terms { head_only: true, ..TERMS };
        let lines = |status: u16, length: Option<u64>, terms| {
            let response = Response::builder().status(status);
            let response = if length.is_some() { response.header("content-length", "9") } else { response };
            let (framing, text) = answer(response, terms);
            assert_eq!(framing, Framing::Length(0));
            text.split('|').nth(1).unwrap().to_owned()
        };
        assert_eq!(lines(204, Some(9), TERMS), "");
        assert_eq!(lines(304, Some(9), Terms { length: Some(0), ..TERMS }), "content-length: 9");
        assert_eq!(lines(304, None, Terms { length: Some(0), ..TERMS }), "");
        assert_eq!(lines(200, Some(9), Terms { length: Some(0), ..head }), "content-length: 9");
        assert_eq!(lines(200, None, Terms { length: Some(0), ..head }), "");
        assert_eq!(lines(200, None, Terms { length: Some(5), ..head }), "content-length: 5");
    }

    #[test]
    fn the_date_is_told_once_and_a_reason_is_passed_on() {
        let mut response = Response::builder().header("date", "then").body(()).unwrap();
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Fine"));
        let mut bytes = Vec::new();
        write_answer(&mut bytes, &response, Terms { length: Some(0), ..TERMS });
        assert_eq!(bytes, b"HTTP/1.1 200 Fine\r\ndate: then\r\ncontent-length: 0\r\n\r\n");
        bytes.clear();
        write_answer(&mut bytes, &Response::new(()), TERMS);
        assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\ndate: ") && bytes.windows(6).any(|six| six == b" GMT\r\n"));
    }
}
