//! The services of a gateway's listeners, of which this crate has the compiled code.
//!
//! A server is generic over its service. A function that is not generic and returns a boxed future is compiled in its own
//! crate. So the code that serves requests is optimized here, together with the layer and the upstreams, and a build of
//! the program does not compile it again.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use socket2::Socket;
use tower::{Layer, Service};

use crate::access::{AccessLog, AccessLogLayer};
use crate::forward::Forward;
use crate::server::Server;
use crate::transport::BodyData;
use crate::upstream::{BoxError, RequestBody};
use tidegate_layer::layer::{RateLimitLayer, RateLimited};

/// The service of a listener for clients: the access log, the rate limits, and the upstreams.
pub type GatewayService = AccessLog<RateLimited<Forward>>;

/// Serves the connections of a socket. See [`Server::serve`].
pub type Serving = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// The body of a response of a [`BoxedService`].
pub type BoxedBody = UnsyncBoxBody<BodyData, BoxError>;

/// The future of a response of a [`BoxedService`].
pub type BoxedFuture = Pin<Box<dyn Future<Output = Result<Response<BoxedBody>, Infallible>> + Send>>;

/// Another service, for listeners that do not forward: each request costs two allocations more.
#[derive(Clone)]
pub struct BoxedService(Arc<dyn Fn(Request<RequestBody>) -> BoxedFuture + Send + Sync>);

/// Creates the service of listeners for clients.
pub fn gateway_service(log: AccessLogLayer, limits: &RateLimitLayer) -> GatewayService {
    log.layer(limits.layer(Forward))
}

/// Serves clients on a socket. See [`Server::serve`].
pub fn serve_clients(server: Server, socket: Socket, service: GatewayService) -> Serving {
    Box::pin(server.serve(socket, service))
}

/// Serves another service on a socket. See [`Server::serve`].
pub fn serve_boxed(server: Server, socket: Socket, service: BoxedService) -> Serving {
    Box::pin(server.serve(socket, service))
}

// === impl BoxedService ===

impl BoxedService {
    /// Creates a service from a function.
    pub fn new<F, B>(respond: impl Fn(Request<RequestBody>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data: Into<BodyData>, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |request| {
            let response = respond(request);
            Box::pin(async move {
                Ok(response.await.map(|body| {
                    let body = body.map_frame(|frame| frame.map_data(Into::into)).map_err(Into::into);
                    UnsyncBoxBody::new(body)
                }))
            })
        }))
    }
}

impl fmt::Debug for BoxedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedService").finish_non_exhaustive()
    }
}

impl Service<Request<RequestBody>> for BoxedService {
    type Response = Response<BoxedBody>;
    type Error = Infallible;
    type Future = BoxedFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> BoxedFuture {
        (self.0)(request)
    }
}
