//! The request to a service. It describes the request of the client, without its body.

use http::header::{COOKIE, HOST, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use tidegate_layer::authorization::Question;
use tidegate_proxy::upstream::RequestBody;
use tidegate_rules::request::facts::Facts;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Creates the request. Returns `None` if a value cannot be part of a header field.
///
/// Only the gateway sets `X-Forwarded-*`. The path is the normalized one, which the upstream receives too, so that both read
/// the same path.
pub(super) fn request(question: &Question<'_>, host: &HeaderValue) -> Option<Request<RequestBody>> {
    let Question { check, facts, .. } = question;
    let mut request = Request::new(RequestBody::none());
    *request.uri_mut() = Uri::from(check.url.path());
    let fields = request.headers_mut();
    fields.insert(HOST, host.clone());
    for name in &check.headers {
        copy(name, facts.headers, fields)?;
    }
    fields.insert(X_FORWARDED_METHOD, HeaderValue::from_str(method(facts).as_str()).ok()?);
    fields.insert(X_FORWARDED_PROTO, HeaderValue::from_static(facts.scheme().name()));
    if let Some(host) = sent_host(question) {
        fields.insert(X_FORWARDED_HOST, host?);
    }
    fields.insert(X_FORWARDED_URI, target(facts)?);
    if let Some(address) = question.address {
        fields.insert(X_FORWARDED_FOR, HeaderValue::from_str(&address.to_string()).ok()?);
    }
    // With it, gateways detect a service that is this gateway.
    for value in facts.headers.get_all(VIA) {
        fields.append(VIA, value.clone());
    }
    fields.append(VIA, HeaderValue::from_static("1.1 tidegate"));
    Some(request)
}

/// Copies a field of the client. HTTP/2 clients can send each cookie in its own field (RFC 9113 section 8.2.3).
fn copy(name: &HeaderName, sent: &HeaderMap, fields: &mut HeaderMap) -> Option<()> {
    let mut values = sent.get_all(name).iter();
    if *name == COOKIE {
        let cookies = values.map(HeaderValue::as_bytes).collect::<Vec<_>>();
        if !cookies.is_empty() {
            fields.insert(COOKIE, HeaderValue::from_bytes(&cookies.join(&b"; "[..])).ok()?);
        }
        return Some(());
    }
    values.try_for_each(|value| fields.try_append(name, value.clone()).ok().map(drop))
}

/// Returns the method. An extended CONNECT of HTTP/2 corresponds to a GET with `Upgrade` (RFC 8441).
fn method<'f>(facts: &Facts<'f>) -> &'f Method {
    if *facts.method == Method::CONNECT { &Method::GET } else { facts.method }
}

/// Returns the path and the query.
fn target(facts: &Facts<'_>) -> Option<HeaderValue> {
    let path = facts.path.normalized();
    let text = facts.query.map_or_else(|| path.into(), |query| format!("{path}?{query}"));
    HeaderValue::from_str(&text).ok()
}

/// Returns the host by which the route was found, with its port. `X-Forwarded-Host` does not count: a proxy may forward the
/// field of a client.
fn sent_host(question: &Question<'_>) -> Option<Option<HeaderValue>> {
    match question.target.and_then(Uri::authority) {
        Some(authority) => Some(HeaderValue::from_str(authority.as_str()).ok()),
        None => question.facts.headers.get(HOST).cloned().map(Some),
    }
}
