//! A gateway of a fleet.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::process::{Program, address, output, tidegate};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// A gateway as a process, with its own folder. Dropping it kills the process.
pub struct Member {
    folder: PathBuf,
    admin: SocketAddr,
    _program: Program,
}

impl Member {
    /// Starts a gateway with this name, which no other test uses, and this token of `ann`. It does not watch its rule file,
    /// which ends with `more`.
    pub fn start(redis: &RedisServer, name: &str, token: &str, more: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("tokens"), format!("ann:{token}\n")).expect("written");
        write_rules(&folder, redis, more);
        let file = folder.join("rules.yaml");
        let file = file.to_str().expect("a path in UTF-8");
        let mut command = tidegate(&["run", "-c", file, "--no-watch", "--workers", "1"]);
        let mut program = Program::start(command.env("TIDEGATE_NAME", name));
        let admin = address(&mut program.stderr, "admin on http://");
        Self { folder, admin, _program: program }
    }

    /// Changes the end of the rule file.
    pub fn write(&self, redis: &RedisServer, more: &str) {
        write_rules(&self.folder, redis, more);
    }

    /// Returns the file that contains only the token.
    pub fn token_file(&self, token: &str) -> String {
        let file = self.folder.join("token");
        std::fs::write(&file, token).expect("written");
        file.to_str().expect("a path in UTF-8").to_owned()
    }

    pub async fn get(&self, path: &str) -> Value {
        let request = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        serde_json::from_str(&Raw::connect(self.admin).await.ask(request).await.text()).expect("JSON")
    }

    /// Waits until this gateway lists `number` gateways, and knows all of them. Returns the list.
    #[track_caller]
    pub fn until_lists(&self, number: usize) -> impl Future<Output = Value> {
        soon(async move {
            loop {
                let fleet = self.get("fleet").await;
                let all = fleet["gateways"].as_array().expect("a list");
                if all.len() == number && all.iter().all(|gateway| gateway["version"].is_string()) {
                    return fleet;
                }
                tokio::task::yield_now().await;
            }
        })
    }

    /// Waits until a metric has this value.
    #[track_caller]
    pub fn until_metric(&self, name: &str, value: &str) -> impl Future<Output = ()> {
        let line = format!("{name} {value}");
        soon(async move {
            loop {
                let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
                if Raw::connect(self.admin).await.ask(request).await.text().lines().any(|other| other == line) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
    }

    /// Runs the program with these arguments. Returns its exit code and its output.
    pub fn run(&self, arguments: &[&str]) -> (i32, String) {
        let run = output(&[arguments, &["--admin", &self.admin.to_string()]].concat());
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (run.status.code().expect("a code"), text(run.stdout) + &text(run.stderr))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Writes the rule file, which is the same for all gateways but for `more`.
fn write_rules(folder: &Path, redis: &RedisServer, more: &str) {
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: {{ address: '127.0.0.1:0', tokens: {{ file: tokens }} }}\nstore: {}\n\
         upstreams: {{ api: {{ targets: ['http://127.0.0.1:1', 'builtin:echo'] }} }}\n\
         routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]\n{more}",
        redis.rule()
    );
    std::fs::write(folder.join("rules.yaml"), text).expect("written");
}
