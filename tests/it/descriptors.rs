//! A gateway that has no file descriptors left: who is served, who is told, and what comes after.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const RULES: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: all, match: {}, upstream: echo }]
";

/// The value of a series, asked for on a connection of its own.
async fn series(admin: SocketAddr, name: &str) -> u64 {
    let page = get(&mut Raw::connect(admin).await, "/metrics", "").await.text();
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

async fn until_served(address: SocketAddr) {
    soon(async {
        loop {
            let mut client = Raw::connect(address).await;
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            if client.try_message(false, true).await.is_ok_and(|answer| answer.status() == 200) {
                return;
            }
        }
    })
    .await;
}

/// How much of a processor it takes to have nothing to do.
async fn is_idle(program: &Program) -> bool {
    let begin = program.cpu_time();
    tokio::time::sleep(Duration::from_secs(1)).await;
    program.cpu_time() - begin < Duration::from_millis(100)
}

#[tokio::test]
async fn with_few_descriptors_fewer_clients_are_served_and_the_others_are_told() {
    let file = RuleFile::new("few-descriptors", RULES);
    let (program, said, address, admin) = Program::run_with_descriptors(256, &file);
    assert!(said.contains(" WARN ") && said.contains("limit=256 needed=2") && said.contains("served=1"), "{said}");
    let mut clients = Vec::new();
    for _ in 0..300 {
        clients.push(Raw::connect(address).await);
    }
    // On a slow machine, some that have said nothing for a while make room for others.
    let ended = "tidegate_rejected_total{cause=\"evicted_idle\"}";
    let others = async || series(admin, "tidegate_connections_refused_total").await + series(admin, ended).await;
    soon(async { while others().await < 250 {} }).await;
    let served = series(admin, "tidegate_connections ").await;
    assert!((8..=20).contains(&served), "{served}");
    assert_eq!(get(&mut Raw::connect(admin).await, "/healthz", "").await.status(), 200);
    assert!(is_idle(&program).await);
    until_served(address).await;
    assert!(series(admin, ended).await > 0);
    drop(clients);
    until_served(address).await;
}

#[test]
fn slightly_low_descriptor_limit_is_no_warning() {
    let file = RuleFile::new("enough-descriptors", &format!("max_connections: 1000\n{RULES}"));
    let (_program, said, ..) = Program::run_with_descriptors(2100, &file);
    assert!(said.contains(" INFO ") && said.contains("limit=2100"), "{said}");
    assert!(said.contains("max_connections=1000 served=9"), "{said}");
}

#[tokio::test]
async fn with_no_descriptors_at_all_clients_wait_and_operators_are_answered() {
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
    let mut operators = Vec::new();
    for round in 0..20 {
        let mut operator = Raw::connect(admin).await;
        assert_eq!(soon(get(&mut operator, "/healthz", "")).await.status(), 200);
        if round < 4 {
            operators.push(operator);
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
