//! Costs that responses report in other forms than the usage of an API.

use tokio::time::Instant;

use super::{remaining, until_remaining};
use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::support::wire::{eventually, until};

const RATE: u64 = 1_000_000;

/// A gateway with a budget of these costs in a day.
fn gateway(origin: &Origin, permits: &str) -> TestGateway {
    TestGateway::start(&format!(
        "store: memory
upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes:
  - name: chat
    match: {{ path: /chat }}
    upstream: api
    limits: [{{ name: tokens, mode: PER_CLIENT, client: ip, rate: {RATE}, interval: 1d, permits: {{ {permits} }} }}]",
        origin.address
    ))
}

async fn ask(gateway: &TestGateway) -> Message {
    gateway.client().await.ask("GET /chat HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").await
}

/// Asks once, and waits until the request has cost this many permits.
async fn assert_cost(response: &'static str, permits: &str, cost: u64) {
    let origin = Origin::with_response(response).await;
    let gateway = gateway(&origin, permits);
    ask(&gateway).await;
    until_remaining(&gateway, RATE - cost).await;
}

const JSON: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 43\r\n\r\n\
                    {\"used\": {\"in\": 3, \"out\": 20, \"all\": 30 }} ";

#[tokio::test]
async fn members_of_a_body_are_the_usage() {
    let members = "usage: { input: 'json:/used/in', output: 'json:/used/out' }, reserve: { total: 900 }";
    assert_cost(JSON, members, 23).await;
    assert_cost(JSON, &format!("{members}, weights: {{ input: 2 }}"), 26).await;
    let total = "usage: { input: 'json:/used/in', total: 'json:/used/all' }, reserve: { total: 900 }";
    assert_cost(JSON, &format!("{total}, weights: {{ input: 2 }}"), 3 * 2 + 27).await;
    let absent = "usage: { input: 'json:/used/in', output: 'json:/used/none' }, reserve: { total: 900 }";
    assert_cost(JSON, absent, 900).await;
}

#[tokio::test]
async fn last_event_of_a_stream_is_the_usage() {
    let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 51\r\n\r\n\
                  data: {\"all\": 5}\n\ndata: {\"all\": 12}\n\ndata: [DONE]\n\n";
    assert_cost(events, "usage: { total: 'json:/all' }, reserve: { total: 900 }", 12).await;
}

#[tokio::test]
async fn header_field_of_a_response_is_the_cost() {
    let field = "usage: header:X-Cost, reserve: { total: 900 }";
    let response = "HTTP/1.1 200 OK\r\nX-Cost: 17\r\nContent-Length: 0\r\n\r\n";
    assert_cost(response, field, 17).await;
    let above = "HTTP/1.1 200 OK\r\nX-Cost: 1700\r\nContent-Length: 0\r\n\r\n";
    assert_cost(above, field, 1_700).await;
    assert_cost("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", field, 900).await;
    assert_cost("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", field, 0).await;
}

#[tokio::test]
async fn bytes_of_a_response_are_the_cost() {
    let bytes = "usage: bytes, reserve: { total: 900 }";
    assert_cost(JSON, bytes, 43).await;
    let chunked = "HTTP/1.1 404 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_cost(chunked, bytes, 5).await;
    assert_cost(JSON, &format!("{bytes}, weights: {{ output: 0.5 }}"), 22).await;
}

/// The gateway reads the body only if it has the cost.
#[tokio::test]
async fn counted_bytes_may_be_compressed() {
    let origin = Origin::with_response(JSON).await;
    let bytes = gateway(&origin, "usage: bytes, reserve: { total: 900 }");
    ask(&bytes).await;
    assert_eq!(origin.last_request().field("accept-encoding").as_deref(), Some("gzip"));
    let members = gateway(&origin, "usage: { total: 'json:/used/all' }, reserve: { total: 900 }");
    ask(&members).await;
    assert_eq!(origin.last_request().field("accept-encoding").as_deref(), Some("identity"));
}

#[tokio::test]
async fn duration_of_a_response_is_the_cost() {
    let origin = Origin::with_response(JSON).await;
    let gateway = gateway(&origin, "usage: milliseconds, reserve: { total: 900000 }");
    let begin = Instant::now();
    ask(&gateway).await;
    let until_settled = async || remaining(&gateway).await > RATE - 900_000;
    eventually(until_settled).await;
    let elapsed = u64::try_from(begin.elapsed().as_millis()).expect("a short time");
    assert!(remaining(&gateway).await >= RATE - elapsed);
}

/// The rest of the response costs nothing, since the gateway does not read it.
#[tokio::test]
async fn client_that_leaves_pays_for_the_bytes_so_far() {
    let origin = Origin::start(|mut connection: OriginConnection| async move {
        if connection.request().await.is_some() {
            connection.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabcde").await;
            _ = connection.request().await;
        }
    })
    .await;
    let gateway = gateway(&origin, "usage: bytes, reserve: { total: 900 }");
    let mut client = gateway.client().await;
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.head().await.expect("a head");
    client.exactly(5).await.expect("the bytes");
    drop(client);
    until_remaining(&gateway, RATE - 5).await;
}

#[tokio::test]
async fn reserved_total_rejects_requests_in_flight() {
    let origin = Origin::start(|mut connection: OriginConnection| async move {
        if connection.request().await.is_some() {
            connection.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabcde").await;
            _ = connection.request().await;
        }
    })
    .await;
    let gateway = gateway(&origin, "usage: bytes, reserve: { total: 600000 }");
    let mut client = gateway.client().await;
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until(|| origin.requests().len() == 1).await;
    assert_eq!(ask(&gateway).await.status(), 429);
    drop(client);
}
