//! Starts a `redis-server` for a benchmark on a free loopback port. Dropping it stops the server.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use deadpool_redis::redis::{Client, Connection, InfoDict, cmd};
use tokio::time::sleep;

use super::Result;

/// A running Redis.
pub struct Redis {
    child: Child,
    /// The loopback port.
    pub port: u16,
}

impl Redis {
    /// Starts a Redis without persistence, with additional arguments, and waits until it replies.
    pub async fn start(extra: &[&str]) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let child = command.args(extra).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("redis-server does not start: {error}"))?;
        let redis = Self { child, port };
        for _ in 0..500 {
            if redis.connect().is_ok() {
                return Ok(redis);
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err("redis-server does not reply".into())
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Opens a connection, and checks that Redis replies.
    pub fn connect(&self) -> Result<Connection> {
        let mut connection = Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(1))?;
        cmd("PING").exec(&mut connection)?;
        Ok(connection)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns the version of Redis.
pub fn version(connection: &mut Connection) -> Result<String> {
    let info: InfoDict = cmd("INFO").arg("server").query(connection)?;
    Ok(info.get("redis_version").ok_or("no version")?)
}
