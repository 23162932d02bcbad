//! Requests whose clients are counted (`admin.talkers`), for benchmarks.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::IpAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, Service};

use tidegate_layer::layer::{LayerError, Peer, RateLimitLayer, RateLimited};
use tidegate_limit::clock::wall_time;
use tidegate_proxy::access::{AccessLog, AccessLogLayer};
use tidegate_proxy::talkers::{Amount, Talkers};
use tidegate_proxy::upstream::RequestBody;

/// A gateway without sockets, upstreams and access log, which can count its clients.
#[derive(Debug)]
pub struct CountedClients {
    service: AccessLog<RateLimited<Empty>>,
    talkers: Talkers,
}

/// A service that responds immediately.
#[derive(Clone, Debug)]
struct Empty;

impl CountedClients {
    /// Creates a gateway with these rules. It counts clients if `is_on`.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn new(rules: &str, is_on: bool) -> Result<Self, LayerError> {
        let talkers = Talkers::new(1);
        talkers.set_on(is_on);
        let log = AccessLogLayer::default().with_talkers(talkers.recorder(0));
        Ok(Self { service: log.layer(RateLimitLayer::from_yaml(rules)?.layer(Empty)), talkers })
    }

    /// Serves a request of a client. Returns the status of the response.
    pub async fn serve(&self, client: IpAddr) -> StatusCode {
        let mut request = Request::new(RequestBody::none());
        request.extensions_mut().insert(Peer(client));
        let response = self.service.clone().call(request).await;
        response.map_or_else(|error| match error {}, |response| response.status())
    }

    /// Returns the number of requests that were counted for the most frequent clients, at most `clients` clients.
    pub fn counted(&self, clients: usize) -> u64 {
        let top = self.talkers.top(wall_time(), 15, Amount::Requests, clients);
        top.iter().map(|client| client.requests.count).sum()
    }
}

impl Service<Request<RequestBody>> for Empty {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}
