//! The access log as a Tower layer: writes a line for each request when its response has ended.
//!
//! Also catches panics: the request is answered with 500, or a gRPC call with INTERNAL. No other request is affected.

mod body;
mod catch_panic;
mod line;
mod sample;
#[cfg(feature = "otlp")]
mod traces;
#[cfg(not(feature = "otlp"))]
#[path = "no_traces.rs"]
mod traces;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tower::Service;

pub use self::body::LoggedBody;
use self::catch_panic::{CatchPanic, Panicked, catch_panic, catch_panics};
use self::line::LogLine;
pub use self::line::log_rejection;
pub use self::sample::set_sample;
pub use self::traces::Traces;
use crate::forward::Forward;
use crate::talkers::TalkerRecorder;
use crate::transport::BodyData;
use crate::upstream::{BoxError, RequestBody};
use tidegate_layer::layer::{RateLimited, X_REQUEST_ID};
use tidegate_layer::local_response::{GrpcCall, LocalResponse};
use tidegate_metrics::Metrics;

/// The target of access log events, which separates them from the program log.
pub const TARGET: &str = "tidegate::access";

/// The target of events about traces. The path of their module would make them a part of the access log.
const TRACES_TARGET: &str = "tidegate::traces";

/// Writes an access log line for each request to the inner service, and makes its trace.
#[derive(Debug, Default)]
pub struct AccessLogLayer(Recorders);

/// A service with an access log. See [`AccessLogLayer`].
#[derive(Clone, Debug)]
pub struct AccessLog<S> {
    inner: S,
    /// Together, since each connection has a copy of the service.
    recorders: Arc<Recorders>,
}

/// Record requests, in addition to the log.
#[derive(Debug, Default)]
struct Recorders {
    traces: Traces,
    talkers: Option<Arc<TalkerRecorder>>,
}

// The task of an idle connection contains the service. With a pointer more, the task takes 128 bytes more.
const _: () = assert!(size_of::<AccessLog<RateLimited<Forward>>>() <= 16);

pin_project! {
    /// The response future of [`AccessLog`].
    pub struct ResponseFuture<F> {
        // `None` if the call panicked.
        #[pin]
        inner: Option<CatchPanic<F>>,
        // `None` if the request is neither logged, traced nor counted.
        line: Option<Box<LogLine>>,
        // Set for a gRPC call, which needs a gRPC error after a panic.
        grpc_call: Option<GrpcCall>,
    }
}

impl AccessLogLayer {
    /// Creates a layer that makes traces.
    pub fn new(traces: Traces) -> Self {
        Self(Recorders { traces, talkers: None })
    }

    /// Counts the requests of clients, while the recorder is on.
    pub fn with_talkers(self, talkers: Option<Arc<TalkerRecorder>>) -> Self {
        Self(Recorders { talkers, ..self.0 })
    }

    /// Wraps a service.
    pub fn layer<S>(self, inner: S) -> AccessLog<S> {
        AccessLog { inner, recorders: Arc::new(self.0) }
    }
}

impl<S, B> Service<Request<RequestBody>> for AccessLog<S>
where
    S: Service<Request<RequestBody>, Response = Response<Either<B, Full<Bytes>>>, Error = Infallible>,
    B: Body<Data: Into<BodyData>, Error: Into<BoxError>>,
{
    type Response = Response<LoggedBody<B>>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> ResponseFuture<S::Future> {
        let Recorders { traces, talkers } = &*self.recorders;
        let span = traces.start_request(&mut request);
        let line = LogLine::start(&mut request, span, talkers.as_ref());
        let grpc_call = GrpcCall::detect(request.method(), request.headers());
        ResponseFuture { inner: catch_panic(|| self.inner.call(request)).ok().map(catch_panics), line, grpc_call }
    }
}

impl<F, B> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<Either<B, Full<Bytes>>>, Infallible>>,
    B: Body<Data: Into<BodyData>, Error: Into<BoxError>>,
{
    type Output = Result<Response<LoggedBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = match this.inner.as_pin_mut() {
            Some(inner) => ready!(inner.poll(cx)),
            None => Err(Panicked),
        };
        let mut line = this.line.take();
        Poll::Ready(Ok(match result {
            Ok(Ok(response)) => with_log_line(response, line),
            Err(Panicked) => {
                Metrics::panicked();
                let mut response = LocalResponse::Panicked.into_response_for(*this.grpc_call, HeaderMap::new());
                if let Some(line) = &mut line {
                    line.end_early("panicked");
                    if let Some(id) = line.request_id() {
                        response.headers_mut().insert(X_REQUEST_ID, id.clone());
                    }
                }
                with_log_line(response.map(Either::Right), line)
            }
        }))
    }
}

/// Wraps the body of a response, so that its end is recorded in the line.
fn with_log_line<B>(
    response: Response<Either<B, Full<Bytes>>>,
    mut line: Option<Box<LogLine>>,
) -> Response<LoggedBody<B>>
where
    B: Body<Data: Into<BodyData>, Error: Into<BoxError>>,
{
    if let Some(line) = &mut line {
        line.record_head(&response);
    }
    response.map(|body| LoggedBody::new(body, line))
}
