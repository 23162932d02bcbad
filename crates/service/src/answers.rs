//! The content of answers to calls in addition to the statuses of descriptors.

use http::HeaderName;
use tidegate_rules::limits::policy::RateLimitHeaders;

/// The optional content of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerSettings {
    /// The fields for the response to the client of the proxy.
    pub headers: RateLimitHeaders,
    /// The names of the fields of [`RateLimitHeaders::legacy`].
    pub legacy_names: LegacyNames,
    /// Whether answers repeat the call, with the metadata of its limits, as dynamic metadata.
    pub dynamic_metadata: bool,
}

/// The names of the three fields that describe the limit of a call with the fewest remaining requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyNames {
    /// The requests in each unit or interval.
    pub limit: HeaderName,
    /// The remaining requests.
    pub remaining: HeaderName,
    /// The seconds until the reset.
    pub reset: HeaderName,
}

/// The names on routes.
impl Default for LegacyNames {
    fn default() -> Self {
        Self {
            limit: HeaderName::from_static("x-ratelimit-limit"),
            remaining: HeaderName::from_static("x-ratelimit-remaining"),
            reset: HeaderName::from_static("x-ratelimit-reset"),
        }
    }
}
