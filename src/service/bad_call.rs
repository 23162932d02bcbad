//! The errors of calls, which get no decision.

use http::StatusCode;
use prost::DecodeError;

use tidegate_layer::layer::ActiveDomains;
use tidegate_limit::clock::Stopwatch;
use tidegate_metrics::CallResult;
use tidegate_proxy::http::grpc::BadFrame;
use tidegate_service::CallError;

/// Why a call gets no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadCall {
    /// The body is too long.
    #[error("a body has at most {0} bytes")]
    TooLong(usize),
    /// The body does not arrive in one piece, and too many others do not either.
    #[error("too many requests are incomplete")]
    NoMemory,
    /// The body ends early.
    #[error("the body is incomplete")]
    Incomplete,
    /// The body is not a gRPC message.
    #[error(transparent)]
    Frame(#[from] BadFrame),
    /// The message is malformed.
    #[error("the message is malformed")]
    Message(#[from] DecodeError),
    /// The JSON is malformed, or is no call.
    #[error("the body is no call: {0}")]
    Json(String),
    /// The call exceeds a bound, or has no domain or no descriptors.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A limit that the caller sets has no unit.
    #[error("a limit in a descriptor has an unknown unit")]
    UnknownUnit,
    /// The caller wants to give permits back.
    #[error("negative hits are not supported")]
    NegativeHits,
}

impl BadCall {
    /// Counts and logs a call that arrived at the start of `since`.
    pub(super) fn record(&self, active: &ActiveDomains, since: Stopwatch) {
        active.other_calls().answered(CallResult::Invalid, since.elapsed());
        tracing::debug!(error = %self, "invalid call of the rate limit service");
    }
}

/// The codes of gRPC for these errors (gRPC's statuscodes.md). A call without a domain or descriptors has the code of
/// envoyproxy/ratelimit.
impl BadCall {
    pub(super) fn grpc_code(&self) -> u16 {
        match self {
            // UNKNOWN
            Self::Call(CallError::NoDomain | CallError::NoDescriptors) => 2,
            // INVALID_ARGUMENT
            Self::Call(_) | Self::UnknownUnit | Self::NegativeHits | Self::Json(_) => 3,
            // RESOURCE_EXHAUSTED
            Self::TooLong(_) | Self::NoMemory => 8,
            // UNIMPLEMENTED
            Self::Frame(BadFrame::Compressed) => 12,
            // INTERNAL
            Self::Incomplete | Self::Frame(BadFrame::Malformed) | Self::Message(_) => 13,
        }
    }

    pub(super) fn http_status(&self) -> StatusCode {
        match self {
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoMemory => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
