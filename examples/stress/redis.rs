//! Starts a `redis-server` on a free loopback port. Dropping it stops the server.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::sleep;

use super::run::RunError;

/// A running Redis.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// Starts a Redis, and waits until it listens.
    pub async fn start() -> Result<Self, RunError> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("redis-server does not start: {error}"))?;
        let redis = Self { child, port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(redis);
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err("redis-server does not listen".into())
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
