//! Responses without the service: to malformed bytes, to heads that are too large, and to connections above a cap.

use std::net::SocketAddr;

use http::{Method, Request, StatusCode, Version};

use super::head::rejection_cause;
use tidegate_layer::local_response::LocalResponse;

/// A response that the service did not make.
#[derive(Clone, Copy, Debug)]
pub struct Rejection<'r> {
    /// The client.
    pub peer: SocketAddr,
    /// The status of the response.
    pub status: StatusCode,
    /// The reason, as a fixed label.
    pub cause: &'static str,
    /// The method, the path and the version, if they could be parsed.
    pub request_line: Option<(&'r Method, &'r str, Version)>,
}

impl<'r> Rejection<'r> {
    /// Describes the response to bytes that are not a valid request.
    pub(super) fn bytes(local_response: &LocalResponse, peer: SocketAddr) -> Self {
        Self { peer, status: local_response.status(), cause: rejection_cause(local_response), request_line: None }
    }

    /// Describes the response to a request that is not passed to the service.
    pub(super) fn request<B>(local_response: &LocalResponse, request: &'r Request<B>, peer: SocketAddr) -> Self {
        let request_line = Some((request.method(), request.uri().path(), request.version()));
        Self { request_line, ..Self::bytes(local_response, peer) }
    }

    /// Describes the response to a connection above a cap.
    pub(super) fn connection(cause: &'static str, peer: SocketAddr) -> Self {
        Self { peer, status: StatusCode::SERVICE_UNAVAILABLE, cause, request_line: None }
    }
}
