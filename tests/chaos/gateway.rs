//! A gateway process, whose access log is read while it runs.

use std::fs;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate::Clock;
use tidegate_limit::clock::SystemClock;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::get;
use super::journal::{self, Journal};
use super::listening::address;

/// A running gateway; terminated on drop.
pub struct Gateway {
    child: Child,
    pub address: SocketAddr,
    admin: SocketAddr,
    /// An idle connection to the admin listener.
    admin_stream: Option<TcpStream>,
    rules: PathBuf,
    journal: Journal,
    /// Predecessors that handed over their sockets and are draining.
    draining: Vec<Child>,
}

/// The state of the store, as reported by `/api/v1/config`.
pub struct StoreStatus {
    pub is_up: bool,
    /// Permits that the gateway granted locally and has not charged yet.
    pub owed: u64,
    /// Number of gateways that this one counts.
    pub gateways: u64,
}

impl Gateway {
    /// Starts a gateway with a rule file; the log file goes to the same folder. Writes the addresses into the rule
    /// file, so that later processes listen on the same ones.
    pub fn start(rules: &Path, journal: Journal) -> Self {
        let (child, address, admin) = run(rules, &journal);
        let mut text = fs::read_to_string(rules).expect("rules");
        for (key, address) in [("listen", address), ("admin", admin)] {
            text = text.replacen(&format!("{key}: 127.0.0.1:0\n"), &format!("{key}: {address}\n"), 1);
        }
        fs::write(rules, text).expect("written");
        Self { child, address, admin, admin_stream: None, rules: rules.to_owned(), journal, draining: Vec::new() }
    }

    /// Starts a process that takes over the sockets; the present process drains.
    pub fn hand_over(&mut self) {
        let (successor, ..) = run(&self.rules, &self.journal);
        self.draining.push(std::mem::replace(&mut self.child, successor));
        self.admin_stream = None;
    }

    /// Terminates the process and starts another one. Returns the time of the exit, in milliseconds.
    pub fn restart(&mut self) -> u64 {
        terminate(&mut self.child);
        let ended = SystemClock::new().now().as_millis();
        self.child = run(&self.rules, &self.journal).0;
        self.admin_stream = None;
        ended
    }

    /// Waits until all draining predecessors have exited.
    pub fn wait_for_drains(&mut self) {
        for mut child in self.draining.drain(..) {
            assert!(child.wait().expect("an exit status").success(), "a predecessor failed to drain");
        }
    }

    /// Reads the present state of the store.
    pub async fn store_status(&mut self) -> StoreStatus {
        let config: serde_json::Value = serde_json::from_str(&self.get_admin("/api/v1/config").await).expect("JSON");
        let store = &config["store"];
        let number = |key: &str| store[key].as_u64().unwrap_or_else(|| panic!("no {key}: {store}"));
        StoreStatus { is_up: store["state"] == "up", owed: number("owed"), gateways: number("gateways") }
    }

    /// Returns the value of a counter, summed over all labels.
    pub async fn counter(&mut self, name: &str) -> f64 {
        let text = self.get_admin("/metrics").await;
        let is_series = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        text.lines().filter(is_series).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Returns the resident memory in KiB and the number of open descriptors.
    pub fn resources(&self) -> (u64, usize) {
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|size| size.parse().ok());
        (memory.unwrap_or(0), fs::read_dir(folder.join("fd")).map_or(0, Iterator::count))
    }

    async fn get_admin(&mut self, path: &str) -> String {
        let response = timeout(Duration::from_secs(10), get(&mut self.admin_stream, self.admin, path, "")).await;
        response.expect("no response of the admin listener within 10 s").expect("a response").1
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        terminate(&mut self.child);
        for mut child in self.draining.drain(..) {
            _ = child.wait();
        }
    }
}

/// Sends SIGTERM, on which a gateway flushes its access log, and waits for the exit.
fn terminate(child: &mut Child) {
    _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    _ = child.wait();
}

/// Starts a process with a rule file. Returns the process, its listen address and its admin address.
fn run(rules: &Path, journal: &Journal) -> (Child, SocketAddr, SocketAddr) {
    let log = fs::OpenOptions::new().create(true).append(true).open(rules.with_extension("log")).expect("a log");
    let mut command = Command::new(binary());
    command.arg("run").arg("-c").arg(rules).args(["--log-format", "json", "--workers", "2"]);
    command.arg("--handover").arg(rules.with_extension("sock")).arg("--state").arg(rules.with_extension("json"));
    command.env_remove("TIDEGATE_LOG").env_remove("TIDEGATE_WORKERS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("tidegate starts");
    journal::follow_log(journal.clone(), BufReader::new(child.stdout.take().expect("a pipe")));
    let mut messages = BufReader::new(child.stderr.take().expect("a pipe"));
    let listen = address(&mut messages, "listening on http://");
    let admin = address(&mut messages, "admin on http://");
    std::thread::spawn(move || std::io::copy(&mut messages, &mut { log }));
    (child, listen, admin)
}

/// Returns the path of the program, which cargo builds into the parent folder of the examples.
fn binary() -> PathBuf {
    let example = std::env::current_exe().expect("a path");
    let binary = example.parent().and_then(Path::parent).map(|folder| folder.join("tidegate"));
    binary.filter(|binary| binary.exists()).expect("`tests/chaos/run` builds the program first")
}
