//! A response whose fields stay in the header map of its request.

use std::mem::take;

use http::{Request, Response};

use super::body::RequestBody;
use super::response_body::ResponseBody;
use crate::http::http1::StatusLine;

/// A response without its fields, which are in the request's header map. So it stays small while it is passed through
/// the layers.
#[derive(Debug)]
pub struct HeadlessResponse {
    pub(super) line: StatusLine,
    pub(super) body: ResponseBody,
}

impl HeadlessResponse {
    /// Moves the fields of a response into the request's header map.
    pub(super) fn from_response(response: Response<ResponseBody>, request: &mut Request<RequestBody>) -> Self {
        let (head, body) = response.into_parts();
        *request.headers_mut() = head.headers;
        Self { line: StatusLine { status: head.status, version: head.version, reason: None }, body }
    }

    /// Returns the complete response. Reuses the memory of the request's extensions, without their content.
    pub fn into_response(self, request: &mut Request<RequestBody>) -> Response<ResponseBody> {
        let (fields, mut extensions) = (take(request.headers_mut()), take(request.extensions_mut()));
        extensions.clear();
        if let Some(relay) = self.body.relay() {
            extensions.insert(relay.clone());
        }
        self.line.into_response(fields, extensions, self.body)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use http_body_util::Full;

    use super::*;

    #[test]
    fn response_has_no_fields_or_extensions_of_the_request() {
        let mut request = Request::new(RequestBody::none());
        request.headers_mut().insert("x-request", HeaderValue::from_static("1"));
        request.extensions_mut().insert("of the request");
        let mut response = Response::new(ResponseBody::from(Full::new(Bytes::new())));
        response.headers_mut().insert("x-response", HeaderValue::from_static("2"));
        let complete = HeadlessResponse::from_response(response, &mut request).into_response(&mut request);
        assert_eq!(complete.headers().keys().collect::<Vec<_>>(), ["x-response"]);
        assert!(complete.extensions().is_empty());
    }
}
