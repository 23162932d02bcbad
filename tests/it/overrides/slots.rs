//! Exemptions from `concurrency`.

use serde_json::json;
use tokio::sync::watch;

use super::{created, remove};
use crate::admin_api::Admin;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// Starts an origin that responds when it is released.
async fn origin(released: watch::Receiver<bool>) -> Origin {
    Origin::start(move |mut conn: OriginConnection| {
        let mut released = released.clone();
        async move {
            while conn.request().await.is_some() {
                _ = released.wait_for(|is_released| *is_released).await;
                conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            }
        }
    })
    .await
}

fn gateway(origin: &Origin) -> Admin {
    let admin = Admin::with_tokens("");
    admin.reload(&format!(
        "upstreams: {{ origin: {{ targets: ['http://{}'] }} }}
routes: [{{ name: rest, match: {{ path: /** }}, upstream: origin,
  concurrency: {{ max: 2, per_client: 1, client: 'header:x-key', queue: 0 }} }}]\n",
        origin.address
    ));
    admin
}

/// Sends a request, and waits until the origin has it.
async fn in_flight(admin: &Admin, origin: &Origin, key: &str) -> Raw {
    let before = origin.requests().len();
    let mut client = Raw::connect(admin.gateway().addresses()[0].tcp().expect("an address")).await;
    client.send(format!("GET / HTTP/1.1\r\nHost: a.example\r\nX-Key: {key}\r\n\r\n")).await;
    soon(async {
        while origin.requests().len() == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    client
}

async fn rejected(admin: &Admin, key: &str) -> u16 {
    admin.request("/", &format!("X-Key: {key}\r\n")).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exempt_client_takes_no_slot() {
    let (release, released) = watch::channel(false);
    let origin = origin(released).await;
    let admin = gateway(&origin);
    let mut clients = vec![in_flight(&admin, &origin, "a").await, in_flight(&admin, &origin, "b").await];
    assert_eq!([rejected(&admin, "a").await, rejected(&admin, "c").await], [429, 503]);
    let exempt = json!({ "action": "exempt", "scope": "rest", "target": { "address": "127.0.0.1" } });
    let id = created(&admin, exempt).await;
    for key in ["a", "a", "c"] {
        clients.push(in_flight(&admin, &origin, key).await);
    }
    remove(&admin, &id).await;
    assert_eq!([rejected(&admin, "a").await, rejected(&admin, "c").await], [429, 503]);
    release.send_replace(true);
    for client in &mut clients {
        assert_eq!(client.response(false).await.status(), 200);
    }
    // The requests of the exempt client have released no slot either.
    release.send_replace(false);
    let _held = [in_flight(&admin, &origin, "a").await, in_flight(&admin, &origin, "b").await];
    assert_eq!([rejected(&admin, "a").await, rejected(&admin, "c").await], [429, 503]);
}
