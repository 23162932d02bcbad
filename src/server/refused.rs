//! What was answered without the service: bytes that are no request, a head that is too large, a connection too many.

use std::net::SocketAddr;

use http::{Method, Request, StatusCode};

use super::head::cause;
use crate::local_response::LocalResponse;

/// An answer that the service was not asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused<'r> {
    /// The client.
    pub peer: SocketAddr,
    /// The answer's status.
    pub status: StatusCode,
    /// Why, in a word of ours.
    pub cause: &'static str,
    /// The method and the path, if so much was understood.
    pub asked: Option<(&'r Method, &'r str)>,
}

impl<'r> Refused<'r> {
    /// Bytes that are no request.
    pub(super) fn bytes(local_response: &LocalResponse, peer: SocketAddr) -> Self {
        Self { peer, status: local_response.status(), cause: cause(local_response), asked: None }
    }

    /// A request that is not handed on.
    pub(super) fn request<B>(local_response: &LocalResponse, request: &'r Request<B>, peer: SocketAddr) -> Self {
        Self { asked: Some((request.method(), request.uri().path())), ..Self::bytes(local_response, peer) }
    }

    /// A connection beyond the cap.
    pub(super) fn connection(cause: &'static str, peer: SocketAddr) -> Self {
        Self { peer, status: StatusCode::SERVICE_UNAVAILABLE, cause, asked: None }
    }
}
