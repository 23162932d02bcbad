//! Rewrites the heads of requests for HTTP/1.1 upstreams, and the heads of responses for clients.
//!
//! A rewritten request is unambiguous: one host, the path that was matched against the rules, and one framing.

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body;

use super::{ForwardPeer, fields};
use crate::http::http1;
use crate::upstream::{RequestBody, ResponseBody, SendTargetHost};
use tidegate_layer::local_response::LocalResponse;
use tidegate_rules::request::facts::BadRequest;
use tidegate_rules::request::sanitize::{FieldFilter, FieldKind, FieldKinds, hop_by_hop, trailers};
use tidegate_rules::route::HostRewrite;

const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// The results of the layer that are needed to rewrite a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardInput<'p> {
    pub(crate) peer: ForwardPeer,
    pub(crate) kinds: FieldKinds,
    /// The filter for trailers.
    pub(crate) field_filter: Option<&'p FieldFilter>,
    /// The `Host` for a request without one.
    pub(crate) default_host: &'p HeaderValue,
}

/// Rewrites the head of a request for the upstream.
///
/// # Errors
/// The request is ambiguous: servers could parse it in different ways.
pub(crate) fn request(request: &mut Request<RequestBody>, input: ForwardInput<'_>) -> Result<(), LocalResponse> {
    let ForwardInput { peer, mut kinds, field_filter, default_host } = input;
    let received = request.version();
    let length = length(request.body());
    let (host, is_of_target) = host(request.uri(), received, request.headers())?;
    to_origin_form(request.uri_mut());
    let headers = request.headers_mut();
    // The layer does not remove hop-by-hop fields if it is configured for a handler.
    hop_by_hop::remove(headers, &mut kinds);
    if kinds.has(FieldKind::ContentLength) {
        canonical_length(headers, length).ok_or(LocalResponse::Malformed)?;
    }
    if let Some(host) = &host
        && is_of_target
    {
        headers.insert(header::HOST, host.clone());
    }
    if kinds.has(FieldKind::AcceptsTrailers) {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
    if received == Version::HTTP_10 && kinds.has(FieldKind::Expect) {
        // An HTTP/1.0 client does not support 100 (RFC 9110 section 10.1.1).
        headers.remove(header::EXPECT);
    }
    if kinds.has(FieldKind::Cookie) {
        fields::join_cookies(headers);
    }
    let is_hostless = host.is_none();
    fields::set_forwarded(headers, kinds, peer, host);
    if is_hostless {
        headers.insert(header::HOST, default_host.clone());
    }
    fields::add_via(headers, received);
    // In HTTP/1, trailers require a chunked body. In HTTP/2, they may follow a body of known length.
    let can_have_trailers = length.is_none() || (length != Some(0) && received == Version::HTTP_2);
    let announces = kinds.has(FieldKind::Trailer) && announces_trailers(headers, can_have_trailers, field_filter);
    if length.is_none() || announces {
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::TRANSFER_ENCODING, CHUNKED);
    }
    *request.version_mut() = Version::HTTP_11;
    // The extensions describe the client's connection.
    request.extensions_mut().clear();
    Ok(())
}

/// Replaces the host that the upstream receives. `default` is the authority of its first target.
pub(crate) fn rewrite_host(request: &mut Request<RequestBody>, host: &HostRewrite, default: &HeaderValue) {
    let host = match host {
        HostRewrite::Keep => return,
        HostRewrite::Fixed(host) => host,
        HostRewrite::Upstream => {
            request.extensions_mut().insert(SendTargetHost);
            default
        }
    };
    request.headers_mut().insert(header::HOST, host.clone());
}

/// Returns the length of a body, if its framing defines it.
fn length(body: &RequestBody) -> Option<u64> {
    if body.is_end_stream() { Some(0) } else { body.size_hint().exact() }
}

/// Removes from `Trailer` the fields that will not be forwarded as trailers. Returns `true` if any are left.
fn announces_trailers(headers: &mut HeaderMap, can_have_trailers: bool, field_filter: Option<&FieldFilter>) -> bool {
    trailers::filter_announced(headers, |name| match field_filter {
        _ if !can_have_trailers => true,
        Some(field_filter) => field_filter.is_forbidden_trailer(name),
        None => trailers::is_forbidden(name),
    })
}

/// Rewrites the head of a response for the client. Returns `None` if the response is ambiguous.
pub(crate) fn response(response: &mut Response<ResponseBody>, accepts_trailers: bool) -> Option<()> {
    let (received, status) = (response.version(), response.status());
    let headers = response.headers_mut();
    let mut kinds = FieldKinds::classify(headers);
    let is_chunked = kinds.has(FieldKind::TransferEncoding);
    let can_have_trailers = accepts_trailers && (is_chunked || received == Version::HTTP_2);
    if is_chunked {
        check_coding(headers)?;
        headers.remove(header::CONTENT_LENGTH);
    } else if kinds.has(FieldKind::ContentLength) {
        if status.is_informational() || status == StatusCode::NO_CONTENT {
            headers.remove(header::CONTENT_LENGTH); // HTTP/2 clients reject it (RFC 9110 section 8.6)
        } else if begins_with_zero(headers) {
            canonical_length(headers, None)?; // the parser of the response has rejected conflicting lengths
        }
    }
    let protocols = protocols(status, headers);
    hop_by_hop::remove(headers, &mut kinds);
    for protocol in protocols {
        headers.append(header::UPGRADE, protocol);
    }
    if kinds.has(FieldKind::Trailer) {
        trailers::filter_announced(headers, |name| !can_have_trailers || trailers::is_forbidden(name));
    }
    fields::add_via(headers, received);
    *response.version_mut() = Version::HTTP_11;
    Some(())
}

