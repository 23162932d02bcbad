//! The messages of calls: envoy/service/ratelimit/v3/rls.proto and envoy/extensions/common/ratelimit/v3/ratelimit.proto.
//! Fields without an effect here are left out, and skipped in calls. Enums are numbers, so that unknown values are errors of
//! the call and not 0.

use crate::service::structs::Struct;

/// A call.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub(super) hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(super) limit: Option<RateLimitOverride>,
    /// A `google.protobuf.UInt64Value`.
    #[prost(message, optional, tag = "3")]
    pub(super) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(super) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Entry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    /// A number of [`unit`](crate::service::unit).
    #[prost(int32, tag = "2")]
    pub(super) unit: i32,
}

/// The values of `RateLimitResponse.Code`.
pub(super) const OK: i32 = 1;
pub(super) const OVER_LIMIT: i32 = 2;

/// The answer to a call.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    pub(super) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(super) response_headers_to_add: Vec<HeaderField>,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) raw_body: bytes::Bytes,
    #[prost(message, optional, tag = "6")]
    pub(super) dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub(super) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(super) duration_until_reset: Option<Seconds>,
}

/// `RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    /// A number of [`unit`](crate::service::unit).
    #[prost(int32, tag = "2")]
    pub(super) unit: i32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

/// A `google.protobuf.Duration` in whole seconds.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Seconds {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

/// A `config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HeaderField {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}
