//! Actions of routes: redirects and fixed responses, changes of requests and responses, and responses to rejected
//! requests.

mod layer;
mod local;
mod rejects;
mod requests;
mod responses;

use crate::support::gateway::TestGateway;
use crate::support::wire::upstream::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: origin\r\n\r\nok";

/// Starts an origin, and a gateway whose routes have the upstream `api` with this origin.
async fn gateway(routes: &str) -> (Origin, TestGateway) {
    gateway_with("request_id: true", routes).await
}

/// Starts a gateway with these keys of `requests`.
async fn gateway_with(requests: &str, routes: &str) -> (Origin, TestGateway) {
    let origin = Origin::with_response(OK).await;
    let upstreams = format!("upstreams: {{ api: {{ targets: ['http://{}'] }} }}", origin.address);
    let gateway = TestGateway::start(&format!("{upstreams}\nrequests: {{ {requests} }}\nroutes:\n{routes}"));
    (origin, gateway)
}
