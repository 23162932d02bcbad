//! Parses the parts of a request to explain.

use http::header::{HeaderName, HeaderValue};
use http::{Method, Uri};

use crate::config::{Config, Listen};
use crate::facts::BadRequest;
use crate::sanitize::BadField;

pub(crate) fn method(text: &str) -> Result<Method, String> {
    Method::from_bytes(text.as_bytes()).map_err(|_| "a method is a word such as GET or POST".to_owned())
}

pub(crate) fn target(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}; write http://host/path, or /path"))?;
    let is_url = matches!(uri.scheme_str(), Some("http" | "https"));
    match (is_url || text.starts_with('/') || text == "*") && !text.contains('#') {
        true => Ok(uri),
        // `Uri` would drop a fragment. The gateway rejects such a target.
        false => Err("write http://host/path, or /path, without a fragment".to_owned()),
    }
}

pub(crate) fn field(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let name = name.parse().map_err(|_| "is not a valid header field name")?;
    let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| "has a value that is not valid")?;
    Ok((name, value))
}

/// Returns the maximum target length of all listeners, in bytes, if the target is longer.
pub(super) fn exceeded_max_target(target: &Uri, config: &Config) -> Option<usize> {
    let max = config.listen.iter().map(|listen| listen.max_target).max().unwrap_or(Listen::DEFAULT_MAX_TARGET);
    let length = target.path_and_query().map_or(0, |path| path.as_str().len());
    (length > max).then_some(max)
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
