//! The formats of HTTP/1 and HTTP/2 that servers and clients share.

pub mod grpc;
pub mod grpc_health;
pub mod grpc_messages;
pub(crate) mod http1;
pub(crate) mod http2;
