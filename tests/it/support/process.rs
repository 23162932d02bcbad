//! Runs the `tidegate` binary as a process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tidegate_limit::clock::Stopwatch;

pub use super::listening::address;
use super::wire::until_within;

/// A running `tidegate`. Dropping it kills the process.
pub struct Program {
    child: Child,
    /// The process's standard output.
    pub stdout: BufReader<std::process::ChildStdout>,
    /// The process's standard error.
    pub stderr: BufReader<std::process::ChildStderr>,
}

/// Returns a command for `tidegate` with these arguments.
pub fn tidegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env_remove("TIDEGATE_LOG").env_remove("TIDEGATE_WORKERS").env_remove("TIDEGATE_HANDOVER");
    command
}

/// Runs `tidegate` until it exits, and returns its output.
pub fn output(arguments: &[&str]) -> Output {
    tidegate(arguments).output().expect("tidegate runs")
}

/// A rule file. Dropping it removes the file.
pub struct RuleFile(PathBuf);

impl RuleFile {
    /// Writes a rule file. No other test may use `name`.
    pub fn new(name: &str, text: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.yaml", std::process::id()));
        std::fs::write(&path, text).expect("written");
        Self(path)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for RuleFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

impl Program {
    /// Starts the command with pipes for its output.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tidegate runs");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, stdout, stderr }
    }

    /// Starts a gateway with this rule file. Returns it with its addresses for clients and for the admin listener.
    #[track_caller]
    pub fn run(file: &RuleFile, more: &[&str]) -> (Self, SocketAddr, SocketAddr) {
        let arguments = [&["run", "-c", file.path()], more].concat();
        let mut program = Self::start(&mut tidegate(&arguments));
        let address = address(&mut program.stderr, "listening on http://");
        let admin = self::address(&mut program.stderr, "admin on http://");
        (program, address, admin)
    }

    /// Starts a gateway with two workers and a limit of file descriptors. Returns the first line of its log, too.
    #[track_caller]
    pub fn run_with_descriptors(limit: u64, file: &RuleFile) -> (Self, String, SocketAddr, SocketAddr) {
        let mut shell = Command::new("sh");
        let limited = format!(
            "ulimit -n {limit} && exec \"$0\" run --log info,tidegate::gateway::descriptors=debug --workers 2 -c \"$1\""
        );
        let mut program = Self::start(shell.args(["-c", &limited, env!("CARGO_BIN_EXE_tidegate"), file.path()]));
        let mut first_line = String::new();
        program.stderr.read_line(&mut first_line).expect("text");
        let address = address(&mut program.stderr, "listening on http://");
        let admin = self::address(&mut program.stderr, "admin on http://");
        (program, first_line, address, admin)
    }

    /// Returns the number of open file descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("descriptors").count()
    }

    /// Sets the limit of file descriptors; `None` allows no further ones. Returns the former limit.
    pub fn limit_descriptors(&self, limit: Option<u64>) -> u64 {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("descriptors");
        let number = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u64>().ok();
        let open: Vec<_> = open.filter_map(number).collect();
        // Inherited descriptors may have high numbers, so the count is not the lowest free number.
        let free = (0..).find(|number| !open.contains(number)).expect("a number");
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid"));
        let maximum = getrlimit(Resource::Nofile).maximum;
        let new = Rlimit { current: Some(limit.unwrap_or(free)), maximum };
        prlimit(pid, Resource::Nofile, new).expect("a limit").current.expect("a number")
    }

    /// Returns the CPU time that the process has used.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a status");
        let fields: Vec<_> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
        let ticks = [11, 12].map(|field: usize| fields[field].parse::<u64>().expect("ticks"));
        Duration::from_millis(10) * u32::try_from(ticks.iter().sum::<u64>()).expect("a 32-bit number")
    }

    /// Sends a signal, for example `TERM`.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Waits until the process exits, for at most two minutes. Returns its status and the rest of its output.
    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "another process can only be polled")]
    pub fn wait_for_exit(mut self) -> (ExitStatus, String) {
        let waited = Stopwatch::start();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                break status;
            }
            assert!(waited.elapsed() < Duration::from_secs(120), "the process has not exited");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        self.stderr.read_to_string(&mut rest).expect("text");
        (status, rest)
    }

    /// Returns the peak of the resident memory, in bytes.
    pub fn peak_memory(&self) -> usize {
        self.status("VmHWM:")
    }

    /// Returns the resident memory, in bytes.
    pub fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    /// Waits until the process has been idle for a quarter of a second, and returns its resident memory, in bytes.
    pub async fn idle_memory(&self) -> usize {
        let (mut used, mut since) = (self.cpu_time(), Stopwatch::start());
        let is_idle = || {
            let now = self.cpu_time();
            if now != used {
                (used, since) = (now, Stopwatch::start());
            }
            since.elapsed() > Duration::from_millis(250)
        };
        until_within(Duration::from_secs(60), is_idle).await;
        self.memory()
    }

    fn status(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
