//! A `redis-server` of the benchmark's own, on a free port of loopback, gone with its owner; and what it says of itself.

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use deadpool_redis::redis::{Client, Connection, FromRedisValue, InfoDict, Value, cmd};
use tokio::time::sleep;

use super::Result;

/// A running Redis, and a connection to ask it what happened.
pub struct Server {
    running: Running,
    connection: Connection,
}

struct Running {
    child: Child,
    url: String,
}

/// Scripts that ran.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Microseconds per call.
    pub per_call: f64,
    /// Microseconds of the longest call.
    pub longest: u64,
}

/// More calls than are ever looked at together.
const SLOWLOG: usize = 8_192;

impl Server {
    /// Starts one and waits until it answers.
    pub async fn start() -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--slowlog-log-slower-than", "0", "--slowlog-max-len", &SLOWLOG.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("redis-server does not start: {error}"))?;
        let running = Running { child, url: format!("redis://127.0.0.1:{port}") };
        for _ in 0..500 {
            if let Ok(connection) = running.connect() {
                return Ok(Self { running, connection });
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err("redis-server does not answer".into())
    }

    pub fn url(&self) -> String {
        self.running.url.clone()
    }

    pub fn connect(&self) -> Result<Connection> {
        self.running.connect()
    }

    pub fn version(&mut self) -> Result<String> {
        let info: InfoDict = cmd("INFO").arg("server").query(&mut self.connection)?;
        Ok(info.get("redis_version").ok_or("no version")?)
    }

    /// From here on counts what is spent.
    pub fn start_counting(&mut self) -> Result<()> {
        cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection)?;
        Ok(cmd("SLOWLOG").arg("RESET").exec(&mut self.connection)?)
    }

    /// What so many scripts have spent, which are all that ran since.
    pub fn spent(&mut self, calls: u64) -> Result<Spent> {
        let info: InfoDict = cmd("INFO").arg("commandstats").query(&mut self.connection)?;
        let line: String = info.get("cmdstat_evalsha").ok_or("no script ran")?;
        let fields: HashMap<&str, &str> = line.split(',').filter_map(|field| field.split_once('=')).collect();
        let field = |name| fields.get(name).copied().ok_or_else(|| format!("no {name} in {line}"));
        if field("calls")?.parse() != Ok(calls) {
            return Err(format!("{calls} calls, but Redis says {line}").into());
        }
        Ok(Spent { per_call: field("usec_per_call")?.parse()?, longest: self.longest()? })
    }

    /// The entries of the logs with this name and the bytes of all keys with it.
    pub fn weigh(&mut self, name: &str) -> Result<(u64, u64)> {
        let (mut entries, mut bytes) = (0, 0);
        let keys: Vec<String> = cmd("KEYS").arg(format!("*{name}*")).query(&mut self.connection)?;
        for key in keys {
            let weight: u64 = cmd("MEMORY").arg("USAGE").arg(&key).arg("SAMPLES").arg(0).query(&mut self.connection)?;
            bytes += weight;
            let kind: String = cmd("TYPE").arg(&key).query(&mut self.connection)?;
            if kind == "zset" {
                let length: u64 = cmd("ZCARD").arg(&key).query(&mut self.connection)?;
                entries += length;
            }
        }
        Ok((entries, bytes))
    }

    fn longest(&mut self) -> Result<u64> {
        let entries: Vec<Value> = cmd("SLOWLOG").arg("GET").arg(SLOWLOG).query(&mut self.connection)?;
        let mut longest = 0;
        for entry in entries {
            let (_, _, micros, words, _, _): (u64, u64, u64, Vec<Vec<u8>>, String, String) =
                FromRedisValue::from_redis_value(entry)?;
            if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"evalsha")) {
                longest = longest.max(micros);
            }
        }
        Ok(longest)
    }
}

// === impl Running ===

impl Running {
    fn connect(&self) -> Result<Connection> {
        let mut connection = Client::open(self.url.as_str())?.get_connection_with_timeout(Duration::from_secs(1))?;
        cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
