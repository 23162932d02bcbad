//! A gateway that runs out of file descriptors.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_limit::clock::Stopwatch;

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const RULES: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: all, match: {}, upstream: echo }]
";

/// Returns the value of a series. Opens a new connection.
async fn series(admin: SocketAddr, name: &str) -> u64 {
    let page = get(&mut Raw::connect(admin).await, "/metrics", "").await.text();
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// Waits until a new client gets a response.
#[track_caller]
fn until_served(address: SocketAddr) -> impl Future<Output = ()> {
    soon(async move {
        loop {
            let mut client = Raw::connect(address).await;
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            if client.try_message(false, true).await.is_ok_and(|response| response.status() == 200) {
                return;
            }
        }
    })
}

/// Returns `true` if the program uses less than a tenth of a CPU for one second. Repeats the measurement, because the
/// program may still have work when the first one begins.
async fn is_idle(program: &Program) -> bool {
    for _ in 0..5 {
        let (since, begin) = (Stopwatch::start(), program.cpu_time());
        tokio::time::sleep(Duration::from_secs(1)).await;
        if program.cpu_time() - begin < since.elapsed() / 10 {
            return true;
        }
    }
    false
}

#[test]
fn log_line_about_few_descriptors_names_the_remedy() {
    for (max_connections, level) in [(15, " DEBUG "), (100, " WARN ")] {
        let name = format!("descriptors-for-{max_connections}");
        let file = RuleFile::new(&name, &format!("max_connections: {max_connections}\n{RULES}"));
        let (_program, log, ..) = Program::run_with_descriptors(256, &file);
        assert!(log.contains(level) && log.contains("served=14"), "{log}");
        assert!(log.contains("raise it (`ulimit -n`, `LimitNOFILE`) or lower `max_connections`"), "{log}");
    }
}

#[tokio::test]
async fn few_descriptors_lower_the_connection_limit() {
    let file = RuleFile::new("few-descriptors", RULES);
    let (program, log, address, admin) = Program::run_with_descriptors(256, &file);
    assert!(log.contains(" WARN ") && log.contains("limit=256 needed=2") && log.contains("served=1"), "{log}");
    let mut clients = Vec::new();
    for _ in 0..300 {
        clients.push(Raw::connect(address).await);
    }
    // On a slow machine the gateway evicts some idle connections instead.
    let evicted = "tidegate_rejected_total{cause=\"evicted_idle\"}";
    let closed = async || series(admin, "tidegate_connections_refused_total").await + series(admin, evicted).await;
    soon(async { while closed().await < 250 {} }).await;
    let served = series(admin, "tidegate_connections ").await;
    assert!((8..=20).contains(&served), "{served}");
    assert_eq!(get(&mut Raw::connect(admin).await, "/healthz", "").await.status(), 200);
    assert!(is_idle(&program).await);
    until_served(address).await;
    assert!(series(admin, evicted).await > 0);
    drop(clients);
    until_served(address).await;
}

#[test]
fn slightly_low_descriptor_limit_is_no_warning() {
    let file = RuleFile::new("enough-descriptors", &format!("max_connections: 1000\n{RULES}"));
    let (_program, log, ..) = Program::run_with_descriptors(2228, &file);
    assert!(log.contains(" DEBUG ") && log.contains("limit=2228"), "{log}");
    assert!(log.contains("max_connections=1000 served=9"), "{log}");
}

#[tokio::test]
async fn without_descriptors_only_the_admin_listener_responds() {
    let file = RuleFile::new("no-descriptors", RULES);
    let (program, address, admin) = Program::run(&file, &["--workers", "2"]);
    until_served(address).await;
    let before = program.limit_descriptors(None);
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = Raw::connect(address).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        clients.push(client);
    }
    let mut admin_clients = Vec::new();
    for round in 0..20 {
        let mut admin_client = Raw::connect(admin).await;
        assert_eq!(soon(get(&mut admin_client, "/healthz", "")).await.status(), 200);
        if round < 4 {
            admin_clients.push(admin_client);
        }
    }
    assert!(is_idle(&program).await);
    assert!(series(admin, "tidegate_accept_failures_total").await > 0);
    program.limit_descriptors(Some(before));
    for mut client in clients {
        assert_eq!(soon(client.response(false)).await.status(), 200);
    }
    until_served(address).await;
}
