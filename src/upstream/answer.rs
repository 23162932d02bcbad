//! An answer on its way through the stages that wait for it.

use std::mem::take;

use http::{Request, Response};

use super::body::RequestBody;
use super::response_body::ResponseBody;
use crate::http1::StatusLine;

/// An answer without its fields, which are in the place of the request's: a stage hands on what fits into a few words.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) line: StatusLine,
    pub(super) body: ResponseBody,
}

impl Answer {
    /// Puts the fields of an answer that came with them in the place of the request's.
    pub(super) fn of(response: Response<ResponseBody>, request: &mut Request<RequestBody>) -> Self {
        let (head, body) = response.into_parts();
        *request.headers_mut() = head.headers;
        Self { line: StatusLine { status: head.status, version: head.version, reason: None }, body }
    }

    /// The whole answer, in the room of the request's fields and extensions.
    pub(crate) fn whole(self, request: &mut Request<RequestBody>) -> Response<ResponseBody> {
        let (fields, extensions) = (take(request.headers_mut()), take(request.extensions_mut()));
        self.line.answer(fields, extensions, self.body)
    }
}
