//! Limits the CPU time of servers, and measures how much of it they use.

use std::process::Command;
use std::time::Duration;

use super::redis::RedisServer;

/// A share of a CPU: `percent` of each period.
pub struct Slice {
    pub percent: u32,
    pub period: Duration,
}

/// Gives a server its share of a CPU, with precedence over other processes, and never more.
pub fn give_slice(server: &RedisServer, slice: &Slice) {
    let (time, period) = (slice.period * slice.percent / 100, slice.period);
    let [time, period] = [time, period].map(|duration| duration.as_nanos().to_string());
    let policy = ["--deadline", "-T", &time, "-P", &period, "-D", &period];
    let output = Command::new("chrt").args(policy).args(["--pid", "0", &server.id().to_string()]).output();
    let output = output.expect("`chrt` of util-linux");
    assert!(output.status.success(), "needs SCHED_DEADLINE of Linux, and CAP_SYS_NICE to set it: {output:?}");
}

/// Returns the CPU time of the server's main thread, in seconds.
pub fn seconds(server: &RedisServer) -> f64 {
    let file = std::fs::read_to_string(format!("/proc/{}/schedstat", server.id())).expect("scheduler statistics");
    let nanoseconds = file.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e9
}
