//! Bans that end open WebSockets and streams (`disconnect`), on all gateways that share the store.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{create, created, with_key};
use crate::admin_api::Admin;
use crate::support::redis::RedisServer;
use crate::support::wire::frames::{Frame, Frames, RST_STREAM};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::upgrade::{SWITCH, handshake};

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENT: &str = "9\r\ndata: a\n\n\r\n";

/// Starts an origin that echoes the bytes of WebSockets, sends an event for `/events` and then nothing, and responds to
/// other requests.
async fn origin() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.request().await {
            if request.start.contains("/events") {
                conn.raw.send(format!("{EVENTS}{EVENT}")).await;
            } else if request.field("upgrade").is_some() {
                conn.raw.send(SWITCH).await;
                let (mut read, mut write) = conn.raw.stream.split();
                tokio::io::copy(&mut read, &mut write).await.ok();
                return;
            } else {
                conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            }
        }
    })
    .await
}

fn gateway(store: &str, origin: &Origin) -> Admin {
    let admin = Admin::with_tokens("");
    let limit = "name: own, mode: PER_CLIENT, client: 'header:x-key', on_missing_client: ip, rate: 1000, interval: 1h";
    admin.reload(&format!(
        "store: {store}\nupstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes: [{{ name: rest, match: {{ path: /** }}, upstream: origin, limits: [{{ {limit} }}] }}]\n",
        origin.address
    ));
    admin
}

async fn client(admin: &Admin) -> Raw {
    Raw::connect(admin.gateway().addresses()[0].tcp().expect("an address")).await
}

async fn web_socket(admin: &Admin, key: &str) -> Raw {
    let mut client = client(admin).await;
    client.send(handshake("/", &format!("X-Key: {key}\r\n"))).await;
    assert_eq!(client.head().await.expect("a response").status(), 101);
    client
}

async fn events(admin: &Admin, key: &str) -> Raw {
    let mut client = client(admin).await;
    client.send(format!("GET /events HTTP/1.1\r\nHost: a.example\r\nX-Key: {key}\r\n\r\n")).await;
    assert_eq!(client.head().await.expect("a response").status(), 200);
    client
}

async fn echoes(client: &mut Raw) -> bool {
    let mut echo = [0; 2];
    let answered = async {
        client.stream.write_all(b"hi").await?;
        client.stream.read_exact(&mut echo).await
    };
    soon(answered).await.is_ok() && echo == *b"hi"
}

/// Reads all bytes until the gateway closes the connection.
async fn until_closed(client: &mut Raw) -> Vec<u8> {
    let mut bytes = Vec::new();
    _ = soon(client.stream.read_to_end(&mut bytes)).await; // a reset is an end as well
    bytes
}

fn ban(disconnect: bool) -> Value {
    let client = json!({ "client": ["k"] });
    json!({ "action": "ban", "scope": "rest/own", "target": client, "disconnect": disconnect, "replace": true })
}

async fn until_banned(admin: &Admin) {
    soon(async { while with_key(admin, "k").await.status() != 403 {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_ends_open_responses_of_all_gateways() {
    let Some(redis) = RedisServer::start() else { return };
    let origin = origin().await;
    let [one, other] = [(); 2].map(|()| gateway(&redis.rule(), &origin));
    let mut banned = [web_socket(&one, "k").await, web_socket(&other, "k").await];
    let mut streams = [events(&one, "k").await, events(&other, "k").await];
    let mut free = [web_socket(&one, "free").await, web_socket(&other, "free").await];
    drop(created(&one, ban(false)).await);
    until_banned(&other).await;
    for client in &mut banned {
        assert!(echoes(client).await, "a ban without `disconnect` ends nothing");
    }
    drop(created(&one, ban(true)).await);
    for client in &mut banned {
        assert_eq!(until_closed(client).await, b"");
    }
    for stream in &mut streams {
        let rest = until_closed(stream).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "the response is not complete: {rest:?}");
    }
    for client in &mut free {
        assert!(echoes(client).await, "another client");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_of_an_address_ends_its_web_sockets() {
    let origin = origin().await;
    let admin = gateway("memory", &origin);
    let mut client = web_socket(&admin, "k").await;
    let body = json!({ "action": "ban", "target": { "address": "127.0.0.0/8" }, "disconnect": true });
    drop(created(&admin, body).await);
    assert_eq!(until_closed(&mut client).await, b"");
    let metrics = admin.metrics().await;
    assert!(metrics.contains("tidegate_upgraded_connections{upstream=\"origin\"} 0"), "{metrics}");
}

/// The connection of a proxy has streams of several clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_resets_only_the_streams_of_the_client() {
    let origin = origin().await;
    let admin = gateway("memory", &origin);
    let mut client = Frames::connect(admin.gateway().addresses()[0].tcp().expect("an address"), &[]).await;
    for (stream, key) in [(1, "k"), (3, "free")] {
        client.open(stream, "GET", "/events", &[("x-key", key)], true).await;
        assert_eq!(client.status(stream).await, 200);
    }
    drop(created(&admin, ban(true)).await);
    client.reset_code(1).await;
    for (stream, key, status) in [(5, "k", 403), (7, "free", 200)] {
        client.open(stream, "GET", "/", &[("x-key", key)], true).await;
        let ends = |frame: &Frame| frame.ends_stream() || frame.kind == RST_STREAM;
        let frame = client.find(|frame| frame.stream == stream || frame.stream == 3 && ends(frame)).await;
        assert_eq!(frame.stream, stream, "the stream of the other client has ended");
        assert_eq!(frame.status(), status, "{key}");
        client.rest_of_stream(stream).await;
    }
}

#[tokio::test]
async fn only_bans_disconnect_clients() {
    let admin = Admin::with_tokens("");
    let exempt = json!({ "action": "exempt", "target": { "address": "127.0.0.1" }, "disconnect": true });
    let (status, problem) = create(&admin, exempt).await;
    assert_eq!((status, problem["detail"].as_str()), (400, Some("`disconnect` applies only to `ban`")), "{problem}");
}
