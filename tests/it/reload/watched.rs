//! A running program whose rule file tests change.

use std::fs;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::support::gateway::get;
use crate::support::process::{Program, tidegate};
use crate::support::wire::raw::{Message, Raw};

/// A running program with its rule file in a temporary folder. Dropping it removes the folder.
pub(super) struct Watched {
    pub(super) program: Program,
    pub(super) folder: PathBuf,
    arguments: Vec<String>,
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Watched {
    /// Starts a program with a rate of 1. `set_up` creates the rule file `rules.yaml` in the folder.
    pub(super) fn start(name: &str, set_up: impl FnOnce(&Path), more: &[&str]) -> Self {
        Self::start_with(name, set_up, more, &[])
    }

    /// Like [`start`](Self::start), with environment variables.
    pub(super) fn start_with(
        name: &str,
        set_up: impl FnOnce(&Path),
        more: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let more: Vec<_> = more.iter().map(ToString::to_string).collect();
        Self::start_in_folder(name, set_up, |_| more, variables)
    }

    /// Like [`start`](Self::start), with arguments that name files in the folder.
    pub(super) fn start_in(name: &str, set_up: impl FnOnce(&Path), more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        Self::start_in_folder(name, set_up, more, &[])
    }

    fn start_in_folder(
        name: &str,
        set_up: impl FnOnce(&Path),
        more: impl FnOnce(&Path) -> Vec<String>,
        variables: &[(&str, &str)],
    ) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("reload-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        set_up(&folder);
        let path = folder.join("rules.yaml").to_str().expect("UTF-8").to_owned();
        let mut arguments = ["run", "--workers", "2"].map(str::to_owned).to_vec();
        arguments.push(path);
        arguments.extend(more(&folder));
        let mut program = Program::start(tidegate(&[]).args(&arguments).envs(variables.iter().copied()));
        let address = crate::support::process::address(&mut program.stderr, "listening on http://");
        let admin = crate::support::process::address(&mut program.stderr, "admin on http://");
        Self { program, folder, arguments, address, admin }
    }

    /// Kills the program.
    pub(super) fn stop(&mut self) {
        self.program = Program::start(&mut Command::new("true"));
    }

    /// Starts the program again. Returns its log before it listens.
    pub(super) fn start_again(&mut self) -> String {
        let mut program = Program::start(tidegate(&[]).args(&self.arguments));
        let (mut log, mut line) = (String::new(), String::new());
        while !line.contains("listening on http://") {
            line.clear();
            assert!(program.stderr.read_line(&mut line).expect("text") > 0, "the program has exited: {log}");
            log.push_str(&line);
        }
        self.address = line.rsplit("http://").next().expect("an address").trim().parse().expect("an address");
        self.admin = crate::support::process::address(&mut program.stderr, "admin on http://");
        self.program = program;
        log
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn write(&self, text: &str) {
        fs::write(self.path("rules.yaml"), text).expect("written");
    }

    pub(super) async fn admin_get(&self, path: &str) -> Message {
        get(&mut Raw::connect(self.admin).await, path, "").await
    }

    pub(super) async fn config(&self) -> serde_json::Value {
        let request = "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let config = Raw::connect(self.admin).await.ask(request).await.text();
        serde_json::from_str(&config).expect("JSON")
    }

    /// Waits until the configuration meets a condition.
    #[track_caller]
    pub(super) fn until(
        &self,
        what: &str,
        condition: impl Fn(&serde_json::Value) -> bool,
    ) -> impl Future<Output = serde_json::Value> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + Duration::from_secs(15);
            loop {
                let config = self.config().await;
                if condition(&config) {
                    return config;
                }
                assert!(Instant::now() < deadline, "waited for {what} at {caller}: {config}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    #[track_caller]
    pub(super) fn until_rate(&self, rate: u32) -> impl Future<Output = serde_json::Value> {
        self.until("a rate", move |config| config["routes"][0]["limits"][0]["rate"] == rate)
    }

    pub(super) async fn metric(&self, series: &str) -> String {
        let text = self.admin_get("/metrics").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_default().to_owned()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}
