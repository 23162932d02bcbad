//! The bound of a request's cost.

mod edit;
mod model_of_path;
mod places;
mod reading;

use serde::de::IgnoredAny;

use self::places::pointers;
use self::reading::Reading;
use crate::format::Api;
use crate::json::Scanner;

/// A request to a language model, with its bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The most tokens of the input that the request has: a token has at least one byte.
    pub input: u64,
    /// The most tokens of each output; `None` if the request does not say. 0 for requests that generate no text.
    pub output: Option<u64>,
    /// The number of outputs, at least 1.
    pub outputs: u64,
    /// The member that adds input which the request does not have: a stored conversation, a file, a tool on the server.
    pub hidden: Option<&'static str>,
    /// The request asks for output that the response does not show (reasoning).
    pub reasons: bool,
    /// The model, if it is in the body or the path and has at most 64 bytes.
    pub model: Option<String>,
    /// The client asks for a stream.
    pub is_stream: bool,
    /// The client asks for the usage at the end of the stream. Only OpenAI's chat and completions have this option.
    pub includes_usage: bool,
    positions: edit::Positions,
}

/// A request that has no single meaning, or is no request of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The body is not JSON in UTF-8, or nested more than 128 times.
    #[error("the body is not JSON")]
    NotJson,
    /// The body is not an object.
    #[error("the body is not a JSON object")]
    NotObject,
    /// A member is repeated: the upstream may use any of the values.
    #[error("the body has `{0}` twice")]
    Repeated(&'static str),
    /// A key differs from a known key only in upper and lower case. Some upstreams ignore the case.
    #[error("a key of the body differs from a known one only in upper and lower case")]
    Lookalike,
    /// The API does not allow the value of this member.
    #[error("`{0}` of the body has an invalid value")]
    Invalid(&'static str),
}

impl Request {
    /// Reads a request of this API.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn read(api: Api, body: &[u8]) -> Result<Self, RequestError> {
        // The scanner accepts numbers and strings that a parser does not.
        let text = std::str::from_utf8(body).map_err(|_| RequestError::NotJson)?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|_| RequestError::NotJson)?;
        let (mut reading, mut scanner) = (Reading::new(api), Scanner::new(pointers(api)));
        let whole = scanner.push(body, &mut reading).and_then(|()| scanner.end(&mut reading));
        whole.map_err(|_| RequestError::NotJson)?;
        reading.end(body.len() as u64)
    }
}

#[cfg(test)]
mod tests;
