//! Offers a protocol upgrade to an upstream, and checks its response for HTTP/2 clients.

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};

use super::{local_response, websocket};
use crate::upstream::{RequestBody, ResponseBody};
use tidegate_layer::local_response::LocalResponse;
use tidegate_rules::route::upgrade::Upgrade;

const WEBSOCKET: &[u8] = b"websocket";

/// An extended CONNECT of an HTTP/2 client (RFC 8441), which is forwarded as an HTTP/1.1 upgrade.
#[derive(Debug)]
pub(super) struct ExtendedConnect {
    /// The expected `Sec-WebSocket-Accept` of the response.
    accept: Option<HeaderValue>,
}

/// Adds the offer of a protocol to a request. Returns the state to check the response, if the request is an extended
/// CONNECT.
pub(super) fn offer(
    request: &mut Request<RequestBody>,
    upgrade: Upgrade,
    is_connect: bool,
) -> Option<Box<ExtendedConnect>> {
    let headers = request.headers_mut();
    headers.remove(header::TE); // some servers parse only one option of `Connection`
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, upgrade.protocol.clone());
    let mut accept = None;
    if is_connect && upgrade.protocol.as_bytes().eq_ignore_ascii_case(WEBSOCKET) {
        let (key, expected) = websocket::generate_key();
        headers.insert(header::SEC_WEBSOCKET_KEY, key);
        headers.entry(header::SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        accept = Some(expected);
    }
    request.extensions_mut().insert(upgrade);
    is_connect.then(|| Box::new(ExtendedConnect { accept }))
}

impl ExtendedConnect {
    /// Checks the response for the client. Replaces a success other than 101: the client would take it for an open
    /// tunnel. Calls `on_invalid` if it replaces the response.
    pub(super) fn check_response(
        &self,
        mut response: Response<ResponseBody>,
        on_invalid: impl FnOnce(),
    ) -> Response<ResponseBody> {
        let accepted = response.headers_mut().remove(ACCEPT);
        let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let is_wrong = is_upgraded && self.accept.is_some() && self.accept != accepted;
        if !is_wrong && !response.status().is_success() {
            return response;
        }
        on_invalid();
        local_response(LocalResponse::BadUpstreamResponse { not_retried: None }, None)
    }
}

const ACCEPT: HeaderName = header::SEC_WEBSOCKET_ACCEPT;
