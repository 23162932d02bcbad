//! The messages of xDS (envoy/service/discovery/v3/discovery.proto) and the configurations of envoyproxy/ratelimit
//! (ratelimit/config/ratelimit/v3/rls_conf.proto), with the fields that are used.

use bytes::Bytes;
use prost::{Enumeration, Message};

use crate::service::structs::Struct;

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryRequest {
    /// The version that was accepted last in this stream.
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, optional, tag = "2")]
    pub(super) node: Option<Node>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    /// The nonce of the response that is accepted or rejected.
    #[prost(string, tag = "5")]
    pub(super) response_nonce: String,
    /// Why the response is rejected.
    #[prost(message, optional, tag = "6")]
    pub(super) error_detail: Option<Status>,
}

/// envoy.config.core.v3.Node
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "6")]
    pub(super) user_agent_name: String,
    #[prost(string, tag = "7")]
    pub(super) user_agent_version: String,
}

/// google.rpc.Status
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// google.protobuf.Any
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitConfig {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) descriptors: Vec<RateLimitDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitDescriptor {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(message, optional, tag = "3")]
    pub(super) rate_limit: Option<RateLimitPolicy>,
    #[prost(message, repeated, tag = "4")]
    pub(super) descriptors: Vec<Self>,
    #[prost(bool, tag = "5")]
    pub(super) shadow_mode: bool,
    #[prost(bool, tag = "6")]
    pub(super) detailed_metric: bool,
    #[prost(bool, tag = "7")]
    pub(super) quota_mode: bool,
    #[prost(message, optional, tag = "8")]
    pub(super) metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitPolicy {
    #[prost(enumeration = "RateLimitUnit", tag = "1")]
    pub(super) unit: i32,
    #[prost(uint32, tag = "2")]
    pub(super) requests_per_unit: u32,
    #[prost(bool, tag = "3")]
    pub(super) unlimited: bool,
    #[prost(string, tag = "4")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) replaces: Vec<RateLimitReplace>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitReplace {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum RateLimitUnit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}
