//! Measures how a Java service and a gateway share a limiter: each alone, then both together.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tidegate::Store;
use tidegate::redisson::{Mode, RateConfig, RateLimiter};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Result;
use super::redis::Redis;

const NAME: &str = "java";
/// The threads of the service, and the connections to the gateway.
const THREADS: usize = 16;
const CONNECTIONS: usize = 64;
const SECONDS: u64 = 5;

/// Permits per second.
pub struct Shares {
    pub java_alone: f64,
    pub gateway_alone: f64,
    pub java: f64,
    pub gateway: f64,
}

/// A running Java service and a running gateway.
pub struct JavaAndGateway {
    _children: [Child; 2],
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    gateway: String,
    limiter: RateLimiter,
    _log: Lines<BufReader<ChildStderr>>,
}

impl JavaAndGateway {
    /// Starts both with the Redisson in the folder of the environment variable `REDISSON`. Returns `None` if it is not
    /// set.
    pub async fn start(server: &Redis) -> Result<Option<Self>> {
        let Some(folder) = std::env::var_os("REDISSON").map(PathBuf::from) else { return Ok(None) };
        let mut java = Command::new("java");
        java.arg("-cp").arg(folder.join("*")).arg("tests/interop/Peer.java").arg(server.url());
        let mut java =
            java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        let input = java.stdin.take().ok_or("no input")?;
        let mut output = BufReader::new(java.stdout.take().ok_or("no output")?).lines();
        output.next_line().await?;
        let (gateway, address, log) = start_gateway(server).await?;
        let limiter = RateLimiter::new(Store::redis(&server.url())?, NAME)?;
        Ok(Some(Self { _children: [java, gateway], input, output, gateway: address, limiter, _log: log }))
    }

    /// Measures the permits that each gets at `rate` permits per second.
    pub async fn measure(&mut self, rate: u64) -> Result<Shares> {
        self.limiter.set_rate(&RateConfig::new(Mode::Overall, rate, Duration::from_secs(1))?).await?;
        // Java compiles its code in the first run.
        self.run_java().await?;
        let java_alone = self.run_java().await?;
        let address = self.gateway.clone();
        let gateway_alone = admitted_rate(&address).await?;
        let (java, gateway) = tokio::join!(self.run_java(), admitted_rate(&address));
        Ok(Shares { java_alone, gateway_alone, java: java?, gateway: gateway? })
    }

    async fn run_java(&mut self) -> Result<f64> {
        let line = format!("{NAME} load {THREADS} {}\n", SECONDS * 1_000);
        self.input.write_all(line.as_bytes()).await?;
        let grants = self.output.next_line().await?.ok_or("the Java service has exited")?;
        Ok(grants.split(' ').filter(|grant| !grant.is_empty()).count() as f64 / SECONDS as f64)
    }
}

/// Starts a gateway with a limit that adopts the limiter. Returns its process, its address and its log.
async fn start_gateway(server: &Redis) -> Result<(Child, String, Lines<BufReader<ChildStderr>>)> {
    let rules = format!(
        "store: {}\nlisten: {{ address: '127.0.0.1:0', max_requests: 1000000000 }}\nadmin: off\naccess_log: off\n\
         upstreams: {{ echo: {{ targets: [builtin:echo] }} }}\n\
         routes:\n  - name: all\n    match: {{ path: /** }}\n    upstream: echo\n    limits:\n\
         \x20     - {{ name: shared, key: {NAME}, adopt: true, on_store_failure: deny }}\n",
        server.url()
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared.yaml");
    std::fs::write(&file, rules)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("run").arg("-c").arg(file).stderr(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
    let mut gateway = command.spawn()?;
    let mut log = BufReader::new(gateway.stderr.take().ok_or("no log")?).lines();
    while let Some(line) = log.next_line().await? {
        if let Some((_, address)) = line.split_once("listening on http://") {
            let address = address.split_whitespace().next().unwrap_or_default().to_owned();
            return Ok((gateway, address, log));
        }
    }
    Err("the gateway has exited".into())
}

/// Returns the requests per second that a gateway admits, on all connections together.
async fn admitted_rate(address: &str) -> Result<f64> {
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        connections.spawn(async move {
            let mut admitted = 0;
            while Instant::now() < end {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
                admitted += u64::from(is_admitted(&mut stream).await?);
            }
            Ok::<u64, std::io::Error>(admitted)
        });
    }
    let mut admitted = 0;
    while let Some(joined) = connections.join_next().await {
        admitted += joined??;
    }
    Ok(admitted as f64 / SECONDS as f64)
}

/// Reads a response with a `Content-Length`. Returns `true` if its status is 200.
async fn is_admitted(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut response = Vec::with_capacity(2_048);
    loop {
        if stream.read_buf(&mut response).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Ok(text.starts_with("HTTP/1.1 200"));
        }
    }
}
