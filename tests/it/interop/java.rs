//! A Java service of the tests' own: `tests/interop/Peer.java`, told by lines what to do.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::checker::Grant;

/// A running service, gone with its owner.
pub struct Java {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// How long an answer may take: Java compiles it first.
const LONGEST: Duration = Duration::from_secs(60);

impl Java {
    /// Starts one with the Redisson in this folder.
    pub async fn start(redisson: &Path, redis: &str) -> Self {
        let mut command = Command::new("java");
        command.arg("-cp").arg(redisson.join("*")).arg("tests/interop/Peer.java").arg(redis);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("java runs");
        let (input, output) = (child.stdin.take().expect("an input"), child.stdout.take().expect("an output"));
        let mut java = Self { _child: child, input, output: BufReader::new(output).lines() };
        assert_eq!(java.hears().await, "ready");
        java
    }

    /// Does what the line says; returns its answer.
    pub async fn says(&mut self, line: &str) -> String {
        self.input.write_all(format!("{line}\n").as_bytes()).await.expect("java listens");
        self.hears().await
    }

    /// Asks for single permits in so many threads; returns when each was granted.
    pub async fn load(&mut self, name: &str, threads: u32, millis: u64) -> Vec<Grant> {
        let grants = self.says(&format!("{name} load {threads} {millis}")).await;
        let number = |text: &str| text.parse().expect("microseconds");
        let grant = |pair: &str| pair.split_once('-').map(|(begin, end)| (number(begin), number(end)));
        grants.split(' ').filter(|pair| !pair.is_empty()).map(|pair| grant(pair).expect("a pair")).collect()
    }

    async fn hears(&mut self) -> String {
        let line = tokio::time::timeout(LONGEST, self.output.next_line()).await.expect("an answer in time");
        line.expect("java answers").expect("java lives")
    }
}
