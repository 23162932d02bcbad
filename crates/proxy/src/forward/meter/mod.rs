//! Reads the cost of a request from its response while the response is forwarded, and settles the reservations of the request.

mod body;

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Response, StatusCode};

use self::body::{Meter, MeteredBody};
use crate::transport::Relay;
use crate::upstream::ResponseBody;
use tidegate_layer::layer::NotSent;
use tidegate_layer::metering::{Metering, ResponseReader};

/// Reads the usage from a response to a request that was sent. The gateway has made all other responses.
pub(super) fn meter(response: &mut Response<ResponseBody>, metering: Arc<Metering>, is_forwarded: bool) {
    if !is_forwarded || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if response.extensions().get::<NotSent>().is_some() {
            metering.record_not_sent();
        }
        return;
    }
    // An API charges nothing for errors, whose bodies have no usage.
    let is_free = response.status().is_client_error() || response.status().is_server_error();
    let reader = Some(metering.reader(response.headers()));
    let reader = reader.filter(|reader| !reader.reads_content() || !is_encoded(response.headers()));
    if reader.as_ref().is_some_and(ResponseReader::reads_head) {
        return Meter { reader, metering, is_free }.finish();
    }
    let has_events = reader.as_ref().is_some_and(ResponseReader::reads_events);
    let removes_usage = metering.removes_usage() && has_events;
    if removes_usage || (metering.has_slices() && has_events) {
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response.extensions_mut().remove::<Relay>(); // the bytes are needed in memory
    response.body_mut().wrap(|body| MeteredBody::new(body, Meter { reader, metering, is_free }, removes_usage));
}

/// Returns `true` if the response has a content coding, although the gateway has not accepted one.
fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}
