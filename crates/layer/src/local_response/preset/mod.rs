//! Rejections in the forms that clients of well-known APIs parse: `reject: openai`, `anthropic` and `jsonrpc`.

mod anthropic;
mod jsonrpc;
mod openai;

#[cfg(test)]
mod tests;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use super::ConfiguredResponse;
use crate::headers::retry_after;
use tidegate_limit::Wait;
use tidegate_rules::request::body::ReadBody;
use tidegate_rules::route::RejectionPreset;

/// Milliseconds until a retry, which clients prefer over `Retry-After`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Whether clients retry, for any status.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The content of the response about a request that limits reject.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'r> {
    /// The names of the limits, the one with the longest wait first.
    pub limits: &'r [&'r str],
    /// Whether the permits of the first limit are tokens of a language model.
    pub counts_tokens: bool,
    /// The longest wait.
    pub wait: Wait,
    /// The id of the request.
    pub request_id: Option<&'r str>,
    /// The body of the request, if it was read.
    pub body: Option<&'r ReadBody>,
}

/// Returns the response in this form.
pub fn response(preset: RejectionPreset, refusal: Refusal<'_>) -> ConfiguredResponse {
    match preset {
        RejectionPreset::OpenAi => openai::response(refusal),
        RejectionPreset::Anthropic => anthropic::response(refusal),
        RejectionPreset::JsonRpc => jsonrpc::response(refusal),
    }
}

impl Refusal<'_> {
    /// Returns the seconds of `Retry-After`.
    fn seconds(&self) -> Option<u64> {
        retry_after(self.wait)
    }

    fn limit(&self) -> &str {
        self.limits.first().copied().unwrap_or_default()
    }

    /// Describes the rejection for people.
    fn message(&self) -> String {
        let limit = self.limit();
        match self.wait {
            Wait::Never => format!("Request too large: it costs more than the whole limit `{limit}`."),
            Wait::Now | Wait::Millis(_) => {
                let seconds = self.seconds().unwrap_or(1);
                format!("Rate limit `{limit}` reached. Please try again in {seconds} s.")
            }
        }
    }

    fn respond(&self, status: StatusCode, body: &impl Serialize) -> ConfiguredResponse {
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.seconds().map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        match self.wait {
            Wait::Now => {}
            Wait::Millis(millis) => _ = headers.insert(RETRY_AFTER_MS, millis.max(1).into()),
            Wait::Never => _ = headers.insert(SHOULD_RETRY, HeaderValue::from_static("false")),
        }
        // The serialization of strings and numbers cannot fail.
        let mut body = serde_json::to_vec(body).unwrap_or_default();
        body.push(b'\n');
        ConfiguredResponse::new(status, headers, body.into())
    }
}
