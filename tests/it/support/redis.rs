//! A `redis-server` of the tests' own, on a free port, gone with its owner.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Client, Connection, InfoDict, cmd};
use tidegate::metrics::Metrics;
use tidegate::store::Store;
use tidegate::store::settings::{RedisSettings, RedisUrl, StoreSettings};

/// A running Redis.
pub struct RedisServer {
    child: Child,
    /// The port it listens on, on loopback.
    pub port: u16,
}

impl RedisServer {
    /// Starts a Redis, or says why the test cannot run. With `REQUIRE_REDIS=1` a missing one is a failure.
    pub fn start() -> Option<Self> {
        Self::start_with(None, &["--appendonly", "no"])
    }

    /// Starts a Redis on this port.
    pub fn start_on(port: u16) -> Option<Self> {
        Self::start_with(Some(port), &["--appendonly", "no"])
    }

    /// Starts a Redis on a free port that knows no functions, as none did before version 7.
    pub fn start_without_functions() -> Option<Self> {
        let settings = ["--appendonly", "no", "--rename-command", "FCALL", ""];
        Self::start_with(None, if knows_functions() { &settings } else { &settings[..2] })
    }

    /// Starts a Redis on a free port that writes down in this folder what it is told before it answers, and knows it when it
    /// starts again.
    pub fn start_in(folder: &Path) -> Option<Self> {
        let dir = folder.to_str().expect("a path in UTF-8");
        Self::start_with(None, &["--appendonly", "yes", "--appendfsync", "always", "--dir", dir])
    }

    /// Starts a Redis with more arguments. A port that was free may be somebody else's a moment later: then another is tried.
    pub fn start_with(port: Option<u16>, more: &[&str]) -> Option<Self> {
        Self::start_at(|| port.unwrap_or_else(free_port), more)
    }

    /// Starts a node of a cluster, on a free port.
    pub fn start_node(more: &[&str]) -> Option<Self> {
        Self::start_at(free_port_of_node, &[&["--cluster-enabled", "yes"], more].concat())
    }

    /// Starts a Redis on this port with these variables in its environment.
    #[allow(dead_code, reason = "the chaos run alone needs it")]
    pub fn start_in_environment(port: u16, more: &[&str], environment: &[(&str, PathBuf)]) -> Option<Self> {
        Self::start_by(|| port, more, environment)
    }

    fn start_at(port: impl Fn() -> u16, more: &[&str]) -> Option<Self> {
        Self::start_by(port, more, &[])
    }

    fn start_by(port: impl Fn() -> u16, more: &[&str], environment: &[(&str, PathBuf)]) -> Option<Self> {
        for _ in 0..5 {
            let mut server = Self::spawn(port(), more, environment)?;
            if server.answers() {
                return Some(server);
            }
        }
        panic!("redis-server does not answer");
    }

    /// Starts a sentinel with this configuration, which it rewrites.
    pub fn start_sentinel(file: &Path, config: &str) -> Option<Self> {
        for _ in 0..5 {
            let port = free_port();
            std::fs::write(file, format!("port {port}\nbind 127.0.0.1\n{config}")).expect("written");
            let mut sentinel = Self::run(Command::new("redis-server").arg(file).arg("--sentinel"), port)?;
            if sentinel.answers() {
                return Some(sentinel);
            }
        }
        panic!("redis-server does not answer as a sentinel");
    }

    fn spawn(port: u16, more: &[&str], environment: &[(&str, PathBuf)]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.envs(environment.iter().cloned());
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).args(more);
        Self::run(&mut command, port)
    }

    #[expect(clippy::print_stdout, reason = "what was not tested must be said")]
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

    /// Waits until it answers, it and no other on this port. It may have ended before.
    fn answers(&mut self) -> bool {
        for _ in 0..500 {
            if self.try_connection().is_ok_and(|mut connection| self.is_at(&mut connection)) {
                return true;
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            wait_a_little();
        }
        false
    }

    fn is_at(&self, connection: &mut Connection) -> bool {
        let about: InfoDict = cmd("INFO").arg("server").query(connection).expect("what it is");
        about.get("process_id") == Some(self.child.id())
    }

    /// The number of its process.
    #[allow(dead_code, reason = "a measurement alone needs it")]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What a rule file says of it, with a deadline that a busy machine keeps.
    pub fn rule(&self) -> String {
        format!("{{ url: '{}', timeout: 2s }}", self.url())
    }

    /// A connection to look behind the scenes with. A busy machine may need more than one attempt.
    pub fn connection(&self) -> Connection {
        let attempt = |_| self.try_connection().ok();
        (0..9).find_map(attempt).unwrap_or_else(|| self.try_connection().expect("a connection"))
    }

    fn try_connection(&self) -> deadpool_redis::redis::RedisResult<Connection> {
        let mut connection = Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(1))?;
        cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }

    /// A store in this Redis, with a deadline that a busy machine keeps.
    pub fn store(&self) -> Store {
        self.store_with_timeout(Duration::from_secs(10))
    }

    /// A store in this Redis with this deadline.
    pub fn store_with_timeout(&self, timeout: Duration) -> Store {
        Self::store_at(self.url(), timeout)
    }

    /// A store at this address with this deadline.
    pub fn store_at(url: String, timeout: Duration) -> Store {
        let settings = RedisSettings { timeout, ..RedisSettings::new(RedisUrl::new(url)) };
        Store::open(&StoreSettings::Redis(settings), Arc::new(Metrics::new())).expect("a store")
    }

    /// Sends it a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
        // It may run on for a moment on another core.
        while name == "STOP" && self.state().is_some_and(|state| state != "T") {
            wait_a_little();
        }
    }

    /// Does it keep functions?
    pub fn knows_functions(&self) -> bool {
        cmd("FUNCTION").arg("LIST").exec(&mut self.connection()).is_ok()
    }

    /// What the system says it does, in a letter.
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

/// A name that no other test has used.
pub fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{{tidegate:test}}:{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A pause between two looks at another process.
#[expect(clippy::disallowed_methods, reason = "another process gives no sign but its answer")]
pub fn wait_a_little() {
    std::thread::sleep(Duration::from_millis(10));
}

/// A port that nobody listens on at this moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// A port that is free, as is the one that is 10,000 higher, on which nodes of a cluster talk to each other.
pub fn free_port_of_node() -> u16 {
    let has_both = |port: &u16| *port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok();
    std::iter::repeat_with(free_port).find(has_both).expect("a free port")
}

/// Is there a Redis of version 7 or later, or a Valkey? One that is older does not start when it is told of a command that it
/// does not know.
fn knows_functions() -> bool {
    let version = Command::new("redis-server").arg("--version").output();
    !version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains(" v=6."))
}
