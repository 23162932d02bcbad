//! Why a gRPC call that both sides hold open has ended.

use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode_str;

use crate::http::grpc_messages::BadMessage;

/// The field with the status of a call.
pub(super) const GRPC_STATUS: &str = "grpc-status";

/// The longest text of a status that is kept, in characters.
const MAX_TEXT: usize = 512;

/// Why a call has ended.
#[derive(Debug, thiserror::Error)]
pub enum CallEnd {
    /// No connection can be opened.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection broke, or the server reset the call.
    #[error("the connection broke: {0}")]
    Broken(#[from] h2::Error),
    /// The server responds in another protocol than gRPC.
    #[error("the server answered with HTTP status {0}")]
    Status(StatusCode),
    /// The server ended the call.
    #[error("the server ended the call with gRPC status {code}{text}")]
    Ended {
        /// The status; 0 is a success.
        code: String,
        /// The text of the status, after a colon. May be empty.
        text: String,
    },
    /// A message cannot be read.
    #[error(transparent)]
    BadMessage(#[from] BadMessage),
}

impl CallEnd {
    /// Reads the status of a call from the last fields of its response.
    pub(super) fn from_fields(fields: &HeaderMap) -> Self {
        let field = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
        let short = |text: &str| text.chars().filter(|letter| !letter.is_control()).take(MAX_TEXT).collect();
        let text: String = short(&percent_decode_str(field("grpc-message").unwrap_or_default()).decode_utf8_lossy());
        let text = if text.is_empty() { text } else { format!(": {text}") };
        Self::Ended { code: short(field(GRPC_STATUS).unwrap_or("(none)")), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_the_server_is_one_line() {
        let end = |fields: &[(&'static str, &'static str)]| {
            let fields = fields
                .iter()
                .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
            CallEnd::from_fields(&fields.collect()).to_string()
        };
        let start = "the server ended the call with gRPC status";
        assert_eq!(
            end(&[("grpc-status", "14"), ("grpc-message", "shuts%20down%0Anow")]),
            format!("{start} 14: shuts downnow")
        );
        assert_eq!(end(&[("grpc-status", "0")]), format!("{start} 0"));
        assert_eq!(end(&[]), format!("{start} (none)"));
    }
}