/// Returns the protocol of a 101 response, and the protocols that a 426 response requires (RFC 9110 section 15.5.22).
/// The upstream module has checked that the request offered the protocol of a 101 response.
fn protocols(status: StatusCode, headers: &HeaderMap) -> Vec<HeaderValue> {
    match status {
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED => {
            headers.get_all(header::UPGRADE).iter().cloned().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns `None` unless the only transfer coding is `chunked`. The gateway does not decode any other.
fn check_coding(headers: &HeaderMap) -> Option<()> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    (is_chunked && codings.next().is_none()).then_some(())
}

/// Returns the host, and whether the request target contains it. Then it replaces `Host` (RFC 9112 section 3.2.2).
fn host(uri: &Uri, received: Version, headers: &HeaderMap) -> Result<(Option<HeaderValue>, bool), LocalResponse> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    match (uri.authority(), first) {
        _ if second.is_some() => Err(LocalResponse::BadRequest(BadRequest::BadHost)),
        // The caller inserts the upstream's name, as nginx does: HTTP/1.1 requires a `Host`.
        (None, None) if received == Version::HTTP_10 => Ok((None, false)),
        (None, None) => Err(LocalResponse::BadRequest(BadRequest::NoHost)),
        (None, Some(field)) => Ok((Some(field.clone()), false)),
        (Some(authority), _) if authority.as_str().contains('@') => Err(LocalResponse::BadRequest(BadRequest::BadHost)),
        (Some(authority), _) => {
            let host = HeaderValue::from_str(authority.as_str());
            host.map(|host| (Some(host), true)).map_err(|_| LocalResponse::BadRequest(BadRequest::BadHost))
        }
    }
}

/// Reduces the target to path and query, exactly as they were matched against the rules.
fn to_origin_form(uri: &mut Uri) {
    if uri.authority().is_some() {
        *uri = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
    }
}

/// Rewrites `Content-Length` in canonical form: some servers parse `010` as octal. Returns `None` if the field is
/// invalid, or differs from the known length of the body.
fn canonical_length(headers: &mut HeaderMap, known: Option<u64>) -> Option<()> {
    let length = http1::length(headers).ok()??;
    if known.is_some_and(|known| known != length) {
        return None;
    }
    if begins_with_zero(headers) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Some(())
}

fn begins_with_zero(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_LENGTH).is_some_and(|length| length.as_bytes().first() == Some(&b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_chunked_alone_is_a_transfer_coding() {
        assert_eq!(check_coding(&headers(&[])), Some(()));
        assert_eq!(check_coding(&headers(&[("transfer-encoding", "Chunked")])), Some(()));
        for bad in ["gzip, chunked", "chunked, chunked", "identity", "", "chunked;x"] {
            let bad = headers(&[("transfer-encoding", bad)]);
            assert_eq!(check_coding(&bad), None, "{bad:?}");
        }
        let twice = headers(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]);
        assert_eq!(check_coding(&twice), None);
    }

    #[test]
    fn host_of_the_target_precedes_the_field() {
        let host = |uri, fields: &[_]| host(&Uri::from_static(uri), Version::HTTP_11, &headers(fields));
        let target = HeaderValue::from_static("target.example:8080");
        assert_eq!(host("http://target.example:8080/", &[("host", "field.example")]), Ok((Some(target), true)));
        let field = HeaderValue::from_static("field.example");
        assert_eq!(host("/", &[("host", "field.example")]), Ok((Some(field), false)));
        assert_eq!(host("/", &[("host", "a"), ("host", "a")]), Err(LocalResponse::BadRequest(BadRequest::BadHost)));
        assert_eq!(host("http://u@a/", &[]), Err(LocalResponse::BadRequest(BadRequest::BadHost)));
        assert_eq!(host("/", &[]), Err(LocalResponse::BadRequest(BadRequest::NoHost)));
    }

    #[test]
    fn path_and_query_are_forwarded_unchanged() {
        let form = |uri: &'static str| {
            let mut uri = Uri::from_static(uri);
            to_origin_form(&mut uri);
            uri.to_string()
        };
        assert_eq!(form("http://a.example/b;x=1?c=%2F"), "/b;x=1?c=%2F");
        assert_eq!(form("/b%2Fc?d"), "/b%2Fc?d");
        assert_eq!(form("http://a.example"), "/");
    }

    #[test]
    fn content_length_is_canonical_and_matches_the_body() {
        let length = |text: &'static str, known| {
            let mut headers = headers(&[("content-length", text)]);
            canonical_length(&mut headers, known).map(|()| headers["content-length"].clone())
        };
        for (text, written) in [("10", "10"), ("010", "10"), ("0", "0"), ("00", "0"), ("0007", "7")] {
            assert_eq!(length(text, None).as_ref().and_then(|value| value.to_str().ok()), Some(written), "{text}");
        }
        assert_eq!((length("5", Some(4)), length("5", Some(0))), (None, None));
        for bad in ["5, 5", "", "+5", "0x5"] {
            assert_eq!(length(bad, None), None, "{bad:?}");
        }
        let mut twice = headers(&[("content-length", "5"), ("content-length", "5")]);
        assert_eq!(canonical_length(&mut twice, None), None);
    }
}
