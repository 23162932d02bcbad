//! What a request says about itself: the facts on which routes and clients are decided.
//!
//! There is one normal form of the path, for matching, for keys and for the upstream, so that no spelling of a path
//! walks around a limit.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri, header};

use crate::path;

/// The longest path and query together, in bytes.
const MAX_TARGET: usize = 8 * 1024;

/// The facts of one request, from a live one, a log line or the command line.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The authority's host in lower case, without port and trailing dot; from the target if it has one, else `Host`.
    pub host: Cow<'a, str>,
    /// The path in its normal form (see `path::normalize`).
    pub path: Cow<'a, str>,
    /// The query as it was sent, without the question mark.
    pub query: Option<&'a str>,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The address at the other end of the connection, IPv4-mapped addresses unwrapped.
    pub peer: IpAddr,
}

/// Why a request cannot be judged and is answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// RFC 9112 section 3.2.
    #[error("request has no host")]
    NoHost,
    /// RFC 9112 section 3.2: more than one Host, or one that is not a host.
    #[error("request has no valid host")]
    BadHost,
    /// RFC 9110 section 15.5.15; answered with 414.
    #[error("target is longer than {MAX_TARGET} bytes")]
    TargetTooLong,
    /// The path has no normal form that every origin would agree on.
    #[error("path is not valid: {0}")]
    BadPath(#[from] path::PathError),
}

impl<'a> Facts<'a> {
    /// Reads the facts from the parts of a request.
    ///
    /// # Errors
    /// A request without one valid host, or whose path means different things to different servers.
    pub fn read(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap, peer: IpAddr) -> Result<Self, BadRequest> {
        if uri.path().len() + uri.query().map_or(0, str::len) > MAX_TARGET {
            return Err(BadRequest::TargetTooLong);
        }
        Ok(Self {
            method,
            host: host(uri, headers)?,
            path: path::normalize(uri.path())?,
            query: uri.query(),
            headers,
            peer: peer.to_canonical(),
        })
    }
}

fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Cow<'a, str>, BadRequest> {
    let mut fields = headers.get_all(header::HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err(BadRequest::BadHost);
    }
    let authority = match (uri.authority(), field) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(field)) => field.to_str().map_err(|_| BadRequest::BadHost)?,
        (None, None) => return Err(BadRequest::NoHost),
    };
    let host = without_port(authority).ok_or(BadRequest::BadHost)?;
    let valid = !host.is_empty() && host.len() <= 255 && host.bytes().all(is_host_byte);
    if !valid {
        return Err(BadRequest::BadHost);
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    Ok(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}

/// The host of `host`, `host:port`, `[v6]` or `[v6]:port`; nothing if what follows the host is not a port.
fn without_port(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || (port.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit()));
    is_port.then_some(host)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'[' | b']' | b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_of(uri: &str, hosts: &[&str]) -> Result<String, BadRequest> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().expect("a header value"));
        }
        let uri: Uri = uri.parse().expect("a URI");
        host(&uri, &headers).map(Cow::into_owned)
    }

    #[test]
    fn the_host_comes_from_the_target_or_else_from_the_one_host_field() {
        assert_eq!(host_of("/", &["API.example.com:8080"]).as_deref(), Ok("api.example.com"));
        assert_eq!(host_of("http://a.example/", &["b.example"]).as_deref(), Ok("a.example"));
        assert_eq!(host_of("/", &["example.com."]).as_deref(), Ok("example.com"));
        assert_eq!(host_of("/", &["[::1]:80"]).as_deref(), Ok("[::1]"));
    }

    #[test]
    fn a_request_without_one_valid_host_is_bad() {
        assert_eq!(host_of("/", &[]), Err(BadRequest::NoHost));
        for hosts in [&["a", "b"][..], &[""], &["a b"], &["a/b"], &["a:b"], &["[::1"], &["user@a"]] {
            assert_eq!(host_of("/", hosts), Err(BadRequest::BadHost), "{hosts:?}");
        }
    }
}
