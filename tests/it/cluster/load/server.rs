//! Servers that get a slice of a processor, and what they use of it.

use std::process::Command;
use std::time::Duration;

use crate::support::redis::RedisServer;

/// What a server gets of a processor.
pub struct Slice {
    pub percent: u32,
    pub every: Duration,
}

/// Gives a server its slice, before all others and never more.
pub fn give_slice(server: &RedisServer, slice: &Slice) {
    let (time, every) = (slice.every * slice.percent / 100, slice.every);
    let [time, every] = [time, every].map(|long| long.as_nanos().to_string());
    let policy = ["--deadline", "-T", &time, "-P", &every, "-D", &every];
    let output = Command::new("chrt").args(policy).args(["--pid", "0", &server.id().to_string()]).output();
    let output = output.expect("`chrt` runs, which is in util-linux");
    assert!(output.status.success(), "needs SCHED_DEADLINE of Linux, and CAP_SYS_NICE to set it: {output:?}");
}

/// How long the thread of a server has run that decides.
pub fn seconds(server: &RedisServer) -> f64 {
    let file = std::fs::read_to_string(format!("/proc/{}/schedstat", server.id())).expect("what it has used");
    let nanoseconds = file.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.expect("a number") / 1e9
}
