//! The layer over a service that is no axum: any `tower::Service` of requests will do.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tidegate::RateLimitLayer;
use tidegate::layer::{Peer, Unmatched};
use tower::{Layer, Service, ServiceExt, service_fn};

type Body = Full<Bytes>;

async fn echo(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(request.into_body()))
}

fn request(path: &str, peer: Option<IpAddr>) -> Request<Body> {
    let mut request = Request::post(path).body(Full::from("there and back")).expect("a request");
    if let Some(peer) = peer {
        request.extensions_mut().insert(Peer(peer));
    }
    request
}

#[tokio::test]
async fn a_peer_that_the_service_knows_is_put_into_the_request() {
    let layer = RateLimitLayer::from_file("rules.yaml").expect("rules");
    let mut service = layer.layer(service_fn(echo));
    let mut statuses = Vec::new();
    for host in [1, 1, 1, 2] {
        let peer = Ipv4Addr::new(192, 0, 2, host).into();
        let answer = service.ready().await.expect("ready").call(request("/hello", Some(peer))).await;
        statuses.push(answer.expect("an answer").status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 200]);
}

#[tokio::test]
async fn bodies_pass_as_they_are() {
    let layer = RateLimitLayer::from_file("rules.yaml").expect("rules");
    let answer = layer.layer(service_fn(echo)).oneshot(request("/elsewhere", None)).await.expect("an answer");
    assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes(), "there and back");
}

#[tokio::test]
async fn a_service_may_refuse_what_no_route_names() {
    let layer = RateLimitLayer::builder().unmatched(Unmatched::Refuse).from_file("rules.yaml").expect("rules");
    let answer = layer.layer(service_fn(echo)).oneshot(request("/elsewhere", None)).await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 404);
}
