//! Connections that are upgraded to another protocol, for example WebSocket.

mod bounds;
mod carrying;
pub mod http2;
mod offers;
mod tls;

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::until;
use crate::support::wire::upstream::{Origin, OriginConnection};

pub const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Returns a WebSocket request as browsers send it.
pub fn handshake(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// Returns rules with one route to this origin, with further settings of the route and of the upstream.
fn rules(origin: &Origin, route: &str, upstream: &str) -> String {
    format!(
        "upstreams: {{ origin: {{ targets: ['http://{}'], {upstream} }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: origin, {route} }}]",
        origin.address
    )
}

fn gateway(origin: &Origin, route: &str) -> TestGateway {
    TestGateway::start(&rules(origin, route, ""))
}

/// Starts an origin that accepts upgrades and echoes all bytes. It responds to `/refused` with 403.
async fn echo() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.request().await {
            if request.field("upgrade").is_none() {
                conn.raw.send(OK).await;
                continue;
            }
            if request.start.contains("/refused") {
                conn.raw.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno").await;
                continue;
            }
            conn.raw.send(SWITCH).await;
            let (mut read, mut write) = conn.raw.stream.split();
            tokio::io::copy(&mut read, &mut write).await.ok();
            return;
        }
    })
    .await
}

/// Connects a client and upgrades the connection.
async fn upgraded(gateway: &TestGateway) -> Raw {
    let mut client = gateway.client().await;
    client.send(handshake("/", "")).await;
    let response = client.head().await.expect("a response");
    assert_eq!(response.status(), 101, "{response:?}");
    client
}

async fn count_open(gateway: &TestGateway) -> u64 {
    gateway.counter("tidegate_upgraded_connections{upstream=\"origin\"}").await
}

async fn count_ended(gateway: &TestGateway, cause: &str) -> u64 {
    let series = format!("tidegate_upgraded_connections_ended_total{{upstream=\"origin\",cause=\"{cause}\"}}");
    gateway.counter(&series).await
}

async fn wait_for_end(gateway: &TestGateway, cause: &str) {
    while count_ended(gateway, cause).await == 0 {
        tokio::task::yield_now().await;
    }
    while count_open(gateway).await > 0 {
        tokio::task::yield_now().await;
    }
}
