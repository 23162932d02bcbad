//! Overrides that a process passes on to the next one: over a handover, or in the file of `--state`.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::task::{spawn_blocking, yield_now};

use crate::admin_api::TOKEN;
use crate::support::process::{Program, RuleFile};
use crate::support::redis::{RedisServer, free_port};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

const BAN: &str = r#"{ "action": "ban", "target": { "address": "127.0.0.0/8" }, "for": "1h", "reason": "a test" }"#;

/// A folder for the files of gateways. Dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("tokens"), format!("ann:{TOKEN}\n")).expect("written");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    fn rules(&self, name: &str, store: &str, [listen, admin]: [&str; 2]) -> RuleFile {
        let tokens = self.path("tokens");
        let text = format!(
            "listen: {listen}\nadmin: {{ address: '{admin}', tokens: {{ file: {tokens} }} }}\nstore: {store}\n\
             upstreams: {{ echo: {{ targets: [builtin:echo] }} }}\nroutes: [{{ name: rest, match: {{}}, upstream: echo }}]\n"
        );
        RuleFile::new(name, &text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

const ANY: [&str; 2] = ["127.0.0.1:0"; 2];

async fn api(admin: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let fields = format!("Host: {admin}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n", body.len());
    let request = format!("{method} /api/v1/{path} HTTP/1.1\r\n{fields}\r\n{body}");
    let response = Raw::connect(admin).await.ask(request).await;
    (response.status(), serde_json::from_str(&response.text()).expect("JSON"))
}

async fn ban(admin: SocketAddr) -> String {
    let (status, banned) = api(admin, "POST", "overrides", BAN).await;
    assert_eq!(status, 201, "{banned}");
    banned["id"].as_str().expect("an id").to_owned()
}

async fn status(gateway: SocketAddr) -> u16 {
    Raw::connect(gateway).await.ask("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.status()
}

async fn audit(admin: SocketAddr) -> Vec<Value> {
    let (_, audit) = api(admin, "GET", "audit", "").await;
    audit.as_array().expect("a list").iter().map(|entry| entry["action"].clone()).collect()
}

/// Waits until the file of overrides contains this text.
async fn until_saved(folder: &Folder, text: &str) {
    let saved = || std::fs::read_to_string(folder.path("state.operators")).unwrap_or_default();
    soon(async {
        while !saved().contains(text) {
            yield_now().await;
        }
    })
    .await;
}

async fn end(program: Program) -> String {
    program.signal("TERM");
    spawn_blocking(|| program.wait_for_exit().1).await.expect("an exit")
}

fn store_at(port: u16) -> String {
    format!("{{ url: 'redis://127.0.0.1:{port}', timeout: 1s }}")
}

/// Redis is lost while the gateway is stopped. The next gateway bans from its first request on, and fills the new Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_without_redis_keeps_bans_of_the_state_file() {
    let port = free_port();
    let Some(redis) = RedisServer::start_on(port) else { return };
    let folder = Folder::new("kept-bans");
    let (rules, state) = (folder.rules("kept-bans", &store_at(port), ANY), folder.path("state"));
    let (program, gateway, admin) = Program::run(&rules, &["--state", &state]);
    let id = ban(admin).await;
    assert_eq!(status(gateway).await, 403);
    until_saved(&folder, &id).await;
    program.signal("KILL");
    drop((program, redis));
    let (program, gateway, admin) = Program::run(&rules, &["--state", &state]);
    assert_eq!(status(gateway).await, 403);
    assert_eq!(audit(admin).await, [json!("ban")]);
    let Some(_redis) = RedisServer::start_on(port) else { return };
    let other = folder.rules("kept-bans-other", &store_at(port), ANY);
    soon(async { while api(admin, "DELETE", "overrides/0123456789abcdef", "").await.0 != 404 {} }).await;
    let (_other, gateway, _) = Program::run(&other, &[]);
    soon(async { while status(gateway).await != 403 {} }).await;
    let log = end(program).await;
    assert_eq!(log.matches("store has lost overrides").count(), 1, "{log}");
    assert!(log.contains("holds overrides=1") && log.contains("holds entries=1"), "{log}");
}

/// The ban was removed through another gateway while this one was stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_gateway_does_not_restore_a_removed_ban() {
    let Some(redis) = RedisServer::start() else { return };
    let folder = Folder::new("removed-ban");
    let (rules, state) = (folder.rules("removed-ban", &redis.rule(), ANY), folder.path("state"));
    let (program, _, admin) = Program::run(&rules, &["--state", &state]);
    let id = ban(admin).await;
    until_saved(&folder, &id).await;
    program.signal("KILL");
    drop(program);
    let (_other, _, other_admin) = Program::run(&folder.rules("removed-ban-other", &redis.rule(), ANY), &[]);
    assert_eq!(api(other_admin, "DELETE", &format!("overrides/{id}"), "").await.0, 200);
    let (program, gateway, admin) = Program::run(&rules, &["--state", &state]);
    soon(async { while status(gateway).await != 200 {} }).await;
    assert_eq!(api(admin, "GET", "overrides", "").await.1, json!([]));
    soon(async { while audit(admin).await.len() != 2 {} }).await;
    let log = end(program).await;
    assert!(!log.contains("store has lost overrides"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_keeps_bans_of_the_embedded_store() {
    let folder = Folder::new("embedded-bans");
    let (rules, state) = (folder.rules("embedded-bans", "memory", ANY), folder.path("state"));
    let (program, _, admin) = Program::run(&rules, &["--state", &state]);
    let id = ban(admin).await;
    drop(end(program).await);
    let (_program, gateway, admin) = Program::run(&rules, &["--state", &state]);
    assert_eq!(status(gateway).await, 403);
    soon(async { while api(admin, "DELETE", &format!("overrides/{id}"), "").await.0 != 200 {} }).await;
    assert_eq!(status(gateway).await, 200);
}

/// Redis hangs before the handover, and is empty after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handover_keeps_bans_while_redis_is_lost() {
    let port = free_port();
    let Some(redis) = RedisServer::start_on(port) else { return };
    let (folder, store) = (Folder::new("handed-bans"), store_at(port));
    let socket = folder.path("socket");
    let (program, gateway, admin) = Program::run(&folder.rules("handed-bans", &store, ANY), &["--handover", &socket]);
    let id = ban(admin).await;
    redis.signal("STOP");
    let addresses = [gateway.to_string(), admin.to_string()];
    let next = folder.rules("handed-bans-next", &store, addresses.each_ref().map(String::as_str));
    let (successor, ..) = Program::run(&next, &["--handover", &socket]);
    assert!(spawn_blocking(|| program.wait_for_exit().0).await.expect("an exit").success());
    assert_eq!(status(gateway).await, 403);
    assert_eq!(audit(admin).await, [json!("ban")]);
    drop(redis);
    let Some(_redis) = RedisServer::start_on(port) else { return };
    soon(async { while api(admin, "DELETE", &format!("overrides/{id}"), "").await.0 != 200 {} }).await;
    assert_eq!(status(gateway).await, 200);
    let log = end(successor).await;
    assert_eq!(log.matches("store has lost overrides").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handover_moves_bans_of_the_embedded_store() {
    let folder = Folder::new("moved-bans");
    let socket = folder.path("socket");
    let (program, gateway, admin) = Program::run(&folder.rules("moved-bans", "memory", ANY), &["--handover", &socket]);
    drop(ban(admin).await);
    let addresses = [gateway.to_string(), admin.to_string()];
    let next = folder.rules("moved-bans-next", "memory", addresses.each_ref().map(String::as_str));
    let (_successor, ..) = Program::run(&next, &["--handover", &socket]);
    assert_eq!(status(gateway).await, 403);
    assert!(spawn_blocking(|| program.wait_for_exit().0).await.expect("an exit").success());
}
