//! The request of a check, and whether its response passes.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};

use super::grpc;
use crate::http::grpc_health::CHECK_PATH;
use crate::transport::BodyData;
use crate::upstream::body::RequestBody;
use crate::upstream::response_body::ResponseBody;
use tidegate_rules::settings::upstream::HealthRequest;

const CHECK_USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " health");

/// The largest body of a gRPC response, in bytes.
const MAX_BODY: usize = 16 * 1024;

/// Creates the request of a check.
pub(super) fn build(settings: &HealthRequest, host: &HeaderValue) -> Request<RequestBody> {
    let mut request = match settings {
        HealthRequest::Http { path, .. } => {
            let mut request = Request::new(RequestBody::none());
            *request.uri_mut() = path.clone().into();
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            request
        }
        HealthRequest::Grpc { grpc: service } => {
            let message = Bytes::from(grpc::encode_request(service));
            let mut request = Request::new(RequestBody::new(Full::<BodyData>::from(message)));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = http::Uri::from_static(CHECK_PATH);
            let fields = request.headers_mut();
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            fields.insert(TE, HeaderValue::from_static("trailers"));
            request
        }
    };
    request.headers_mut().insert(HOST, host.clone());
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(CHECK_USER_AGENT));
    request
}

/// Checks a response. Returns its status as a text. The body of an HTTP response is not read.
pub(super) async fn check(settings: &HealthRequest, response: Response<ResponseBody>) -> Result<String, String> {
    let status = response.status().as_u16();
    let text = format!("status {status}");
    match settings {
        HealthRequest::Http { expect, .. } => {
            let is_expected = expect.iter().any(|range| range.contains(status));
            if is_expected { Ok(text) } else { Err(text) }
        }
        HealthRequest::Grpc { .. } if status != 200 => Err(text),
        HealthRequest::Grpc { .. } => check_grpc(response).await.map(|()| "SERVING".to_owned()),
    }
}

async fn check_grpc(response: Response<ResponseBody>) -> Result<(), String> {
    let (head, body) = response.into_parts();
    if let Some(status) = grpc_status(&head.headers) {
        return Err(format!("grpc-status {status}"));
    }
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| format!("body: {error}"))?;
    match body.trailers().and_then(grpc_status) {
        Some(0) => Ok(grpc::check_response(&body.to_bytes())?),
        Some(status) => Err(format!("grpc-status {status}")),
        None => Err("the response has no valid grpc-status".to_owned()),
    }
}

/// Returns the status of a gRPC call, if it is valid.
fn grpc_status(fields: &HeaderMap) -> Option<u32> {
    fields.get("grpc-status")?.to_str().ok()?.parse().ok()
}
