//! Rewrites heads: what came from the client becomes what an HTTP/1.1 origin is sent, and back.
//!
//! Whatever came in, what goes out has one meaning: one host, one path in its normal form, one framing.

use std::borrow::Cow;

use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, Uri, Version, header};
use http_body::Body;

use super::seen::{Field, Seen};
use super::{Peer, fields, hops};
use crate::facts::BadRequest;
use crate::http1;
use crate::path;
use crate::refusal::Refusal;
use crate::upstream::{RequestBody, ResponseBody};

const CHUNKED: HeaderValue = HeaderValue::from_static("chunked");

/// Makes of a request's head what an origin is sent.
///
/// # Errors
/// A request that would mean different things to different servers.
pub(crate) fn request(request: &mut Request<RequestBody>, peer: Peer) -> Result<(), Refusal> {
    let received = request.version();
    let streams = !request.body().is_end_stream() && request.body().size_hint().exact().is_none();
    let host = host(request.uri(), request.headers())?;
    to_origin_form(request.uri_mut())?;
    let headers = request.headers_mut();
    let seen = Seen::of(headers);
    if seen.has(Field::TransferEncoding) {
        check_coding(headers)?;
    }
    if seen.has(Field::ContentLength) {
        one_length(headers).ok_or(Refusal::Malformed)?;
    }
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
    let trailers = seen.has(Field::Te) && hops::accepts_trailers(headers);
    hops::remove(headers, seen);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
    if received == Version::HTTP_10 && seen.has(Field::Expect) {
        // It knows no 100 and does not wait for one (RFC 9110 section 10.1.1).
        headers.remove(header::EXPECT);
    }
    if seen.has(Field::Cookie) {
        fields::join_cookies(headers);
    }
    fields::forwarded(headers, seen, peer);
    fields::via(headers, received);
    if streams {
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::TRANSFER_ENCODING, CHUNKED);
    }
    *request.version_mut() = Version::HTTP_11;
    // What the client's connection left there is about that connection.
    *request.extensions_mut() = Extensions::new();
    Ok(())
}

/// Makes of an answer's head what the client is sent; nothing if it has no one meaning.
pub(crate) fn response(response: &mut Response<ResponseBody>) -> Option<()> {
    let received = response.version();
    let headers = response.headers_mut();
    let seen = Seen::of(headers);
    if seen.has(Field::TransferEncoding) {
        check_coding(headers).ok()?;
        headers.remove(header::CONTENT_LENGTH);
    } else if seen.has(Field::ContentLength) {
        one_length(headers)?;
    }
    hops::remove(headers, seen);
    fields::via(headers, received);
    *response.version_mut() = Version::HTTP_11;
    Some(())
}

/// `chunked` is the one transfer coding there is; any other would have to be decoded here.
fn check_coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Refusal::CodingNotImplemented),
    }
}

/// The one host, where it is not in the one `Host`: that of the target, if it names one (RFC 9112 section 3.2.2).
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next().is_some(), hosts.next().is_some());
    match uri.authority() {
        _ if second => Err(Refusal::BadRequest(BadRequest::BadHost)),
        None if !first => Err(Refusal::BadRequest(BadRequest::NoHost)),
        None => Ok(None),
        Some(authority) if authority.as_str().contains('@') => Err(Refusal::BadRequest(BadRequest::BadHost)),
        Some(authority) => {
            let host = HeaderValue::from_str(authority.as_str());
            host.map(Some).map_err(|_| Refusal::BadRequest(BadRequest::BadHost))
        }
    }
}

/// Leaves the path on which the request was judged, and the query as it came.
fn to_origin_form(uri: &mut Uri) -> Result<(), Refusal> {
    let bad = |error| Refusal::BadRequest(BadRequest::BadPath(error));
    let normal = match path::normalize(uri.path()).map_err(bad)? {
        Cow::Borrowed(_) if uri.authority().is_none() => return Ok(()),
        Cow::Borrowed(_) => uri.path_and_query().cloned(),
        Cow::Owned(path) => {
            let target = match uri.query() {
                Some(query) => format!("{path}?{query}"),
                None => path,
            };
            PathAndQuery::from_maybe_shared(bytes::Bytes::from(target)).ok()
        }
    };
    *uri = normal.ok_or(bad(path::PathError::Character))?.into();
    Ok(())
}

/// `Content-Length` once (RFC 9110 section 8.6): whoever read the message has seen that all of them agree, also where no
/// body follows that would show it.
fn one_length(headers: &mut HeaderMap) -> Option<()> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let is_one = values.next().is_some_and(|value| !value.as_bytes().contains(&b',')) && values.next().is_none();
    if !is_one && let Some(length) = http1::length(headers).ok()? {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Some(())
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
        assert_eq!(check_coding(&headers(&[])), Ok(()));
        assert_eq!(check_coding(&headers(&[("transfer-encoding", "Chunked")])), Ok(()));
        for bad in ["gzip, chunked", "chunked, chunked", "identity", "", "chunked;x"] {
            let bad = headers(&[("transfer-encoding", bad)]);
            assert_eq!(check_coding(&bad), Err(Refusal::CodingNotImplemented), "{bad:?}");
        }
        let twice = headers(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]);
        assert_eq!(check_coding(&twice), Err(Refusal::CodingNotImplemented));
    }

    #[test]
    fn the_origin_is_sent_the_host_of_the_target_before_that_of_the_field() {
        let host = |uri, fields: &[_]| host(&Uri::from_static(uri), &headers(fields));
        let target = HeaderValue::from_static("target.example:8080");
        assert_eq!(host("http://target.example:8080/", &[("host", "field.example")]), Ok(Some(target)));
        assert_eq!(host("/", &[("host", "field.example")]), Ok(None));
        assert_eq!(host("/", &[("host", "a"), ("host", "a")]), Err(Refusal::BadRequest(BadRequest::BadHost)));
        assert_eq!(host("http://u@a/", &[]), Err(Refusal::BadRequest(BadRequest::BadHost)));
        assert_eq!(host("/", &[]), Err(Refusal::BadRequest(BadRequest::NoHost)));
    }

    #[test]
    fn the_origin_is_sent_the_normal_form_of_the_path_and_the_query_as_it_came() {
        let form = |uri: &'static str| {
            let mut uri = Uri::from_static(uri);
            to_origin_form(&mut uri).map(|()| uri.to_string())
        };
        assert_eq!(form("http://a.example/b?c=%2F").as_deref(), Ok("/b?c=%2F"));
        assert_eq!(form("/a/../%62//c?d").as_deref(), Ok("/b/c?d"));
        assert_eq!(form("http://a.example").as_deref(), Ok("/"));
        assert!(form("/..").is_err());
    }

    #[test]
    fn lengths_that_agree_become_one_and_others_no_answer() {
        let mut alike = headers(&[("content-length", "5, 5"), ("content-length", "5")]);
        assert_eq!(one_length(&mut alike), Some(()));
        assert_eq!(alike.get_all("content-length").iter().collect::<Vec<_>>(), ["5"]);
        assert_eq!(one_length(&mut headers(&[("content-length", "5, 6")])), None);
        assert_eq!(one_length(&mut headers(&[("content-length", "5"), ("content-length", "6")])), None);
    }
}
