//! Operators inspect and reset clients over the admin API and on the command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{Config, Gateway, ListenAddress};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::support::redis::RedisServer;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;
use crate::unix_sockets::{ask, get};

pub const RULES: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: rest
    match: {}
    upstream: echo
    limits:
      - { name: own, mode: PER_CLIENT, client: 'header:x-key', on_missing_client: ip, rate: 2, interval: 1h }
      - { name: pair, mode: PER_CLIENT, client: ['query:a', host], on_missing_client: skip, rate: 9, interval: 1h }
      - { name: all, mode: OVERALL, rate: 100, interval: 1h, algorithm: gcra, burst: 50 }
";
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A gateway, and the folder of its token file.
pub struct Admin {
    gateway: Option<Gateway>,
    pub folder: PathBuf,
    /// The `listen` and `admin` of its rule file.
    admin: String,
}

impl Admin {
    /// Starts a gateway with this entry of `admin`, in which `FOLDER` is a new folder with a token file.
    pub fn start(admin: &str, more: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tg-api-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("tokens"), format!("ann:{TOKEN}\n")).expect("written");
        let admin = admin.replace("FOLDER", folder.to_str().expect("a path in UTF-8"));
        let admin = format!("listen: 127.0.0.1:0\nadmin: {admin}\n");
        let gateway = Gateway::start(parse(&format!("{admin}{more}{RULES}")), 1).expect("a gateway");
        Self { gateway: Some(gateway), folder, admin }
    }

    /// Reloads the gateway with other rules.
    pub fn reload(&self, rules: &str) {
        drop(self.gateway().reload(parse(&format!("{}{rules}", self.admin))).expect("a reload"));
    }

    pub fn with_tokens(more: &str) -> Self {
        Self::start("{ address: '127.0.0.1:0', tokens: { file: FOLDER/tokens } }", more)
    }

    pub fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("a running gateway")
    }

    fn address(&self) -> String {
        self.gateway().admin_address().expect("an address").to_string()
    }

    /// Sends a request to the API. Returns the status and the JSON.
    pub async fn api(&self, method: &str, path: &str, fields: &str) -> (u16, Value) {
        self.send(method, path, fields, "").await
    }

    /// Sends a request with this body to the API.
    pub async fn send(&self, method: &str, path: &str, fields: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let admin = self.gateway().admin_address().and_then(ListenAddress::tcp).expect("an address");
        let request = format!(
            "{method} /api/v1/{path} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
        );
        let response = Raw::connect(admin).await.ask(request).await;
        (response.status(), serde_json::from_str(&response.text()).expect("JSON"))
    }

    /// Returns the text of `/metrics`.
    pub async fn metrics(&self) -> String {
        let admin = self.gateway().admin_address().and_then(ListenAddress::tcp).expect("an address");
        Raw::connect(admin).await.ask("GET /metrics HTTP/1.1\r\nHost: a.example\r\n\r\n").await.text()
    }

    pub async fn change(&self, path: &str) -> (u16, Value) {
        self.api("DELETE", path, &format!("Authorization: Bearer {TOKEN}\r\n")).await
    }

    pub async fn request(&self, path: &str, fields: &str) -> Message {
        let address = self.gateway().addresses()[0].tcp().expect("an address");
        Raw::connect(address).await.ask(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")).await
    }

    /// Runs the program with these arguments.
    pub async fn run(&self, arguments: &[&str], token: Option<&Path>) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).env_clear().env("TIDEGATE_ADMIN", self.address());
        token.map(|token| command.arg("--token-file").arg(token));
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("joined").expect("the program");
        let Output { status, stdout, stderr } = output;
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (status.code().expect("a code"), text(stdout), text(stderr))
    }
}

fn parse(text: &str) -> Config {
    Gateway::parse_config(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

impl Drop for Admin {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain(Duration::from_millis(10)).expect("drained");
        }
        std::fs::remove_dir_all(&self.folder).expect("removed");
    }
}

