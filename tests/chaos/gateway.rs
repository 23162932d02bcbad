//! A gateway: a real process, whose access log is read while it runs.

use std::fs;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidegate::clock::{Clock, SystemClock};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::ask;
use super::journal::{self, Journal};
use super::listening::address;

/// A gateway that runs; ended when it is dropped.
pub struct Gateway {
    child: Child,
    pub address: SocketAddr,
    admin: SocketAddr,
    /// A kept connection to its operators' side.
    operator: Option<TcpStream>,
    rules: PathBuf,
    journal: Journal,
    /// Processes that it took over from.
    drain: Vec<Child>,
}

/// What a gateway says of its store.
pub struct Standing {
    pub is_up: bool,
    /// Permits that it has granted alone and not charged yet.
    pub owed: u64,
    pub gateways: u64,
}

impl Gateway {
    /// Starts one with this rule file; its log goes beside that. Its successors have its addresses.
    pub fn start(rules: &Path, journal: Journal) -> Self {
        let (child, address, admin) = run(rules, &journal);
        let mut text = fs::read_to_string(rules).expect("rules");
        for (key, address) in [("listen", address), ("admin", admin)] {
            text = text.replacen(&format!("{key}: 127.0.0.1:0\n"), &format!("{key}: {address}\n"), 1);
        }
        fs::write(rules, text).expect("written");
        Self { child, address, admin, operator: None, rules: rules.to_owned(), journal, drain: Vec::new() }
    }

    /// Starts a process that takes over from this one, which drains.
    pub fn hand_over(&mut self) {
        let (successor, ..) = run(&self.rules, &self.journal);
        self.drain.push(std::mem::replace(&mut self.child, successor));
        self.operator = None;
    }

    /// Ends the process, and starts another one. Returns when the old one had ended, in milliseconds.
    pub fn restart(&mut self) -> u64 {
        terminate(&mut self.child);
        let ended = SystemClock::new().now().as_millis();
        self.child = run(&self.rules, &self.journal).0;
        self.operator = None;
        ended
    }

    /// Waits until all processes have ended that it took over from.
    pub fn wait_for_drains(&mut self) {
        for mut child in self.drain.drain(..) {
            assert!(child.wait().expect("an end").success(), "a drain that failed");
        }
    }

    /// What it says of its store at present.
    pub async fn standing(&mut self) -> Standing {
        let config: serde_json::Value = serde_json::from_str(&self.told("/api/v1/config").await).expect("JSON");
        let store = &config["store"];
        let number = |key: &str| store[key].as_u64().unwrap_or_else(|| panic!("no {key}: {store}"));
        Standing { is_up: store["state"] == "up", owed: number("owed"), gateways: number("gateways") }
    }

    /// The value of one of its counters, over all labels.
    pub async fn counter(&mut self, name: &str) -> f64 {
        let text = self.told("/metrics").await;
        let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        text.lines().filter(of_it).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// What it occupies: memory in KiB, and open descriptors.
    pub fn occupies(&self) -> (u64, usize) {
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|size| size.parse().ok());
        (memory.unwrap_or(0), fs::read_dir(folder.join("fd")).map_or(0, Iterator::count))
    }

    async fn told(&mut self, path: &str) -> String {
        let answer = timeout(Duration::from_secs(10), ask(&mut self.operator, self.admin, path, "")).await;
        answer.expect("in time").expect("an answer").1
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        terminate(&mut self.child);
        for mut child in self.drain.drain(..) {
            _ = child.wait();
        }
    }
}

/// Asked to end, a gateway writes down what it has not yet.
fn terminate(child: &mut Child) {
    _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    _ = child.wait();
}

/// Starts a process with this rule file; returns it with its addresses for clients and operators.
fn run(rules: &Path, journal: &Journal) -> (Child, SocketAddr, SocketAddr) {
    let log = fs::OpenOptions::new().create(true).append(true).open(rules.with_extension("log")).expect("a log");
    let mut command = Command::new(binary());
    command.arg("run").arg("-c").arg(rules).args(["--log-format", "json", "--workers", "2"]);
    command.arg("--handover").arg(rules.with_extension("sock")).arg("--state").arg(rules.with_extension("json"));
    command.env_remove("TIDEGATE_LOG").env_remove("TIDEGATE_WORKERS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("tidegate starts");
    journal::follow(journal.clone(), BufReader::new(child.stdout.take().expect("a pipe")));
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let clients = address(&mut said, "listening on http://");
    let operators = address(&mut said, "admin on http://");
    std::thread::spawn(move || std::io::copy(&mut said, &mut { log }));
    (child, clients, operators)
}

/// The program, which was built into the folder above the examples.
fn binary() -> PathBuf {
    let example = std::env::current_exe().expect("a path");
    let binary = example.parent().and_then(Path::parent).map(|folder| folder.join("tidegate"));
    binary.filter(|binary| binary.exists()).expect("`tests/chaos/run` builds the program first")
}
