//! Heads: of requests as they are written, of answers as they are read.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use super::framing::Told;
use super::{MAX_FIELDS, Malformed};

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<()>,
    /// How many bytes it had.
    pub(crate) length: usize,
    pub(crate) told: Told,
    /// Whether the connection may serve another request, as far as the sender is concerned.
    pub(crate) keeps_open: bool,
}

/// Writes the head of a request in HTTP/1.1, whose target is in origin form or `*`.
pub(crate) fn write_request<B>(bytes: &mut Vec<u8>, request: &Request<B>) {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    bytes.extend_from_slice(request.method().as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(target.as_bytes());
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(bytes, request.headers());
    bytes.extend_from_slice(b"\r\n");
}

/// Writes fields, a line each.
pub(super) fn write_fields(bytes: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Reads the head of an answer from the front of `bytes`, which its fields share; nothing if it is not all there.
/// `fields` are empty and become its own, so that their room is used again.
///
/// # Errors
/// It is none.
pub(crate) fn read_answer(bytes: &Bytes, fields: &mut HeaderMap) -> Result<Option<Answer>, Malformed> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut lines).map_err(|_| Malformed)?;
    let (Status::Complete(length), Some(code)) = (status, parsed.code) else { return Ok(None) };
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let (mut told, mut persistence) = (Told::default(), Persistence::of(version));
    for line in parsed.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| Malformed)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(line.value)).map_err(|_| Malformed)?;
        told.note(&name, &value)?;
        if name == header::CONNECTION {
            persistence.note(&value);
        }
        fields.append(name, value);
    }
    if told.is_chunked() && version != Version::HTTP_11 {
        return Err(Malformed); // the sender cannot know what it says
    }
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(code).map_err(|_| Malformed)?;
    *response.version_mut() = version;
    *response.headers_mut() = std::mem::take(fields);
    if let Some(reason) = parsed.reason.filter(|reason| Some(*reason) != response.status().canonical_reason())
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    let keeps_open = persistence.keeps_open() && !told.is_doubtful();
    Ok(Some(Answer { response, length, told, keeps_open }))
}

/// What the lines of `Connection` say about another message (RFC 9112 section 9.3).
#[derive(Clone, Copy, Debug)]
struct Persistence {
    by_default: bool,
    close: bool,
    keep_alive: bool,
}

impl Persistence {
    fn of(version: Version) -> Self {
        Self { by_default: version == Version::HTTP_11, close: false, keep_alive: false }
    }

    fn note(&mut self, connection: &HeaderValue) {
        for option in connection.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// `close` is the last word, wherever it stands.
    fn keeps_open(self) -> bool {
        !self.close && (self.by_default || self.keep_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Answer>, Malformed> {
        read_answer(&Bytes::copy_from_slice(text.as_bytes()), &mut HeaderMap::new())
    }

    #[test]
    fn a_request_is_written_in_origin_form() {
        let request = Request::put("/a/b?c=d").header("host", "api.example").header("x-one", "1").header("x-one", "2");
        let mut bytes = b"before ".to_vec();
        write_request(&mut bytes, &request.body(()).unwrap());
        assert_eq!(bytes, b"before PUT /a/b?c=d HTTP/1.1\r\nhost: api.example\r\nx-one: 1\r\nx-one: 2\r\n\r\n");
    }

    #[test]
    fn an_answer_is_read_when_all_of_its_head_is_here() {
        let text = "HTTP/1.1 404 Not Here\r\nServer: x\r\nX-A:  1 \r\nx-a: 2\r\n\r\nbody";
        for end in 0..text.len() - 4 {
            assert!(read(&text[..end]).unwrap().is_none(), "{end}");
        }
        let answer = read(text).unwrap().unwrap();
        assert_eq!((answer.length, answer.keeps_open), (text.len() - 4, true));
        assert_eq!((answer.response.status(), answer.response.version()), (StatusCode::NOT_FOUND, Version::HTTP_11));
        assert_eq!(answer.response.headers().get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        let reason = answer.response.extensions().get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        assert_eq!(reason, Some(&b"Not Here"[..]));
    }

    #[test]
    fn an_answer_says_whether_another_may_follow() {
        let keeps_open = |version: &str, connection: &str| {
            let answer = read(&format!("HTTP/{version} 200 OK\r\n{connection}\r\n")).unwrap().unwrap();
            assert!(answer.response.extensions().is_empty());
            answer.keeps_open
        };
        assert!(keeps_open("1.1", ""));
        assert!(keeps_open("1.1", "Connection: x\r\n"));
        assert!(keeps_open("1.0", "Connection: x, Keep-Alive\r\n"));
        assert!(!keeps_open("1.0", ""));
        assert!(!keeps_open("1.0", "Connection: keep-alive, close\r\n"));
        assert!(!keeps_open("1.1", "Connection: x ,\tClose\r\n"));
        assert!(!keeps_open("1.1", "Connection: close\r\nConnection: keep-alive\r\n"));
        assert!(!keeps_open("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"));
    }

    #[test]
    fn what_is_no_answer_is_not_read() {
        for bad in [
            "no http\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno field\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\na : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\0\r\n\r\n",
        ] {
            assert_eq!(read(bad).map(|_| ()), Err(Malformed), "{bad:?}");
        }
        assert!(read(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(100))).is_ok());
        assert!(read(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101))).is_err());
    }
}
