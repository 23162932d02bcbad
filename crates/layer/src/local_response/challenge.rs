//! `WWW-Authenticate`: the credentials that a route accepts (RFC 9110 section 11.6.1, RFC 6750 section 3, RFC 7617).

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue};

use tidegate_rules::request::identity::{IdentityFault, IdentityKind, IdentityKinds};

/// Adds a challenge for each kind of accepted credentials. The scheme `ApiKey` is not registered, but common. `realm` is the
/// realm of passwords.
pub(super) fn add(fault: IdentityFault, accepted: IdentityKinds, realm: Option<&str>, headers: &mut HeaderMap) {
    if fault.is_temporary() {
        return;
    }
    if accepted.token {
        let bearer = HeaderValue::from_static("Bearer realm=\"api\"");
        let value = match fault.kind() == Some(IdentityKind::Token) {
            true => HeaderValue::from_str(&format!(
                "Bearer realm=\"api\", error=\"invalid_token\", error_description=\"{fault}\""
            ))
            .unwrap_or(bearer),
            false => bearer,
        };
        headers.append(WWW_AUTHENTICATE, value);
    }
    if accepted.key {
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey realm=\"api\""));
    }
    if let Some(realm) = realm.filter(|_| accepted.user) {
        // The rule file allows only characters that need no escapes.
        let value = HeaderValue::try_from(format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
        headers.extend(value.ok().map(|value| (WWW_AUTHENTICATE, value)));
    }
}

/// Adds the challenge of a valid token that does not allow the request.
pub(super) fn add_insufficient_scope(headers: &mut HeaderMap) {
    let value = HeaderValue::from_static("Bearer realm=\"api\", error=\"insufficient_scope\"");
    headers.append(WWW_AUTHENTICATE, value);
}
