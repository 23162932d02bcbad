//! The rate limit service while a process hands over its sockets to its successor.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use tokio::net::UnixStream;

use crate::handover::Socket;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::service::{GrpcClient, OK, call, descriptor};
use crate::support::wire::raw::Raw;
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

/// Opens a connection for a call. Returns the status of the answer.
async fn post(socket: &Path) -> u16 {
    let body = r#"{ "domain": "edge", "descriptors": [{ "entries": [{ "key": "user", "value": "ann" }] }] }"#;
    let length = body.len();
    let request = format!("POST /json HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n\r\n{body}");
    let stream = soon(UnixStream::connect(socket)).await.expect("a connection");
    Raw::new(stream).ask(request).await.status()
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
