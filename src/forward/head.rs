//! Rewrites heads: what came from the client becomes what an HTTP/1.1 origin is sent, and back.
//!
//! Whatever came in, what goes out has one meaning: one host, the path that was judged, one framing.

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body;

use super::{ForwardPeer, fields};
use crate::facts::BadRequest;
use crate::http1;
use crate::local_response::LocalResponse;
use crate::sanitize::{FieldFilter, FieldKind, FieldKinds, hop_by_hop, trailers};
use crate::upstream::{RequestBody, ResponseBody};

const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// What the layer learned of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardInput<'p> {
    pub(crate) peer: ForwardPeer,
    pub(crate) kinds: FieldKinds,
    /// What its trailers are held against, if there may be any.
    pub(crate) field_filter: Option<&'p FieldFilter>,
    /// The `Host` for a request that came without one.
    pub(crate) upstream: &'p HeaderValue,
}

/// Makes of a request's head what an origin is sent.
///
/// # Errors
/// A request that would mean different things to different servers.
pub(crate) fn request(request: &mut Request<RequestBody>, judged: ForwardInput<'_>) -> Result<(), LocalResponse> {
    let ForwardInput { peer, mut kinds, field_filter, upstream } = judged;
    let received = request.version();
    let length = length(request.body());
    let host = host(request.uri(), received, request.headers())?;
    to_origin_form(request.uri_mut());
    let headers = request.headers_mut();
    // Of a request that was judged for a handler, they are still there.
    hop_by_hop::remove(headers, &mut kinds);
    if kinds.has(FieldKind::ContentLength) {
        canonical_length(headers, length).ok_or(LocalResponse::Malformed)?;
    }
    if let Some(host) = &host {
        headers.insert(header::HOST, host.clone());
    }
    if kinds.has(FieldKind::AcceptsTrailers) {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
    if received == Version::HTTP_10 && kinds.has(FieldKind::Expect) {
        // It knows no 100 and does not wait for one (RFC 9110 section 10.1.1).
        headers.remove(header::EXPECT);
    }
    if kinds.has(FieldKind::Cookie) {
        fields::join_cookies(headers);
    }
    fields::forwarded(headers, kinds, peer, host);
    if received == Version::HTTP_10 && !headers.contains_key(header::HOST) {
        headers.insert(header::HOST, upstream.clone());
    }
    fields::via(headers, received);
    // In HTTP/2 trailers may follow a body of known length; in HTTP/1 only one in chunks.
    let may_trail = length.is_none() || (length != Some(0) && received == Version::HTTP_2);
    let announces = kinds.has(FieldKind::Trailer) && announces(headers, may_trail, field_filter);
    if length.is_none() || announces {
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::TRANSFER_ENCODING, CHUNKED);
    }
    *request.version_mut() = Version::HTTP_11;
    // What the client's connection left there is about that connection.
    request.extensions_mut().clear();
    Ok(())
}

/// How long a body is, as far as its framing tells.
fn length(body: &RequestBody) -> Option<u64> {
    if body.is_end_stream() { Some(0) } else { body.size_hint().exact() }
}

/// Leaves in `Trailer` what will come of trailers; returns whether any will.
fn announces(headers: &mut HeaderMap, may_trail: bool, field_filter: Option<&FieldFilter>) -> bool {
    trailers::filter_announced(headers, |name| match field_filter {
        _ if !may_trail => true,
        Some(field_filter) => field_filter.is_forbidden_trailer(name),
        None => trailers::is_forbidden(name),
    })
}

