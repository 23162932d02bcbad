//! An answer on its way through the stages that wait for it.

use std::mem::take;

use http::{Request, Response};

use super::body::RequestBody;
use super::response_body::ResponseBody;
use crate::http1::StatusLine;

/// An answer without its fields, which are in the place of the request's: a stage hands on what fits into a few words.
#[derive(Debug)]
pub(crate) struct HeadlessResponse {
    pub(super) line: StatusLine,
    pub(super) body: ResponseBody,
}

impl HeadlessResponse {
    /// Puts the fields of an answer that came with them in the place of the request's.
    pub(super) fn of(response: Response<ResponseBody>, request: &mut Request<RequestBody>) -> Self {
        let (head, body) = response.into_parts();
        *request.headers_mut() = head.headers;
        Self { line: StatusLine { status: head.status, version: head.version, reason: None }, body }
    }

    /// The whole answer. It has the room of the request's extensions, and nothing of what was in it.
    pub(crate) fn whole(self, request: &mut Request<RequestBody>) -> Response<ResponseBody> {
        let (fields, mut extensions) = (take(request.headers_mut()), take(request.extensions_mut()));
        extensions.clear();
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
    fn an_answer_has_its_own_fields_and_nothing_that_was_noted_of_the_request() {
        let mut request = Request::new(RequestBody::none());
        request.headers_mut().insert("x-asked", HeaderValue::from_static("1"));
        request.extensions_mut().insert("of the request");
        let mut answered = Response::new(ResponseBody::from(Full::new(Bytes::new())));
        answered.headers_mut().insert("x-said", HeaderValue::from_static("2"));
        let response = HeadlessResponse::of(answered, &mut request).whole(&mut request);
        assert_eq!(response.headers().keys().collect::<Vec<_>>(), ["x-said"]);
        assert!(response.extensions().is_empty());
    }
}
