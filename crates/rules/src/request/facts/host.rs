//! Reads the host of a request.

use std::borrow::Cow;

use http::{HeaderMap, Uri, header};

use super::{BadRequest, HostRequirement};

/// Returns the host of a request, in lower case, without port and trailing dot.
///
/// # Errors
/// A required host is missing, there is more than one host, or the host is invalid.
pub(super) fn read<'a>(
    uri: &'a Uri,
    need: HostRequirement,
    headers: &'a HeaderMap,
) -> Result<Cow<'a, str>, BadRequest> {
    let mut fields = headers.get_all(header::HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err(BadRequest::BadHost);
    }
    let authority = match (uri.authority(), field) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(field)) => field.to_str().map_err(|_| BadRequest::BadHost)?,
        (None, None) if need == HostRequirement::Optional => return Ok(Cow::Borrowed("")),
        (None, None) => return Err(BadRequest::NoHost),
    };
    let host = without_port(authority).ok_or(BadRequest::BadHost)?;
    let host = host.strip_suffix('.').unwrap_or(host);
    // No early exit, so that the compiler vectorises the loop.
    let scan = |(valid, upper), byte: u8| (valid & is_host_byte(byte), upper | byte.is_ascii_uppercase());
    let (valid, has_upper) = host.bytes().fold((true, false), scan);
    if !valid || host.is_empty() || host.len() > 255 {
        return Err(BadRequest::BadHost);
    }
    Ok(if has_upper { Cow::Owned(host.to_ascii_lowercase()) } else { Cow::Borrowed(host) })
}

/// Returns the host of `host`, `host:port`, `[v6]` or `[v6]:port`. Returns `None` if the text after the host is not a
/// port.
fn without_port(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.bytes().position(|byte| byte == b':').unwrap_or(authority.len()),
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
    use http::Version;

    use super::*;

    fn host_of(uri: &str, hosts: &[&str]) -> Result<String, BadRequest> {
        host_with_version(Version::HTTP_11, uri, hosts)
    }

    fn host_with_version(version: Version, uri: &str, hosts: &[&str]) -> Result<String, BadRequest> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().expect("a header value"));
        }
        let uri: Uri = uri.parse().expect("a URI");
        read(&uri, version.into(), &headers).map(Cow::into_owned)
    }

    #[test]
    fn host_is_from_the_target_or_else_from_the_host_field() {
        assert_eq!(host_of("/", &["API.example.com:8080"]).as_deref(), Ok("api.example.com"));
        assert_eq!(host_of("http://a.example/", &["b.example"]).as_deref(), Ok("a.example"));
        assert_eq!(host_of("/", &["example.com."]).as_deref(), Ok("example.com"));
        assert_eq!(host_of("/", &["[::1]:80"]).as_deref(), Ok("[::1]"));
    }

    #[test]
    fn request_without_exactly_one_valid_host_is_rejected() {
        assert_eq!(host_of("/", &[]), Err(BadRequest::NoHost));
        for hosts in [&["a", "b"][..], &[""], &["."], &["a b"], &["a/b"], &["a:b"], &["[::1"], &["user@a"]] {
            assert_eq!(host_of("/", hosts), Err(BadRequest::BadHost), "{hosts:?}");
        }
    }

    #[test]
    fn http_1_0_request_may_lack_a_host() {
        let host_of = |hosts: &[&str]| host_with_version(Version::HTTP_10, "/", hosts);
        assert_eq!(host_of(&[]).as_deref(), Ok(""));
        assert_eq!(host_of(&["A."]).as_deref(), Ok("a"));
        assert_eq!((host_of(&["a", "a"]), host_of(&[""])), (Err(BadRequest::BadHost), Err(BadRequest::BadHost)));
    }
}