/// Makes of an answer's head what the client is sent, who may not take trailers; nothing if it has no one meaning.
pub(crate) fn response(response: &mut Response<ResponseBody>, takes_trailers: bool) -> Option<()> {
    let (received, status) = (response.version(), response.status());
    let headers = response.headers_mut();
    let mut kinds = FieldKinds::classify(headers);
    let is_chunked = kinds.has(FieldKind::TransferEncoding);
    let may_trail = takes_trailers && (is_chunked || received == Version::HTTP_2);
    if is_chunked {
        check_coding(headers)?;
        headers.remove(header::CONTENT_LENGTH);
    } else if kinds.has(FieldKind::ContentLength) && begins_with_zero(headers) {
        canonical_length(headers, None)?; // whoever read the answer has refused what is no one length
    }
    let switched = switched_to(status, headers);
    hop_by_hop::remove(headers, &mut kinds);
    if let Some(protocol) = switched {
        headers.insert(header::UPGRADE, protocol);
    }
    if kinds.has(FieldKind::Trailer) {
        trailers::filter_announced(headers, |name| !may_trail || trailers::is_forbidden(name));
    }
    fields::via(headers, received);
    *response.version_mut() = Version::HTTP_11;
    Some(())
}

/// The protocol that an upstream has switched to, of which it was made sure that it was offered.
fn switched_to(status: StatusCode, headers: &HeaderMap) -> Option<HeaderValue> {
    if status == StatusCode::SWITCHING_PROTOCOLS { headers.get(header::UPGRADE).cloned() } else { None }
}

/// `chunked` is the one transfer coding there is; any other would have to be decoded here.
fn check_coding(headers: &HeaderMap) -> Option<()> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    (is_chunked && codings.next().is_none()).then_some(())
}

/// The one host, where it is not in the one `Host`: that of the target, if it names one (RFC 9112 section 3.2.2).
fn host(uri: &Uri, received: Version, headers: &HeaderMap) -> Result<Option<HeaderValue>, LocalResponse> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next().is_some(), hosts.next().is_some());
    match uri.authority() {
        _ if second => Err(LocalResponse::BadRequest(BadRequest::BadHost)),
        // The upstream is told its own name, as by nginx: it is sent HTTP/1.1, which needs one.
        None if !first && received == Version::HTTP_10 => Ok(None),
        None if !first => Err(LocalResponse::BadRequest(BadRequest::NoHost)),
        None => Ok(None),
        Some(authority) if authority.as_str().contains('@') => Err(LocalResponse::BadRequest(BadRequest::BadHost)),
        Some(authority) => {
            let host = HeaderValue::from_str(authority.as_str());
            host.map(Some).map_err(|_| LocalResponse::BadRequest(BadRequest::BadHost))
        }
    }
}

/// Leaves the path and the query, as the layer left them: it is on them that the request was judged.
fn to_origin_form(uri: &mut Uri) {
    if uri.authority().is_some() {
        *uri = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
    }
}

/// Writes `Content-Length` as every server reads it: `010` is eight to some. Nothing if it is none, or another than
/// that of the body, where that is known.
fn canonical_length(headers: &mut HeaderMap, known: Option<u64>) -> Option<()> {
    let told = http1::length(headers).ok()??;
    if known.is_some_and(|length| length != told) {
        return None;
    }
    if begins_with_zero(headers) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(told));
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
    fn the_origin_is_sent_the_host_of_the_target_before_that_of_the_field() {
        let host = |uri, fields: &[_]| host(&Uri::from_static(uri), Version::HTTP_11, &headers(fields));
        let target = HeaderValue::from_static("target.example:8080");
        assert_eq!(host("http://target.example:8080/", &[("host", "field.example")]), Ok(Some(target)));
        assert_eq!(host("/", &[("host", "field.example")]), Ok(None));
        assert_eq!(host("/", &[("host", "a"), ("host", "a")]), Err(LocalResponse::BadRequest(BadRequest::BadHost)));
        assert_eq!(host("http://u@a/", &[]), Err(LocalResponse::BadRequest(BadRequest::BadHost)));
        assert_eq!(host("/", &[]), Err(LocalResponse::BadRequest(BadRequest::NoHost)));
    }

    #[test]
    fn the_origin_is_sent_the_path_and_the_query_as_they_were_judged() {
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
    fn a_length_is_written_as_everybody_reads_it_and_is_that_of_the_body() {
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
