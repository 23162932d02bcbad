//! Runs `redis-server` on a free port.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deadpool_redis::redis::{Client, Connection, InfoDict, cmd};
use tidegate::internals::ReplayStore;
use tidegate::{Metrics, Store};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};

/// A running Redis. Dropping it kills the process.
pub struct RedisServer {
    child: Child,
    /// The port of Redis on loopback.
    pub port: u16,
}

impl RedisServer {
    /// Starts a Redis on a free port. Without `redis-server` it prints `NOT TESTED` and returns `None`, or panics
    /// if `REQUIRE_REDIS` is set.
    pub fn start() -> Option<Self> {
        Self::start_with(None, &["--appendonly", "no"])
    }

    /// Starts a Redis on this port.
    pub fn start_on(port: u16) -> Option<Self> {
        Self::start_with(Some(port), &["--appendonly", "no"])
    }

    /// Starts a Redis without functions, like a Redis before version 7.
    pub fn start_without_functions() -> Option<Self> {
        let settings = ["--appendonly", "no", "--rename-command", "FCALL", ""];
        Self::start_with(None, if supports_functions() { &settings } else { &settings[..2] })
    }

    /// Starts a Redis that persists every write in this folder before it replies.
    pub fn start_in(folder: &Path) -> Option<Self> {
        let dir = folder.to_str().expect("a path in UTF-8");
        Self::start_with(None, &["--appendonly", "yes", "--appendfsync", "always", "--dir", dir])
    }

    /// Starts a Redis with further arguments, on this port or a free one.
    pub fn start_with(port: Option<u16>, more: &[&str]) -> Option<Self> {
        Self::start_at(|| port.unwrap_or_else(free_port), more)
    }

    /// Starts a cluster node on a free port.
    pub fn start_node(more: &[&str]) -> Option<Self> {
        Self::start_at(free_port_of_node, &[&["--cluster-enabled", "yes"], more].concat())
    }

    /// Starts a Redis on this port with these environment variables.
    #[allow(dead_code, reason = "only the chaos run needs it")]
    pub fn start_in_environment(port: u16, more: &[&str], environment: &[(&str, PathBuf)]) -> Option<Self> {
        Self::start_by(|| port, more, environment)
    }

    fn start_at(port: impl Fn() -> u16, more: &[&str]) -> Option<Self> {
        Self::start_by(port, more, &[])
    }

    fn start_by(port: impl Fn() -> u16, more: &[&str], environment: &[(&str, PathBuf)]) -> Option<Self> {
        // Another process may take a free port before Redis binds it.
        for _ in 0..5 {
            let mut server = Self::spawn(port(), more, environment)?;
            if server.wait_until_ready() {
                return Some(server);
            }
        }
        panic!("redis-server does not reply");
    }

    /// Starts a sentinel with this configuration file, which the sentinel rewrites.
    pub fn start_sentinel(file: &Path, config: &str) -> Option<Self> {
        for _ in 0..5 {
            let port = free_port();
            std::fs::write(file, format!("port {port}\nbind 127.0.0.1\n{config}")).expect("written");
            let mut sentinel = Self::run(Command::new("redis-server").arg(file).arg("--sentinel"), port)?;
            if sentinel.wait_until_ready() {
                return Some(sentinel);
            }
        }
        panic!("redis-server does not reply as a sentinel");
    }

