//! The layer around a plain `tower::Service`, without axum.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tidegate_layer::{ClientKey, Metrics, NotSent, Peer, RateLimitLayer, Rejection, Store, Unmatched};
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
async fn inserted_peer_is_limited_by_address() {
    let layer = RateLimitLayer::from_file("rules.yaml").expect("rules");
    let mut service = layer.layer(service_fn(echo));
    let mut statuses = Vec::new();
    for host in [1, 1, 1, 2] {
        let peer = Ipv4Addr::new(192, 0, 2, host).into();
        let response = service.ready().await.expect("ready").call(request("/hello", Some(peer))).await;
        statuses.push(response.expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 200]);
}

#[tokio::test]
async fn bodies_pass_unchanged() {
    let layer = RateLimitLayer::from_file("rules.yaml").expect("rules");
    let response = layer.layer(service_fn(echo)).oneshot(request("/elsewhere", None)).await.expect("a response");
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "there and back");
}

#[tokio::test]
async fn unmatched_requests_can_be_rejected() {
    let layer = RateLimitLayer::builder().unmatched(Unmatched::Reject).from_file("rules.yaml").expect("rules");
    let response = layer.layer(service_fn(echo)).oneshot(request("/elsewhere", None)).await.expect("a response");
    assert_eq!(response.status().as_u16(), 404);
}

const TENANTS: &str = "
routes:
  - name: tenants
    match: { path: /tenants }
    limits: [{ name: per-tenant, mode: PER_CLIENT, client: extension, rate: 1, interval: 1h }]
";

fn tenant_request(tenant: &str) -> Request<Body> {
    let mut request = request("/tenants", None);
    request.extensions_mut().insert(ClientKey(tenant.to_owned()));
    request
}

fn own_response(rejection: Rejection<'_>) -> Response<String> {
    let mut response = Response::new(format!("{} rejected you\n", rejection.limits.join(", ")));
    *response.status_mut() = rejection.status;
    response
}

#[tokio::test]
async fn service_names_its_clients_and_makes_its_responses() {
    let layer = RateLimitLayer::builder().on_reject(own_response).from_yaml(TENANTS).expect("rules");
    let mut statuses = Vec::new();
    for tenant in ["a", "b"] {
        statuses
            .push(layer.layer(service_fn(echo)).oneshot(tenant_request(tenant)).await.expect("a response").status());
    }
    assert_eq!(statuses, [200, 200]);
    let rejected = layer.layer(service_fn(echo)).oneshot(tenant_request("a")).await.expect("a response");
    assert_eq!(
        (rejected.status().as_u16(), &rejected.headers()["retry-after"]),
        (429, &"3600".parse().expect("a value"))
    );
    assert_eq!(rejected.into_body().collect().await.expect("a body").to_bytes(), "per-tenant rejected you\n");
}

#[tokio::test]
async fn response_marked_not_sent_returns_the_permits() {
    let idle = async |_: Request<Body>| {
        let mut response = Response::new(Body::default());
        response.extensions_mut().insert(NotSent);
        Ok::<_, Infallible>(response)
    };
    let layer = RateLimitLayer::from_yaml(TENANTS).expect("rules");
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(layer.layer(service_fn(idle)).oneshot(tenant_request("a")).await.expect("a response").status());
    }
    for _ in 0..2 {
        statuses.push(layer.layer(service_fn(echo)).oneshot(tenant_request("a")).await.expect("a response").status());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn layers_on_one_store_share_buckets_by_name() {
    let store = Store::memory();
    let layer = |rules: &str| RateLimitLayer::builder().store(store.clone()).from_yaml(rules).expect("rules");
    let (tenants, others) = (layer(TENANTS), layer(&TENANTS.replace("name: tenants", "name: others")));
    let mut statuses = Vec::new();
    for layer in [&tenants, &layer(TENANTS), &others] {
        statuses.push(layer.layer(service_fn(echo)).oneshot(tenant_request("a")).await.expect("a response").status());
    }
    assert_eq!(statuses, [200, 429, 200]);
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn store_in_redis_needs_the_feature() {
    let rules = format!("store: redis://:hush@db\n{TENANTS}");
    let error = RateLimitLayer::from_yaml(&rules).expect_err("no Redis").to_string();
    assert!(
        error.contains("store `redis://***@db` cannot be opened: Redis is not built in (feature `redis`)"),
        "{error}"
    );
    RateLimitLayer::builder().store(Store::memory()).from_yaml(&rules).expect("the store of the file is not opened");
}

#[tokio::test]
async fn page_has_the_metrics_of_two_libraries() {
    let metrics = Arc::new(Metrics::new());
    let mut registry = Registry::default();
    registry.register("mails_sent", "Sent mails", Counter::<u64>::default());
    let layer = RateLimitLayer::builder().metrics(Arc::clone(&metrics)).from_yaml(TENANTS).expect("rules");
    layer.layer(service_fn(echo)).oneshot(tenant_request("a")).await.expect("a response");

    let mut page = String::new();
    metrics.append_to(&mut page);
    encode(&mut page, &registry).expect("text");

    let decision = "tidegate_decisions_total{route=\"tenants\",limit=\"per-tenant\",outcome=\"allowed\"} 1";
    for line in [decision, "mails_sent_total 0"] {
        assert!(page.lines().any(|other| other == line), "no `{line}` in\n{page}");
    }
    assert!(page.ends_with("\n# EOF\n") && page.matches("# EOF").count() == 1, "{page}");
}
