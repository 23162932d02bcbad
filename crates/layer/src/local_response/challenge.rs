//! `WWW-Authenticate`: the credentials that a route accepts (RFC 9110 section 11.6.1, RFC 6750 section 3).

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue};

use tidegate_rules::request::identity::{IdentityFault, IdentityKinds};

/// Adds a challenge for each kind of accepted credentials. The scheme `ApiKey` is not registered, but common.
pub(super) fn add(fault: IdentityFault, accepted: IdentityKinds, headers: &mut HeaderMap) {
    if fault == IdentityFault::Unavailable {
        return;
    }
    if accepted.token {
        let value = match fault.is_of_token() {
            true => HeaderValue::from_str(&format!(
                "Bearer realm=\"api\", error=\"invalid_token\", error_description=\"{fault}\""
            ))
            .unwrap_or_else(|_| HeaderValue::from_static("Bearer realm=\"api\"")),
            false => HeaderValue::from_static("Bearer realm=\"api\""),
        };
        headers.append(WWW_AUTHENTICATE, value);
    }
    if accepted.key {
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey realm=\"api\""));
    }
}
