//! Why a rate cannot be suggested.

use crate::read::ReadError;

/// A rate cannot be suggested.
#[derive(Debug, thiserror::Error)]
pub enum SuggestError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No limit has this name. The second text lists the limits.
    #[error("no limit `{0}`; the limits are {1}")]
    UnknownLimit(String, String),
    /// The limit has no tier with this name. The third text lists the tiers.
    #[error("limit `{0}` has no tier `{1}`; {2}")]
    UnknownTier(String, String, String),
    /// Each request has its own rate. The second text is the value with the rate.
    #[error("limit `{0}` has the rate of the value `{1}`, so that it has no rate to suggest")]
    RateOfRequest(String, String),
    /// The log has no request that this limit counts. The second text is a hint, or empty.
    #[error("no request of the logs is counted by `{0}`{1}")]
    NoRequests(String, String),
    /// No rate is valid for the limit.
    #[error("no rate can be suggested")]
    NoQuota,
}
