//! Why a request for permits is not decided.

use super::PermitRequest;
use tidegate_store::StoreError;

/// Why a request for permits has no decision. Nothing is charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// No limit has this name.
    #[error("there is no limit `{0}`")]
    NoLimit(String),
    /// The limit has no such client.
    #[error("`client` of `{limit}`: {cause}")]
    Client {
        /// The name of the limit.
        limit: String,
        /// The fault.
        cause: String,
    },
    /// The number of permits is 0, or a full bucket has fewer.
    #[error("`permits` of `{limit}` must be from 1 to {most}, which a full bucket has")]
    Permits {
        /// The name of the limit.
        limit: String,
        /// The permits of a full bucket.
        most: u32,
    },
    /// Two entries name the same bucket. Each alone could be granted the permits that remain.
    #[error("`{0}` is named twice with the same client: add up its permits")]
    Twice(String),
    /// An operator has banned the client.
    #[error("this client is banned")]
    Banned {
        /// The milliseconds until the ban ends.
        millis: u64,
    },
    /// The id is remembered with another request.
    #[error("`id` belongs to another request")]
    OtherRequest,
    /// The permits of the id were given back.
    #[error("the permits of this `id` were given back")]
    Returned,
    /// One call cannot decide the limits and remember the id.
    #[error("a request with `id` cannot name these limits together")]
    Apart,
    /// The store in this process remembers too many ids.
    #[error("too many ids are remembered")]
    NoCapacity,
    /// The store did not decide, and a limit has `on_store_failure: deny`.
    #[error("the store did not answer: {0}")]
    StoreFailed(StoreError),
}

impl TakeError {
    /// Returns `true` if other rules could decide the request.
    pub(super) fn is_about_rules(&self) -> bool {
        match self {
            Self::NoLimit(_) | Self::Client { .. } | Self::Permits { .. } | Self::Twice(_) => true,
            Self::Banned { .. } | Self::Apart => true,
            Self::OtherRequest | Self::Returned | Self::NoCapacity | Self::StoreFailed(_) => false,
        }
    }

    /// Creates the error of a client.
    pub(super) fn client(request: &PermitRequest, cause: impl std::error::Error) -> Self {
        Self::Client { limit: request.limit.clone(), cause: cause.to_string() }
    }
}
