//! Reads the CPU time and the command counters of Redis.

use std::collections::HashMap;

use deadpool_redis::redis::{Connection, InfoDict, cmd};

use super::Result;

/// Measures Redis from a point in time.
pub struct Counters {
    /// The CPU time at the start, in seconds.
    cpu_at_start: f64,
}

/// The CPU time and the commands since the start.
#[derive(Clone, Copy, Debug)]
pub struct RedisUsage {
    /// CPU time in seconds.
    pub cpu: f64,
    /// The number of script calls.
    pub scripts: u64,
    /// The number of `ZADD` commands; Redisson's script sends one per grant.
    pub entries: u64,
}

impl Counters {
    /// Deletes all keys, and starts the measurement.
    pub fn start(connection: &mut Connection) -> Result<Self> {
        cmd("FLUSHALL").arg("SYNC").exec(connection)?;
        cmd("CONFIG").arg("RESETSTAT").exec(connection)?;
        Ok(Self { cpu_at_start: cpu(connection)? })
    }

    pub fn usage(&self, connection: &mut Connection) -> Result<RedisUsage> {
        let cpu = cpu(connection)? - self.cpu_at_start;
        let info: InfoDict = cmd("INFO").arg("commandstats").query(connection)?;
        let calls = |name: &str| calls(info.get::<String>(&format!("cmdstat_{name}")));
        Ok(RedisUsage { cpu, scripts: calls("fcall") + calls("evalsha") + calls("eval"), entries: calls("zadd") })
    }
}

/// Returns the user and system CPU time of Redis so far, in seconds.
fn cpu(connection: &mut Connection) -> Result<f64> {
    let info: InfoDict = cmd("INFO").arg("cpu").query(connection)?;
    let seconds = |name| info.get::<f64>(name).ok_or_else(|| format!("no {name}"));
    Ok(seconds("used_cpu_user")? + seconds("used_cpu_sys")?)
}

/// Returns the number of calls in a line of `INFO commandstats`. A command without calls has no line.
fn calls(line: Option<String>) -> u64 {
    let line = line.unwrap_or_default();
    let fields: HashMap<&str, &str> = line.split(',').filter_map(|field| field.split_once('=')).collect();
    fields.get("calls").and_then(|calls| calls.parse().ok()).unwrap_or(0)
}
