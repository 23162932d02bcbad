//! Handovers and restarts while Redis is unreachable. A new gateway keeps the number of gateways, and knows the permits
//! that its predecessor has granted.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::support::gateway::{TestGateway, get};
use crate::support::process::{Program, RuleFile};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// A temporary path. Dropping it removes the file.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Returns rules with an OVERALL limit of twelve requests in an hour, in this store.
fn rules(store: &str, listen: &str, admin: &str) -> String {
    format!("listen: {listen}\nadmin: {admin}\n{}", rules_of_store(store))
}

fn rules_of_store(store: &str) -> String {
    format!(
        "store: {store}\nupstreams: {{ echo: {{ targets: [builtin:echo] }} }}\n\
         routes:\n  - name: all\n    match: {{ path: /** }}\n    upstream: echo\n    limits:\n      \
         - {{ name: l, mode: OVERALL, rate: 12, interval: 1h }}\n",
    )
}

const ANY: &str = "127.0.0.1:0";

/// Sends requests until one is rejected. Returns the number of admitted requests.
async fn granted(gateway: SocketAddr) -> u64 {
    let mut client = Raw::connect(gateway).await;
    for granted in 0.. {
        match get(&mut client, "/", "").await.status() {
            200 => {}
            429 => return granted,
            status => panic!("{status}"),
        }
    }
    0
}

async fn counter(admin: SocketAddr, name: &str) -> u64 {
    let metrics = get(&mut Raw::connect(admin).await, "/metrics", "").await.text();
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    metrics.lines().find_map(value).unwrap_or_default()
}

async fn admin_config(admin: SocketAddr) -> String {
    let config = "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
    Raw::connect(admin).await.ask(config).await.text()
}

/// Starts a gateway as a process, and waits until it has counted three gateways on the Redis.
async fn three_gateways(redis: &RedisServer, file: &RuleFile, more: &[&str]) -> (Program, SocketAddr, SocketAddr) {
    let started = Program::run(file, more);
    let others = rules_of_store(&redis.rule());
    let others = [TestGateway::start(&others), TestGateway::start(&others)];
    soon(async { while counter(started.2, "tidegate_gateways").await != 3 {} }).await;
    drop(others);
    started
}

/// Regression test: before, three handovers granted 4 + 12 + 12 + 12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_handovers_grant_one_share_in_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let socket = Temporary::new("outage.sock");
    let first = RuleFile::new("handover-outage", &rules(&redis.rule(), ANY, ANY));
    let (mut program, gateway, admin) = three_gateways(&redis, &first, &["--handover", socket.path()]).await;
    let next = RuleFile::new("handover-next", &rules(&redis.rule(), &gateway.to_string(), &admin.to_string()));
    redis.signal("STOP");
    let mut grants = granted(gateway).await;
    assert_eq!(grants, 4, "a third of the rate");
    let mut log = String::new();
    for _ in 0..3 {
        let (successor, ..) = Program::run(&next, &["--handover", socket.path()]);
        let (status, text) = program.wait_for_exit();
        assert!(status.success(), "{text}");
        log += &text;
        program = successor;
        grants += granted(gateway).await;
    }
    assert_eq!(grants, 4, "{log}");
    assert!(admin_config(admin).await.contains("\"gateways\":3"), "{}", admin_config(admin).await);
    assert!(admin_config(admin).await.contains("\"owed\":4"), "{}", admin_config(admin).await);

    // Each permit is charged once, by the last gateway.
    redis.signal("CONT");
    soon(async { while !admin_config(admin).await.contains("\"state\":\"up\"") {} }).await;
    soon(async { while counter(admin, "tidegate_store_charged_afterwards_total").await < 4 {} }).await;
    let other = TestGateway::start(&rules_of_store(&redis.rule()));
    let left = granted(other.address).await;
    // Calls that were in flight when Redis hung are lost.
    assert!((5..=8).contains(&left), "{left}");
    assert_eq!(counter(admin, "tidegate_store_charged_afterwards_total").await, 4);
}

/// The embedded store has no outages, so permits in use stay in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handover_moves_the_embedded_buckets() {
    let socket = Temporary::new("embedded.sock");
    let first = RuleFile::new("embedded", &rules("memory", ANY, ANY));
    let (program, gateway, admin) = Program::run(&first, &["--handover", socket.path()]);
    assert_eq!(granted(gateway).await, 12);
    let next = RuleFile::new("embedded-next", &rules("memory", &gateway.to_string(), &admin.to_string()));
    let (_successor, ..) = Program::run(&next, &["--handover", socket.path()]);
    assert_eq!(granted(gateway).await, 0);
    assert!(program.wait_for_exit().0.success());
}

/// Starts a gateway whose Redis is unreachable. Returns the number of admitted requests, and the log.
async fn granted_after_restart(store: &str, more: &[&str]) -> (u64, String) {
    let file = RuleFile::new(&format!("restart-{}", more.len()), &rules(store, ANY, ANY));
    let (program, gateway, _) = Program::run(&file, more);
    let granted = granted(gateway).await;
    program.signal("TERM");
    (granted, program.wait_for_exit().1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_remembers_the_number_of_gateways() {
    let Some(redis) = RedisServer::start() else { return };
    let state = Temporary::new("gateways.json");
    let file = RuleFile::new("remembering", &rules(&redis.rule(), ANY, ANY));
    let (program, ..) = three_gateways(&redis, &file, &["--state", state.path()]).await;
    let remembered = || std::fs::read_to_string(state.path()).unwrap_or_default();
    soon(async {
        while remembered() != "{\"version\":1,\"gateways\":3}\n" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    program.signal("KILL");
    drop(program);
    let store = redis.rule();
    drop(redis);
    let (granted, log) = granted_after_restart(&store, &["--state", state.path()]).await;
    assert_eq!(granted, 4, "{log}");
    // A damaged file prevents no start.
    std::fs::write(state.path(), "{").expect("written");
    let (granted, log) = granted_after_restart(&store, &["--state", state.path()]).await;
    assert_eq!(granted, 12, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_assumes_at_least_min_gateways() {
    let store = "{ url: 'redis://127.0.0.1:1', min_gateways: 6 }";
    assert_eq!(granted_after_restart(store, &[]).await.0, 2);
}
