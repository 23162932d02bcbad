//! Runs the Java service `tests/interop/Peer.java`, which executes commands from its standard input.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::checker::Grant;

/// A running service. Dropping it kills the process.
pub struct Java {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// The timeout for a reply. Java compiles the service first.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

impl Java {
    /// Starts a service with the Redisson in this folder.
    pub async fn start(redisson: &Path, redis: &str) -> Self {
        let mut command = Command::new("java");
        command.arg("-cp").arg(redisson.join("*")).arg("tests/interop/Peer.java").arg(redis);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("java runs");
        let (input, output) = (child.stdin.take().expect("an input"), child.stdout.take().expect("an output"));
        let mut java = Self { _child: child, input, output: BufReader::new(output).lines() };
        assert_eq!(java.read_line().await, "ready");
        java
    }

    /// Runs a command, and returns its reply.
    pub async fn run(&mut self, line: &str) -> String {
        self.input.write_all(format!("{line}\n").as_bytes()).await.expect("java reads");
        self.read_line().await
    }

    /// Takes single permits in several threads for `millis`. Returns the time of each grant.
    pub async fn load(&mut self, name: &str, threads: u32, millis: u64) -> Vec<Grant> {
        let grants = self.run(&format!("{name} load {threads} {millis}")).await;
        let number = |text: &str| text.parse().expect("microseconds");
        let grant = |pair: &str| pair.split_once('-').map(|(begin, end)| (number(begin), number(end)));
        grants.split(' ').filter(|pair| !pair.is_empty()).map(|pair| grant(pair).expect("a pair")).collect()
    }

    async fn read_line(&mut self) -> String {
        let line =
            tokio::time::timeout(REPLY_TIMEOUT, self.output.next_line()).await.expect("java replies within 60 s");
        line.expect("java replies").expect("java runs")
    }
}