pub async fn inspects_and_resets(admin: &Admin) {
    let state = async |query: &str| admin.api("GET", &format!("limits/rest/own/client?{query}"), "").await;
    let (status, unused) = state("value=k").await;
    assert_eq!((status, &unused["remaining"], &unused["used"]), (200, &json!(2), &json!(0)), "{unused}");
    assert_eq!((&unused["expires_at"], &unused["next_permit_at"]), (&Value::Null, &unused["now"]));
    for status in [200, 200, 429] {
        assert_eq!(admin.request("/?a=1", "X-Key: k\r\n").await.status(), status);
    }
    let (_, used) = state("value=%20k").await;
    assert_eq!((&used["remaining"], &used["used"]), (&json!(0), &json!(2)), "{used}");
    assert!(used["next_permit_at"].as_str() > used["now"].as_str(), "{used}");
    let hash = used["client"].as_str().expect("a hash").to_owned();
    assert!(hash.len() == 32 && hash != "k");
    let (_, by_hash) = state(&format!("hash={hash}")).await;
    assert_eq!((&by_hash["used"], &by_hash["client"]), (&used["used"], &used["client"]));
    assert_eq!(admin.api("GET", "limits/rest/pair/client?value=1&value=a.example", "").await.1["used"], 2);
    assert_eq!(admin.api("GET", "limits/rest/all/client", "").await.1["used"], 2);

    assert_eq!(admin.request("/", "").await.status(), 200);
    let (_, by_address) = state("address=127.0.0.1").await;
    assert_eq!((&by_address["used"], &by_address["client"]), (&json!(1), &json!("127.0.0.1")));

    let (status, cleared) = admin.change("limits/rest/own/client?value=k&reason=paid").await;
    let expected = json!({ "route": "rest", "limit": "own", "client": hash, "buckets": 1, "gateways": 1 });
    assert_eq!((status, &cleared), (200, &expected));
    for status in [200, 200, 429] {
        assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), status, "the first after the reset");
    }
    let (status, cleared) = admin.change("limits/rest/own").await;
    assert_eq!((status, &cleared["buckets"]), (200, &json!(2)));
    assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), 200);
    assert_eq!(admin.change("limits/rest/all").await.1["buckets"], 1);
    assert_eq!(admin.api("GET", "limits/rest/all/client", "").await.1["remaining"], 50);

    let (_, audit) = admin.api("GET", "audit", "").await;
    let entries = audit.as_array().expect("a list");
    let one = |entry: &Value| ["operator", "action", "target", "outcome"].map(|key| entry[key].clone());
    assert_eq!(one(&entries[2]), ["ann", "reset_client", "rest/own", "done"]);
    assert_eq!((&entries[2]["client"], &entries[2]["reason"]), (&json!(hash), &json!("paid")));
    assert_eq!(one(&entries[0]), ["ann", "reset_limit", "rest/all", "done"]);
    assert_eq!(entries.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_inspects_and_resets_clients_in_memory() {
    inspects_and_resets(&Admin::with_tokens("")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_inspects_and_resets_clients_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    inspects_and_resets(&Admin::with_tokens(&format!("store: {}\n", redis.rule()))).await;
}

/// Another gateway caches the refusal, for an hour here. It asks Redis again once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_gateway_notices_a_reset() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, other] = [(); 2].map(|()| Admin::with_tokens(&format!("store: {}\n", redis.rule())));
    for status in [200, 200, 429, 429] {
        assert_eq!(other.request("/", "X-Key: k\r\n").await.status(), status);
    }
    assert_eq!(one.change("limits/rest/own/client?value=k").await.1["buckets"], 1);
    soon(async { while other.request("/", "X-Key: k\r\n").await.status() != 200 {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_over_tcp_needs_a_token_of_the_file() {
    let admin = Admin::with_tokens("");
    let target = "limits/rest/own/client?value=k";
    let status = async |fields: &str| admin.api("DELETE", target, fields).await.0;
    assert_eq!(status("").await, 401);
    assert_eq!(status("Authorization: Bearer 0123456789abcdef0123456789abcdeF\r\n").await, 401);
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(status(&token).await, 200);
    assert_eq!(status(&format!("{token}Origin: http://{}\r\n", admin.address())).await, 200);
    assert_eq!(status(&format!("{token}Origin: http://evil.example\r\n")).await, 403);
    // The file is read again for each change.
    std::fs::write(admin.folder.join("tokens"), "bob:fedcba9876543210fedcba9876543210\n").expect("written");
    assert_eq!(status(&token).await, 401);
    assert_eq!(status("Authorization: Bearer fedcba9876543210fedcba9876543210\r\n").await, 200);
    std::fs::remove_file(admin.folder.join("tokens")).expect("removed");
    assert_eq!(status(&token).await, 403);
    let operators = admin.api("GET", "audit", "").await.1;
    let operators: Vec<_> =
        operators.as_array().expect("a list").iter().map(|entry| entry["operator"].clone()).collect();
    assert_eq!(operators, ["bob", "ann", "ann"]);
}

#[tokio::test]
async fn change_over_tcp_is_forbidden_without_tokens() {
    let admin = Admin::start("127.0.0.1:0", "");
    let (status, problem) = admin.change("limits/rest/own").await;
    assert_eq!((status, &problem["status"]), (403, &json!(403)));
    assert!(problem["detail"].as_str().expect("a text").contains("tokens: { file: FILE }"), "{problem}");
    assert_eq!(admin.api("GET", "limits/rest/own/client?value=k", "").await.0, 200);
    assert_eq!(admin.api("GET", "audit", "").await.1, json!([]));
}

#[tokio::test]
async fn invalid_requests_are_problems() {
    let admin = Admin::with_tokens("");
    for (path, expected) in [
        ("limits/rest/none/client?value=k", 404),
        ("limits/none/own/client?value=k", 404),
        ("limits/rest/own/client", 400),
        ("limits/rest/own/client?value=a&value=b", 400),
        ("limits/rest/own/client?value=a&hash=b", 400),
        ("limits/rest/own/client?value=", 400),
        ("limits/rest/own/client?value=%00", 400),
        ("limits/rest/own/client?hash=12", 400),
        ("limits/rest/own/client?address=a", 400),
        ("limits/rest/own/client?key=a", 400),
        ("limits/rest/pair/client?value=a", 400),
        ("limits/rest/all/client?value=a", 400),
        ("nothing", 404),
        ("limits/rest/own", 405),
    ] {
        let (status, problem) = admin.api("GET", path, "").await;
        assert_eq!((status, &problem["status"]), (expected, &json!(expected)), "{path}: {problem}");
        assert!(problem["detail"].is_string() && problem["title"].is_string(), "{path}: {problem}");
    }
    let long = format!("limits/rest/own?reason={}", "x".repeat(257));
    assert_eq!(admin.change(&long).await.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_inspects_and_resets_clients() {
    let admin = Admin::with_tokens("");
    for status in [200, 200, 429] {
        assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), status);
    }
    let token = admin.folder.join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("written");
    let (code, out, _) = admin.run(&["client", "rest/own", "k"], None).await;
    assert_eq!(code, 1, "{out}");
    let line = |name: &str| out.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).expect("a line");
    assert_eq!((line("remaining"), line("used")), ("0", "2"));
    assert!(line("next permit").ends_with('Z'), "{out}");

    let (code, _, errors) = admin.run(&["reset", "rest/own", "k"], None).await;
    assert_eq!((code, errors.contains("needs a token")), (1, true), "{errors}");
    let (code, out, errors) = admin.run(&["reset", "rest/own", "k", "--reason", "a & b"], Some(&token)).await;
    assert_eq!((code, out.as_str()), (0, "rest/own: cleared 1 bucket\n"), "{errors}");
    assert_eq!(admin.api("GET", "audit", "").await.1[0]["reason"], "a & b");
    let (code, out, _) = admin.run(&["client", "rest/own", "k", "--json"], None).await;
    let state: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &state["remaining"]), (0, &json!(2)));

    let (code, out, _) = admin.run(&["limits"], None).await;
    let first: Vec<&str> = out.lines().nth(1).expect("a limit").split_whitespace().collect();
    let expected = ["rest", "own", "PER_CLIENT", "header:x-key", "2", "1h", "token_bucket", "no", "0", "-"];
    assert_eq!((code, first.as_slice()), (0, &expected[..]), "{out}");
    let (code, out, _) = admin.run(&["status"], None).await;
    assert!(code == 0 && out.starts_with("ready        yes\nversion      "), "{out}");
    assert!(out.contains("\nrules        3 limits, applied 20") && out.contains("\nstore        memory\n"), "{out}");
    assert_eq!(admin.run(&["client", "rest/none", "k"], None).await.0, 1);
    assert_eq!(admin.run(&["status", "--admin", "127.0.0.1:1"], None).await.0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_mode_of_a_unix_socket_authorizes_changes() {
    let admin = Admin::start("unix:FOLDER/admin.sock", "");
    assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), 200);
    let (code, out, errors) = admin.run(&["reset", "rest/own", "k", "--json"], None).await;
    assert_eq!(code, 0, "{errors}");
    let cleared: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(cleared["buckets"], 1);
}

/// Returns the status of a response on the Unix socket of `admin`. The response may never end.
async fn status_on_socket(admin: &Admin, request: &str) -> String {
    let mut client = UnixStream::connect(admin.folder.join("admin.sock")).await.expect("connected");
    client.write_all(request.as_bytes()).await.expect("sent");
    let mut line = String::new();
    soon(BufReader::new(client).read_line(&mut line)).await.expect("a status line");
    line.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// A page of any site can send a `GET` to a listener that the browser reaches, for example through a proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_rejects_requests_that_other_sites_start() {
    let admin = Admin::start("unix:FOLDER/admin.sock", "");
    let socket = admin.folder.join("admin.sock");
    let document = ask(socket.to_str().expect("UTF-8"), &get("/api/openapi.json")).await;
    let document: Value = serde_json::from_str(document.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let readable = paths.iter().filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path.as_str());
    let readable: Vec<&str> = readable.filter(|path| path.starts_with("/api/")).collect();
    assert!(readable.len() > 10 && readable.contains(&"/api/v1/record"), "{readable:?}");
    for path in readable {
        let request = |field: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n");
        for field in
            ["Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n", "Origin: http://evil.example\r\n"]
        {
            assert_eq!(status_on_socket(&admin, &request(field)).await, "403", "{path} {field}");
        }
        for field in ["", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"] {
            assert_ne!(status_on_socket(&admin, &request(field)).await, "403", "{path} {field}");
        }
    }
}

#[tokio::test]
async fn api_accepts_addresses_and_localhost_as_host() {
    let admin = Admin::with_tokens("");
    let address = admin.gateway().admin_address().and_then(ListenAddress::tcp).expect("an address");
    for (host, expected) in [
        ("localhost", 200),
        ("LOCALHOST:9901", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:9901", 200),
        ("[::1]", 200),
        ("[::1]:9901", 200),
        ("", 403),
        ("::1", 403),
        ("[::1].evil.example", 403),
        ("[127.0.0.1]", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:9901", 403),
        ("127.0.0.1@evil.example", 403),
    ] {
        let request = format!("GET /api/v1/status HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(Raw::connect(address).await.ask(request).await.status(), expected, "{host:?}");
    }
}
