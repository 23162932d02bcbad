//! The rate limit service while a process hands over its sockets to its successor.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use tokio::net::UnixStream;

use crate::handover::Socket;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::service::{GrpcClient, OK, call, descriptor};
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::{soon, until};

const RATE: u32 = 1_000_000;

fn rules(store: &str, grpc: &Socket, http: &Socket) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
store: {store}
routes: [{{ name: all, match: {{}}, respond: {{ status: 200 }} }}]
service:
  grpc: 'unix:{}'
  http: 'unix:{}'
  domains:
    - name: edge
      limits: [{{ name: all, match: {{ user: ann }}, mode: OVERALL, rate: {RATE}, interval: 1d }}]\n",
        grpc.path(),
        http.path()
    )
}

/// Opens a connection for a request. Returns the response.
async fn post_to(socket: &Path, path: &str, body: &str) -> Message {
    let length = body.len();
    let request = format!("POST {path} HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n\r\n{body}");
    let stream = soon(UnixStream::connect(socket)).await.expect("a connection");
    Raw::new(stream).ask(request).await
}

/// Opens a connection for a call. Returns the status of the answer.
async fn post(socket: &Path) -> u16 {
    let body = r#"{ "domain": "edge", "descriptors": [{ "entries": [{ "key": "user", "value": "ann" }] }] }"#;
    post_to(socket, "/json", body).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handovers_lose_no_call_and_no_charge() {
    let Some(redis) = RedisServer::start() else { return };
    let (handover, grpc, http) = (Socket::new("calls"), Socket::new("calls-grpc"), Socket::new("calls-http"));
    let file = RuleFile::new("calls", &rules(&redis.rule(), &grpc, &http));
    let (mut program, ..) = Program::run(&file, &["--handover", handover.path()]);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let load = {
        let (stop, answered, http) = (Arc::clone(&stop), Arc::clone(&answered), http.path().to_owned());
        tokio::spawn(async move {
            while !stop.load(Relaxed) {
                assert_eq!(post(http.as_ref()).await, 200);
                answered.fetch_add(1, Relaxed);
            }
        })
    };
    for _ in 0..5 {
        let before = answered.load(Relaxed);
        until(|| answered.load(Relaxed) > before + 20).await;
        let (successor, ..) = Program::run(&file, &["--handover", handover.path()]);
        let (status, log) = std::mem::replace(&mut program, successor).wait_for_exit();
        assert!(status.success() && log.contains("successor serves"), "{log}");
    }
    stop.store(true, Relaxed);
    soon(load).await.expect("all calls passed");
    let client = GrpcClient::on(soon(UnixStream::connect(grpc.path())).await.expect("a connection")).await;
    let answer = client.should_rate_limit(&call([descriptor("user=ann")])).await.expect("an answer");
    let charged = answered.load(Relaxed) + 1;
    assert_eq!(answer.remaining(), [(OK, RATE - charged)]);
}

/// A store in memory has ids, and knows which limits were checked before their costs were known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handover_passes_on_ids_and_post_paid_limits() {
    let (handover, grpc, http) = (Socket::new("ids"), Socket::new("ids-grpc"), Socket::new("ids-http"));
    let file = RuleFile::new("ids", &rules("memory", &grpc, &http));
    let (program, ..) = Program::run(&file, &["--handover", handover.path()]);
    let take = r#"{ "limits": [{ "limit": "edge/all", "permits": 5 }], "id": "1" }"#;
    let hits = |hits: u32| {
        format!(
            r#"{{ "domain": "edge", "descriptors": [{{ "entries": [{{ "key": "user", "value": "ann" }}], "hitsAddend": {hits} }}] }}"#
        )
    };
    let first = post_to(http.path().as_ref(), "/v1/take", take).await;
    assert_eq!((first.status(), first.field("idempotent-replayed")), (200, None));
    assert_eq!(post_to(http.path().as_ref(), "/json", &hits(0)).await.status(), 200);
    let (_successor, ..) = Program::run(&file, &["--handover", handover.path()]);
    assert!(program.wait_for_exit().0.success());
    let repeated = post_to(http.path().as_ref(), "/v1/take", take).await;
    assert_eq!((repeated.status(), repeated.field("idempotent-replayed").as_deref()), (200, Some("true")));
    assert_eq!(repeated.text(), first.text());
    for returned in [true, false] {
        let response = post_to(http.path().as_ref(), "/v1/return", r#"{ "id": "1" }"#).await;
        assert_eq!(response.text(), format!("{{\"returned\":{returned}}}\n"));
    }
    // A report beyond the limit is charged, since the limit is post-paid.
    for (hits, status) in [(hits(RATE + 1), 429), (hits(0), 429)] {
        assert_eq!(post_to(http.path().as_ref(), "/json", &hits).await.status(), status);
    }
}
