//! The gRPC status of a call that fails.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::GRPC;
use crate::service::bad_call::BadCall;
use crate::service::response_body::CallBody;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// A status other than OK.
#[derive(Clone, Debug)]
pub(super) struct Status {
    code: u16,
    /// Printable ASCII, which needs no encoding.
    message: Cow<'static, str>,
}

impl Status {
    /// There is no such method.
    pub(super) const UNIMPLEMENTED: Self =
        Self { code: 12, message: Cow::Borrowed("the rate limit service has no such method") };

    /// A health check names a service that is not served.
    pub(super) const NOT_FOUND: Self = Self { code: 5, message: Cow::Borrowed("there is no such service") };

    /// The worker has its greatest number of streams that watch the status.
    pub(super) const TOO_MANY_WATCHES: Self =
        Self { code: 8, message: Cow::Borrowed("too many streams watch the status") };
    /// The gateway drains. The client is to connect to another one.
    pub(super) const DRAINING: Self = Self { code: 14, message: Cow::Borrowed("the rate limit service drains") };

    /// A stream of reflection exceeds a bound.
    pub(super) const QUESTION_TOO_LONG: Self = Self { code: 8, message: Cow::Borrowed("a question is too long") };
    pub(super) const TOO_MANY_QUESTIONS: Self =
        Self { code: 8, message: Cow::Borrowed("too many questions in a stream") };
    pub(super) const STREAM_TOO_LONG: Self =
        Self { code: 4, message: Cow::Borrowed("the stream is open for too long") };

    /// Returns the response: header fields only ("Trailers-Only" in gRPC's PROTOCOL-HTTP2.md).
    pub(super) fn into_response(self) -> Response<CallBody> {
        let mut response = Response::new(CallBody::default());
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, GRPC);
        fields.extend(self.into_trailers());
        response
    }

    /// Returns the trailers of a stream that ends with this status.
    pub(super) fn into_trailers(self) -> HeaderMap {
        let message = HeaderValue::try_from(&*self.message).ok().map(|message| (GRPC_MESSAGE, message));
        [(GRPC_STATUS, self.code.into())].into_iter().chain(message).collect()
    }
}

impl From<BadCall> for Status {
    fn from(error: BadCall) -> Self {
        Self { code: error.grpc_code(), message: error.to_string().into() }
    }
}
