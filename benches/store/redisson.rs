//! Measures Redisson's script with `redis-benchmark`: 50 connections with 16 calls in flight on each.
//!
//! The tool sends constant arguments except for random numbers, which vary the log entries and the clients. The
//! client's clock is constant, so no permits ever become available again, and the script saves that part of its work.
//! For a PER_CLIENT limiter, the counter and the log belong to different random clients; the number of keys and
//! commands is the same.

use std::process::Command;

use deadpool_redis::redis::{Connection, Script, cmd};

use super::Result;
use super::counters::Counters;
use super::scenario::{CLIENTS, INTERVAL, PLENTY, PLENTY_FOR_ONE};
use super::slice::Slice;

const SCRIPT: &str = include_str!("../../tests/it/support/redisson_acquire.lua");

const CONNECTIONS: u32 = 50;
const PIPELINE: u32 = 16;

/// The constant time of the client's clock.
const NOW: u64 = 1_800_000_000_000;

/// The kind of the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Overall,
    PerClient,
}

/// Takes permits one by one, all of which must be granted.
pub fn take(connection: &mut Connection, port: u16, kind: Kind, permits: u64) -> Result<Slice> {
    let (redisson_type, rate, numbers) = match kind {
        Kind::Overall => (0, PLENTY, PLENTY),
        Kind::PerClient => (1, PLENTY_FOR_ONE, u64::from(CLIENTS)),
    };
    let counters = Counters::start(connection)?;
    let mut configure = cmd("HSET");
    configure.arg("{bench}").arg("rate").arg(rate).arg("interval").arg(INTERVAL);
    configure.arg("keepAliveTime").arg(2 * INTERVAL).arg("type").arg(redisson_type).exec(connection)?;
    cmd("SCRIPT").arg("LOAD").arg(SCRIPT).exec(connection)?;
    let rate = benchmark(port, permits, numbers)?;
    let usage = counters.usage(connection)?;
    if usage.scripts < permits || usage.entries != usage.scripts {
        return Err(format!("{} of {} calls were granted", usage.entries, usage.scripts).into());
    }
    Ok(Slice::from_redisson(rate, usage))
}

/// Runs `redis-benchmark`, and returns the calls per second that it reports.
fn benchmark(port: u16, calls: u64, numbers: u64) -> Result<f64> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-c", &CONNECTIONS.to_string(), "-P", &PIPELINE.to_string()]);
    command.args(["-n", &calls.to_string(), "-r", &numbers.to_string(), "-e", "--csv"]);
    command.args(["EVALSHA", Script::new(SCRIPT).get_hash(), "5", "{bench}", "{bench}:value"]);
    command.args(["{bench}:value:__rand_int__", "{bench}:permits", "{bench}:permits:__rand_int__"]);
    // One permit, the client's clock, and 16 bytes of which 12 are random.
    let output = command.args(["1", &NOW.to_string(), "__rand_int__byte"]).output();
    let output = output.map_err(|error| format!("redis-benchmark does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().last().and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark printed: {text}").into())
}
