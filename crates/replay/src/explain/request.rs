//! Parses the parts of a request to explain.

use http::header::{HeaderName, HeaderValue};
use http::{Extensions, Method, Uri};

use super::ExplainedRequest;
use tidegate_config::{Config, Listen};
use tidegate_rules::evaluation::{HeadLimits, LargeHead, MAX_METHOD};
use tidegate_rules::request::facts::{BadRequest, ListenerName, TlsPeer};
use tidegate_rules::request::sanitize::BadField;

/// Parses the method of a request.
///
/// # Errors
/// The text is no method.
pub fn method(text: &str) -> Result<Method, String> {
    Method::from_bytes(text.as_bytes()).map_err(|_| "a method is a word such as GET or POST".to_owned())
}

/// Parses the URL of a request. A path has the host `localhost`.
///
/// # Errors
/// The text is no URL of a request.
pub fn target(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}; write http://host/path, or /path"))?;
    let is_url = matches!(uri.scheme_str(), Some("http" | "https"));
    match (is_url || text.starts_with('/') || text == "*") && !text.contains('#') {
        true => Ok(uri),
        // `Uri` would drop a fragment. The gateway rejects such a target.
        false => Err("write http://host/path, or /path, without a fragment".to_owned()),
    }
}

/// Parses a field.
///
/// # Errors
/// The name or the value is not valid.
pub fn field(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = name.parse().map_err(|_| "is not a valid header field name")?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| "has a value that is not valid")?;
    Ok((name, value))
}

/// Returns whether the client uses TLS, and the extensions of the request. A path names no scheme: then the client uses TLS
/// if its listener, or any listener, does.
pub(super) fn arrival(request: &ExplainedRequest, config: &Config) -> (bool, Extensions) {
    let ExplainedRequest { url, tls, listener: name, .. } = request;
    let is_named = |listen: &&Listen| name.is_none() || listen.name == *name;
    let uses_tls = match url.scheme_str() {
        _ if *tls != TlsPeer::default() => true,
        Some(scheme) => scheme == "https",
        None => config.listen.iter().filter(is_named).any(|listen| listen.tls.is_some()),
    };
    let mut of_scheme = config.listen.iter().filter(|listen| listen.tls.is_some() == uses_tls);
    let only = of_scheme.next().filter(|_| of_scheme.next().is_none()).and_then(|listen| listen.name.clone());
    let mut extensions = Extensions::new();
    if let Some(name) = name.clone().or(only) {
        extensions.insert(ListenerName(name));
    }
    (uses_tls, extensions)
}

/// Returns the status and the reason if no listener accepts so large a head.
pub(super) fn describe_large(request: &ExplainedRequest, config: &Config) -> Option<(u16, String)> {
    let max = |limit: fn(&Listen) -> usize, default| config.listen.iter().map(limit).max().unwrap_or(default);
    let limits = HeadLimits {
        fields: max(|listen| listen.max_fields, Listen::DEFAULT_MAX_FIELDS),
        field_bytes: max(|listen| listen.max_field_bytes, Listen::DEFAULT_MAX_FIELD_BYTES),
        target: max(|listen| listen.max_target, Listen::DEFAULT_MAX_TARGET),
    };
    let HeadLimits { fields, field_bytes, target } = limits;
    Some(match limits.check(&request.method, &request.url, &request.headers)? {
        LargeHead::Method => (501, format!("method is longer than {MAX_METHOD} letters")),
        LargeHead::Target => (414, format!("target is longer than {target} bytes")),
        LargeHead::Fields => {
            (431, format!("there are more than {fields} header fields, or {field_bytes} bytes of them"))
        }
    })
}

/// Returns the reason why a request is invalid.
pub(super) fn reason(error: &BadRequest) -> String {
    match error {
        BadRequest::NoHost => format!("{error}: write the target as http://host/path, or add the field `host`"),
        error => error.to_string(),
    }
}

/// Returns the status of the response to an invalid request.
pub(super) fn status(error: &BadRequest) -> u16 {
    match error {
        BadRequest::BadField(BadField::Loop) => 508,
        BadRequest::Tunnel => 501,
        _ => 400,
    }
}
