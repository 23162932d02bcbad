//! The request line of a log line.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;

use memchr::memrchr;

use super::text::split_once;

/// The parts of a request line. A target in absolute form is split into host and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestLine<'l> {
    pub(super) method: Cow<'l, str>,
    pub(super) target: Cow<'l, str>,
    pub(super) host: Option<Cow<'l, str>>,
}

impl<'l> RequestLine<'l> {
    /// Parses a line such as `GET /a HTTP/1.1`. Returns `None` if the line is not a valid request line, for example
    /// because the server could not parse the request.
    pub(super) fn parse(line: &Cow<'l, str>) -> Option<Self> {
        let (method, rest) = split_once(line, b' ')?;
        let last_space = memrchr(b' ', rest.as_bytes());
        let target = match last_space.map(|at| (&rest[..at], &rest[at + 1..])) {
            Some((target, protocol)) if protocol.starts_with("HTTP/") || protocol == "-" => target,
            Some(_) => return None,
            None => rest, // HTTP/0.9
        };
        let start = method.len() + 1;
        let (method, target) = (part(line, 0..method.len()), part(line, start..start + target.len()));
        Self::new(method, target)
    }

    /// Parses the request line of a line with a client and a status. If the server could not parse the request, the
    /// method and the target are empty. Returns `None` if the line has no client.
    pub(super) fn parse_or_invalid(line: &Cow<'l, str>, client: Option<IpAddr>) -> Option<Self> {
        Self::parse(line).or_else(|| client.map(|_| Self::INVALID))
    }

    /// A request that the server could not parse.
    pub(super) const INVALID: Self = Self { method: Cow::Borrowed(""), target: Cow::Borrowed(""), host: None };

    /// Creates a request line. Returns `None` if the method or the target is invalid in HTTP.
    pub(super) fn new(method: Cow<'l, str>, target: Cow<'l, str>) -> Option<Self> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !method.starts_with(|c: char| c.is_ascii_alphabetic()) || !method.bytes().all(is_token) {
            return None;
        }
        if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
            return Some(Self { method, target, host: None });
        }
        if method == "CONNECT" && target.contains(':') {
            return Some(Self { method, host: Some(target.clone()), target });
        }
        let (scheme, rest) = target.split_once("://")?;
        if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
        let path = target.len() - rest.len() + authority.len();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let start = path - host.len();
        let host = match scheme {
            "http" | "ws" => host.strip_suffix(":80"),
            "https" | "wss" => host.strip_suffix(":443"),
            _ => None,
        }
        .unwrap_or(host);
        let host = Some(part(&target, start..start + host.len())).filter(|host| !host.is_empty());
        let target = match target[path..].starts_with('/') {
            true => part(&target, path..target.len()),
            false => format!("/{}", &target[path..]).into(),
        };
        Some(Self { method, target, host })
    }
}

/// Returns a part of a text. Copies only from an owned text.
fn part<'l>(text: &Cow<'l, str>, range: Range<usize>) -> Cow<'l, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[range]),
        Cow::Owned(text) => Cow::Owned(text[range].to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_are_split() {
        for (line, method, target, host) in [
            ("GET /a?b=c HTTP/1.1", "GET", "/a?b=c", None),
            ("GET /", "GET", "/", None),
            ("GET /a b HTTP/1.1", "GET", "/a b", None),
            ("M-SEARCH //x/../y HTTP/2", "M-SEARCH", "//x/../y", None),
            ("OPTIONS * HTTP/1.1", "OPTIONS", "*", None),
            ("CONNECT example.com:443 HTTP/1.1", "CONNECT", "example.com:443", Some("example.com:443")),
            ("GET http://example.com:80/a HTTP/1.1", "GET", "/a", Some("example.com")),
            ("GET https://u:p@example.com:80?a HTTP/1.1", "GET", "/?a", Some("example.com:80")),
            ("GET wss://[2001:db8::1]:443 HTTP/1.1", "GET", "/", Some("[2001:db8::1]")),
            ("POST ftp:///a -", "POST", "/a", None),
        ] {
            let expected = RequestLine { method: method.into(), target: target.into(), host: host.map(Into::into) };
            assert_eq!(RequestLine::parse(&line.into()).as_ref(), Some(&expected), "{line}");
            assert_eq!(RequestLine::parse(&Cow::Owned(line.to_owned())), Some(expected), "{line}");
        }
    }

    #[test]
    fn garbage_is_no_request() {
        for line in [
            "",
            "-",
            " ",
            "GET",
            "GET ",
            "- - -",
            "- http://example.com:80- ",
            "\u{16}\u{3}\u{1}",
            "\u{16} /a HTTP/1.1",
            "<BADREQ>",
            "PRI * HTTP/2.0",
            "SSH-2.0-OpenSSH_9.6",
            "t3 12.1.2",
            "GET /a b",
            "GET a HTTP/1.1",
            "G\"T / HTTP/1.1",
            "GET ://a HTTP/1.1",
            "GET a b://c HTTP/1.1",
        ] {
            assert_eq!(RequestLine::parse(&line.into()), None, "{line}");
        }
    }
}
