//! The head of a request, in HTTP/2.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};

use super::super::body::RequestBody;

/// Fields whose values are secrets. A connection is shared by many clients: were such a value remembered by HPACK, the
/// length of another client's request would tell whether it guessed it (RFC 7541 section 7.1).
const SECRETS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// Of a head that is ready for HTTP/1.1, that for HTTP/2; what it is made of stays, as it may have to be sent again.
pub(super) fn of(request: &Request<RequestBody>, scheme: Scheme) -> Request<()> {
    let mut fields = request.headers().clone();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        fields.remove(name);
    }
    for name in &SECRETS {
        hide(&mut fields, name);
    }
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    let authority = fields.get(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    match authority.and_then(|authority| target(scheme, authority, request.uri())) {
        Some(target) => {
            fields.remove(header::HOST);
            *head.uri_mut() = target;
            *head.version_mut() = Version::HTTP_2;
        }
        // An empty `Host` stays what it is (RFC 9113 section 8.3.1).
        None => *head.uri_mut() = request.uri().clone(),
    }
    *head.headers_mut() = fields;
    head
}

fn hide(fields: &mut HeaderMap, name: &HeaderName) {
    if let Some(value) = fields.get_mut(name) {
        HeaderValue::set_sensitive(value, true);
    }
}

fn target(scheme: Scheme, authority: Authority, uri: &Uri) -> Option<Uri> {
    let path = match uri.path_and_query() {
        Some(path) if path.as_str().starts_with('?') => PathAndQuery::try_from(format!("/{path}")).ok()?,
        Some(path) => path.clone(),
        None => PathAndQuery::from_static("/"),
    };
    let mut parts = http::uri::Parts::default();
    (parts.scheme, parts.authority, parts.path_and_query) = (Some(scheme), Some(authority), Some(path));
    Uri::from_parts(parts).ok()
}
