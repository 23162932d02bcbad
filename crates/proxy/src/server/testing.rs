//! Services built from functions, for tests.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower::Service;

use crate::transport::BodyData;
use crate::upstream::RequestBody;
use tidegate_layer::layer::Peer;

/// A function that responds to a request of a client. Implemented for every `Fn(Request<RequestBody>, SocketAddr) ->
/// Future<Output = Response<B>>`.
pub(crate) trait Handler: Clone + Send + 'static {
    /// The response body.
    type Body: Body<Data: Into<BodyData>, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;
    /// The future of a response.
    type Future: Future<Output = Response<Self::Body>> + Send + 'static;

    /// Responds to one request.
    fn handle(&self, request: Request<RequestBody>, peer: SocketAddr) -> Self::Future;
}

/// A service that calls a [`Handler`].
#[derive(Clone, Debug)]
pub(crate) struct HandlerService<H>(pub(crate) H);

impl<H, F, B> Handler for H
where
    H: Fn(Request<RequestBody>, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Into<BodyData>> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Body = B;
    type Future = F;

    fn handle(&self, request: Request<RequestBody>, peer: SocketAddr) -> F {
        self(request, peer)
    }
}

impl<H: Handler> Service<Request<RequestBody>> for HandlerService<H> {
    type Response = Response<H::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let Peer(peer) = *request.extensions().get().expect("the server notes the peer");
        let response = self.0.handle(request, SocketAddr::new(peer, 0));
        Box::pin(async { Ok(response.await) })
    }
}
