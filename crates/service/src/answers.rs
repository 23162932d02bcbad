//! The settings of answers to calls: their content in addition to the statuses of descriptors, and their deadline.

use std::time::Duration;

use http::HeaderName;
use tidegate_rules::limits::policy::RateLimitHeaders;

/// The settings of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerSettings {
    /// The fields for the response to the client of the proxy.
    pub headers: RateLimitHeaders,
    /// The names of the fields of [`RateLimitHeaders::legacy`].
    pub legacy_names: LegacyNames,
    /// Whether answers repeat the call, with the metadata of its limits, as dynamic metadata.
    pub dynamic_metadata: bool,
    /// The longest time for the decision about a call.
    pub timeout: Duration,
}

impl AnswerSettings {
    /// The default of [`timeout`](Self::timeout): Envoy waits 20 ms for an answer, and then lets the request pass.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(12);
}

impl Default for AnswerSettings {
    fn default() -> Self {
        Self {
            headers: RateLimitHeaders::default(),
            legacy_names: LegacyNames::default(),
            dynamic_metadata: false,
            timeout: Self::DEFAULT_TIMEOUT,
        }
    }
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
