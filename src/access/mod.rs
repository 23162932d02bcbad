//! The access log, as a Tower layer: a line for each request, written when all of its answer is over.
//!
//! A request that panics is answered with 500, a call of gRPC with INTERNAL; no other request is affected.

mod body;
mod caught;
mod line;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use self::body::BoxError;
pub(crate) use self::body::LoggedBody;
use self::caught::{Caught, Panicked, catch, caught};
use self::line::LogLine;
pub(crate) use self::line::refused;
use crate::local_response::{GrpcCall, LocalResponse};
use crate::metrics::Metrics;
use crate::upstream::RequestBody;

/// The target of access lines, which the logs are told apart by.
pub(crate) const TARGET: &str = "tidegate::access";

/// Writes a line of the access log for each request to the service below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessLogLayer;

/// A service whose requests are logged; see [`AccessLogLayer`].
#[derive(Clone, Debug)]
pub(crate) struct AccessLog<S> {
    inner: S,
}

pin_project! {
    /// An answer to be, and its line.
    pub(crate) struct Logged<F> {
        // Nothing, where the call panicked.
        #[pin]
        answer: Option<Caught<F>>,
        // Nothing, where the access log is off.
        line: Option<Box<LogLine>>,
        // In whose words a panic is told.
        call: Option<GrpcCall>,
    }
}

impl<S> Layer<S> for AccessLogLayer {
    type Service = AccessLog<S>;

    fn layer(&self, inner: S) -> AccessLog<S> {
        AccessLog { inner }
    }
}

impl<S, RB> Service<Request<RequestBody>> for AccessLog<S>
where
    S: Service<Request<RequestBody>, Response = Response<RB>, Error = Infallible>,
    RB: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Response = Response<LoggedBody<RB>>;
    type Error = Infallible;
    type Future = Logged<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Logged<S::Future> {
        let line = LogLine::begin(&mut request);
        let call = GrpcCall::detect(request.method(), request.headers());
        Logged { answer: catch(|| self.inner.call(request)).ok().map(caught), line, call }
    }
}

impl<F, RB> Future for Logged<F>
where
    F: Future<Output = Result<Response<RB>, Infallible>>,
    RB: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Output = Result<Response<LoggedBody<RB>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answered = match this.answer.as_pin_mut() {
            Some(answer) => ready!(answer.poll(cx)),
            None => Err(Panicked),
        };
        let mut line = this.line.take();
        Poll::Ready(Ok(match answered {
            Ok(Ok(response)) => logged(response, Either::Left, line),
            Err(Panicked) => {
                Metrics::panicked();
                if let Some(line) = &mut line {
                    line.ends_early("panicked");
                }
                logged(LocalResponse::Panicked.into_response_for(*this.call, HeaderMap::new()), Either::Right, line)
            }
        }))
    }
}

/// The answer, whose end is noted.
fn logged<A, B>(
    response: Response<A>,
    body: impl FnOnce(A) -> Either<B, Full<Bytes>>,
    mut line: Option<Box<LogLine>>,
) -> Response<LoggedBody<B>>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    if let Some(line) = &mut line {
        line.head(&response);
    }
    response.map(|whole| LoggedBody::new(body(whole), line))
}