    fn spawn(port: u16, more: &[&str], environment: &[(&str, PathBuf)]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.envs(environment.iter().cloned());
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).args(more);
        Self::run(&mut command, port)
    }

    #[expect(clippy::print_stdout, reason = "a skipped test must be visible")]
    fn run(command: &mut Command, port: u16) -> Option<Self> {
        match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => Some(Self { child, port }),
            Err(error) => {
                assert!(std::env::var_os("REQUIRE_REDIS").is_none(), "redis-server cannot be started: {error}");
                println!("NOT TESTED: redis-server cannot be started ({error}); `tests/run` installs it");
                None
            }
        }
    }

    /// Waits until this process replies on the port. Returns `false` if it exits or takes longer than a minute.
    fn wait_until_ready(&mut self) -> bool {
        for _ in 0..6_000 {
            if self.try_connection().is_ok_and(|mut connection| self.is_peer_of(&mut connection)) {
                return true;
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            wait_a_little();
        }
        false
    }

    fn is_peer_of(&self, connection: &mut Connection) -> bool {
        let info: InfoDict = cmd("INFO").arg("server").query(connection).expect("server information");
        info.get("process_id") == Some(self.child.id())
    }

    /// Returns the id of the process.
    #[allow(dead_code, reason = "only a benchmark needs it")]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the `store` of a rule file for this Redis, with a timeout that a busy machine meets.
    pub fn rule(&self) -> String {
        format!("{{ url: '{}', timeout: 2s }}", self.url())
    }

    /// Opens a connection for the test itself. Retries, because a busy machine may need more than one attempt.
    pub fn connection(&self) -> Connection {
        let attempt = |_| self.try_connection().ok();
        (0..9).find_map(attempt).unwrap_or_else(|| self.try_connection().expect("a connection"))
    }

    fn try_connection(&self) -> deadpool_redis::redis::RedisResult<Connection> {
        let mut connection = Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(10))?;
        cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }

    /// Opens a store in this Redis, with a timeout that a busy machine meets.
    pub fn store(&self) -> Store {
        self.store_with_timeout(Duration::from_secs(10))
    }

    /// Opens a store in this Redis with this timeout.
    pub fn store_with_timeout(&self, timeout: Duration) -> Store {
        Self::store_at(self.url(), timeout)
    }

    /// Opens a store at this URL with this timeout.
    pub fn store_at(url: String, timeout: Duration) -> Store {
        let settings = RedisSettings { timeout, ..RedisSettings::new(RedisUrl::new(url)) };
        Store::open(&StoreSettings::Redis(settings), Arc::new(Metrics::new())).expect("a store")
    }

    /// Opens a store in this Redis with a manual clock.
    pub fn replay_store(&self) -> ReplayStore {
        let settings =
            RedisSettings { timeout: Duration::from_secs(10), ..RedisSettings::new(RedisUrl::new(self.url())) };
        ReplayStore::open(&StoreSettings::Redis(settings)).expect("a store")
    }

    /// Returns the number of script calls that have decided requests. Each announcement of a gateway, and each reading of
    /// commands for all gateways, is a script call with one `ZREMRANGEBYSCORE`; such calls do not count, nor do failed ones, by which a connection detects the
    /// features of the server. Routes with `concurrency` also use that command.
    pub fn decision_calls(&self) -> u64 {
        let stats: String = cmd("INFO").arg("commandstats").query(&mut self.connection()).expect("statistics");
        let of = |command: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")))?;
            let number = |name: &str| line.split(',').find_map(|field| field.strip_prefix(name))?.parse::<u64>().ok();
            Some(number("calls=")? - number("failed_calls=")?)
        };
        let scripts: u64 = ["eval", "evalsha", "fcall"].into_iter().filter_map(of).sum();
        scripts - of("zremrangebyscore").unwrap_or(0)
    }

    /// Sends a signal, for example `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
        // After SIGSTOP the process may still run for a moment on another core.
        while name == "STOP" && self.state().is_some_and(|state| state != "T") {
            wait_a_little();
        }
    }

    /// Returns `true` if this Redis supports functions.
    pub fn supports_functions(&self) -> bool {
        cmd("FUNCTION").arg("LIST").exec(&mut self.connection()).is_ok()
    }

    /// Returns the letter of the process state.
    fn state(&self) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        Some(stat.rsplit_once(") ")?.1.split(' ').next()?.to_owned())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns a limiter name that no other test uses.
pub fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{{tidegate:test}}:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Pauses for 10 ms between two checks of another process.
#[expect(clippy::disallowed_methods, reason = "another process can only be polled")]
pub fn wait_a_little() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Checks `condition` until it holds, for at most 60 s. `what` completes "waited 60 s until".
#[allow(dead_code, reason = "not every user waits")]
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if condition() {
            return;
        }
        wait_a_little();
    }
    panic!("waited 60 s until {what}");
}

/// The ports of cluster nodes.
const NODE_PORTS: Range<u16> = 10_000..16_000;

/// The ports of other servers. Neither range contains ports of the other, cluster bus ports, or ports above 32,767, which
/// the kernel assigns to clients and to listeners without a port.
const SERVER_PORTS: Range<u16> = 26_000..32_768;

/// Returns a free port. No other call of this process returns it again soon, so that a server can be restarted on it.
pub fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(random_start);
    free_port_in(&SERVER_PORTS, &NEXT, is_free)
}

/// Returns such a port whose cluster bus port (10,000 higher) is free, too.
pub fn free_port_of_node() -> u16 {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(random_start);
    free_port_in(&NODE_PORTS, &NEXT, |port| is_free(port) && is_free(port + 10_000))
}

/// Returns the next free port of a range.
fn free_port_in(range: &Range<u16>, next: &AtomicU16, is_free: impl Fn(u16) -> bool) -> u16 {
    let length = range.end - range.start;
    let mut ports = (0..length).map(|_| range.start + next.fetch_add(1, Ordering::Relaxed) % length);
    ports.find(|port| is_free(*port)).expect("a free port")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Returns a random number, so that two processes do not use the same ports at the same time.
fn random_start() -> AtomicU16 {
    let bytes = RandomState::new().build_hasher().finish().to_le_bytes();
    AtomicU16::new(u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// Returns `true` for Redis 7 and later and for Valkey. An older Redis does not start if a setting names FCALL.
pub fn supports_functions() -> bool {
    let version = Command::new("redis-server").arg("--version").output();
    !version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains(" v=6."))
}
