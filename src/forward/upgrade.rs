//! Offers of another protocol, as an upstream is told of them, and what its answers mean to a client of HTTP/2.

use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};

use super::{refused, websocket};
use crate::local_response::LocalResponse;
use crate::upgrade::Upgrade;
use crate::upstream::{RequestBody, ResponseBody};

const WEBSOCKET: &[u8] = b"websocket";

/// A tunnel that a client of HTTP/2 has asked for (extended CONNECT, RFC 8441), and which is to be a switched
/// connection.
#[derive(Debug)]
pub(super) struct ExtendedConnect {
    /// What an upstream says that has understood the handshake of WebSocket.
    accept: Option<HeaderValue>,
}

/// Offers the protocol to the upstream, whose answer is held against what is noted here.
pub(super) fn offer(
    request: &mut Request<RequestBody>,
    upgrade: Upgrade,
    is_connect: bool,
) -> Option<Box<ExtendedConnect>> {
    let headers = request.headers_mut();
    headers.remove(header::TE); // there are origins that read one option of `Connection`
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, upgrade.protocol.clone());
    let mut accept = None;
    if is_connect && upgrade.protocol.as_bytes().eq_ignore_ascii_case(WEBSOCKET) {
        let (key, answer) = websocket::key();
        headers.insert(header::SEC_WEBSOCKET_KEY, key);
        headers.entry(header::SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        accept = Some(answer);
    }
    request.extensions_mut().insert(upgrade);
    is_connect.then(|| Box::new(ExtendedConnect { accept }))
}

impl ExtendedConnect {
    /// The answer for the client. A success that is no switch would tell it that the tunnel is there. Calls `broken` if
    /// it replaces the response.
    pub(super) fn judge(&self, mut response: Response<ResponseBody>, broken: impl FnOnce()) -> Response<ResponseBody> {
        let accepted = response.headers_mut().remove(ACCEPT);
        let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let is_wrong = is_switched && self.accept.is_some() && self.accept != accepted;
        if !is_wrong && !response.status().is_success() {
            return response;
        }
        broken();
        refused(LocalResponse::BadUpstreamResponse, None)
    }
}

const ACCEPT: HeaderName = header::SEC_WEBSOCKET_ACCEPT;
