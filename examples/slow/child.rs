//! The gateway and the origin, as separate processes.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use tidegate::Gateway;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The role of a process.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    Gateway,
    Origin,
}

/// The length of a response that is larger than the kernel's buffers.
const LARGE: usize = 32 << 20;

/// The length of a response that fits into a window.
const SHORT: usize = 60_000;

/// The length of one write.
const CHUNK: usize = 64 << 10;

/// A process. Dropping it kills the process.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    pub address: SocketAddr,
}

impl Child {
    /// Starts a process, and waits until it prints its address.
    pub fn start(role: Role, origins: &[SocketAddr]) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--role", if matches!(role, Role::Gateway) { "gateway" } else { "origin" }]);
        command.args(origins.iter().map(|origin| format!("--origin={origin}")));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }

    /// Returns the resident memory of the process in KiB.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|size| size.parse().ok()).unwrap_or_default()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Runs this process in `role` until its standard input ends.
pub fn run(role: Role, origins: &[SocketAddr]) -> Result<(), Box<dyn Error>> {
    let wait = || std::io::stdin().read_to_end(&mut Vec::new());
    if let (Role::Gateway, [slow, honest]) = (role, origins) {
        let gateway = Gateway::start(Gateway::parse_config(&rules(*slow, *honest))?, 2)?;
        println!("{}", gateway.addresses()[0]);
        wait()?;
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || runtime.block_on(serve()));
    wait()?;
    Ok(())
}

/// Returns rules with the default settings. The honest client has its own upstream, because slow clients use up
/// the `max_connections` of their upstream and keep its process busy. The upstream of `/short` has a higher
/// `max_connections`, so that the responses of all streams wait.
fn rules(slow: SocketAddr, honest: SocketAddr) -> String {
    format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: off
upstreams:
  origin: {{ targets: [\"http://{slow}\"] }}
  honest: {{ targets: [\"http://{honest}\"] }}
  short: {{ targets: [\"http://{slow}\"], max_connections: 10000 }}
routes:
  - {{ name: short, match: {{ path: /short }}, upstream: short }}
  - {{ name: honest, match: {{ path: /honest }}, upstream: honest }}
  - {{ name: all, match: {{ path: /** }}, upstream: origin }}"
    )
}

/// Responds to all requests: to `/large` with more than any client reads, and to `/short` with a body that fits into a
/// window.
async fn serve() -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    // Accepted connections inherit this. Unread responses must not fill the memory of the kernel.
    socket.set_send_buffer_size(64 << 10)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(4096)?;
    println!("{}", listener.local_addr()?);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(async move { _ = respond(stream).await });
    }
}

async fn respond(mut stream: TcpStream) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
        let length = match bytes.get(4..10) {
            Some(b"/large") => LARGE,
            Some(b"/short") => SHORT,
            _ => 2,
        };
        if bytes.starts_with(b"POST") {
            // Waits for the rest of a body that never arrives.
            while stream.read_buf(&mut bytes).await? > 0 {
                bytes.clear();
            }
            return Ok(());
        }
        bytes.clear();
        let mut chunk = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        for begin in (0..length).step_by(CHUNK) {
            chunk.resize(chunk.len() + CHUNK.min(length - begin), b'x');
            stream.write_all(&chunk).await?;
            chunk.clear();
        }
    }
}
