//! Logs with stalled readers, full disks and rotated files.

use std::path::{Path, PathBuf};

use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile, address, tidegate};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::{soon, until};

fn rules(access_log: &str) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: '{access_log}'
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: echo }}]\n"
    )
}

async fn dropped(admin: std::net::SocketAddr) -> u64 {
    let page = get(&mut Raw::connect(admin).await, "/metrics", "").await.text();
    let line = page.lines().find_map(|line| line.strip_prefix("tidegate_access_log_dropped_total "));
    line.map_or(0, |count| count.parse().expect("a number"))
}

/// A log file. Dropping it removes the file.
struct LogFile(PathBuf);

impl LogFile {
    fn new(name: &str) -> Self {
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.log", std::process::id())))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn stalled_log_reader_loses_lines_only() {
    let file = RuleFile::new("stalled", &rules("stdout"));
    let (program, address, admin) = Program::run(&file, &[]);
    let path = format!("/{}", "x".repeat(8000));
    let before = program.peak_memory();
    let mut client = Raw::connect(address).await;
    // 16 MB of unread lines. The gateway buffers 8 MiB.
    for _ in 0..2000 {
        assert_eq!(get(&mut client, &path, "").await.status(), 200);
    }
    drop(client);
    let count = dropped(admin).await;
    assert!((500..1500).contains(&count), "{count}");
    let after = program.peak_memory();
    assert!(after < before + (28 << 20), "{before} bytes grew to {after}");
    program.signal("TERM");
    // The process must exit although nothing reads its output.
    let (status, _) =
        soon(async { tokio::task::spawn_blocking(|| program.wait_for_exit()).await.expect("an exit") }).await;
    assert!(status.success());
}

#[tokio::test]
async fn full_disk_is_logged_once() {
    let file = RuleFile::new("full-disk", &rules("/dev/full"));
    let (program, address, admin) = Program::run(&file, &[]);
    let mut client = Raw::connect(address).await;
    for requests in 1..=3 {
        assert_eq!(get(&mut client, "/", "").await.status(), 200);
        soon(async { while dropped(admin).await < requests {} }).await;
    }
    drop(client);
    program.signal("TERM");
    let (status, log) = program.wait_for_exit();
    assert!(status.success(), "{log}");
    assert_eq!(log.matches("cannot write the log, dropping lines").count(), 1, "{log}");
}

#[tokio::test]
async fn sighup_reopens_the_access_log() {
    let (log, moved) = (LogFile::new("rotated"), LogFile::new("rotated-1"));
    let file = RuleFile::new("rotated", &rules(log.0.to_str().expect("a path in UTF-8")));
    let (program, address, _admin) = Program::run(&file, &[]);
    let mut client = Raw::connect(address).await;
    get(&mut client, "/one", "").await;
    until(|| log.text().contains("GET /one ")).await;
    std::fs::rename(&log.0, &moved.0).expect("moved");
    program.signal("HUP");
    until(|| log.0.exists()).await;
    get(&mut client, "/two", "").await;
    until(|| log.text().contains("GET /two ")).await;
    assert!(!log.text().contains("/one") && !moved.text().contains("/two"));
    drop(client);
    program.signal("TERM");
    let (status, text) = program.wait_for_exit();
    assert!(status.success() && text.contains("SIGHUP"), "{text}");
}

#[tokio::test]
async fn sighup_does_not_end_the_demo() {
    let mut demo = Program::start(&mut tidegate(&["demo"]));
    let address = address(&mut demo.stdout, "http://");
    demo.signal("HUP");
    read_until(&mut demo.stderr, "SIGHUP");
    assert_eq!(get(&mut Raw::connect(address).await, "/hello", "").await.status(), 200);
    demo.signal("TERM");
    let (status, text) = demo.wait_for_exit();
    assert!(status.success(), "{text}");
}

/// Reads lines until one contains `text`, and returns all of them.
#[track_caller]
fn read_until(lines: &mut impl std::io::BufRead, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        assert_ne!(
            lines.read_line(&mut all).expect("text"),
            0,
            "waited for `{text}`, but the output has ended:\n{all}"
        );
    }
    all
}

#[test]
fn unreachable_redis_is_logged_once() {
    let Some(redis) = RedisServer::start() else { return };
    let url = redis.url();
    let port: u16 = url.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok()).expect("a port");
    drop(redis);
    let rules = format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
store: {{ url: '{url}', timeout: 5s }}
upstreams: {{ echo: {{ targets: [builtin:echo] }} }}
routes:
  - {{ name: all, match: {{}}, upstream: echo, limits: [{{ name: l, mode: OVERALL, rate: 3, interval: 1h }}] }}\n"
    );
    let file = RuleFile::new("away", &rules);
    let mut program = Program::start(&mut tidegate(&["run", "-c", file.path(), "--workers", "3"]));
    let before = read_until(&mut program.stderr, "store is unreachable");
    let redis = RedisServer::start_on(port).expect("a Redis on the same port");
    let log = before + &read_until(&mut program.stderr, "store has recovered");
    program.signal("TERM");
    let (_, rest) = program.wait_for_exit();
    drop(redis);
    let log = log + &rest;
    assert_eq!(log.matches("store is unreachable").count(), 1, "{log}");
    assert_eq!(log.matches("store has recovered").count(), 1, "{log}");
}
