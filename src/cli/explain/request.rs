//! Parses the request from the arguments.

use http::header::{HeaderName, HeaderValue};
use http::{Method, Uri};

use crate::config::{Config, Listen};
use crate::facts::BadRequest;
use crate::sanitize::BadField;

pub(super) fn method(text: &str) -> Result<Method, String> {
    Method::from_bytes(text.as_bytes()).map_err(|_| "a method is a word such as GET or POST".to_owned())
}

pub(super) fn target(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}; write http://host/path, or /path"))?;
    match uri.scheme().is_some() || text.starts_with('/') || text == "*" {
        true => Ok(uri),
        false => Err("write http://host/path, or /path".to_owned()),
    }
}

pub(super) fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| "the text before the colon is not a valid header field name")?;
    let value = value.trim().parse().map_err(|_| "the text after the colon is not a valid header field value")?;
    Ok((name, value))
}

/// Returns the maximum target length of all listeners, in bytes, if the target is longer.
pub(super) fn exceeded_max_target(target: &Uri, config: &Config) -> Option<usize> {
    let max = config.listen.iter().map(|listen| listen.max_target).max().unwrap_or(Listen::DEFAULT_MAX_TARGET);
    let length = target.path_and_query().map_or(0, |path| path.as_str().len());
    (length > max).then_some(max)
}

/// Returns the status of the response to an invalid request.
pub(super) fn status(error: &BadRequest) -> u16 {
    match error {
        BadRequest::BadField(BadField::Loop) => 508,
        BadRequest::Tunnel => 501,
        _ => 400,
    }
}
