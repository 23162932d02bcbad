//! Builds the head of an HTTP/2 request.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};

use super::super::body::RequestBody;

/// Fields with secret values, which HPACK must not store. Many clients share a connection: from the length of its
/// request, a client could find out whether it has guessed the secret of another client (RFC 7541 section 7.1).
const SECRETS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// Builds the HTTP/2 head of a request whose head is ready for HTTP/1.1. Leaves the request unchanged, so that it can
/// be sent again.
pub(super) fn build(request: &Request<RequestBody>, scheme: Scheme) -> Request<()> {
    let mut fields = request.headers().clone();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        fields.remove(name);
    }
    for name in &SECRETS {
        mark_sensitive(&mut fields, name);
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
        // An empty `Host` is forwarded unchanged (RFC 9113 section 8.3.1).
        None => *head.uri_mut() = request.uri().clone(),
    }
    *head.headers_mut() = fields;
    head
}

fn mark_sensitive(fields: &mut HeaderMap, name: &HeaderName) {
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
