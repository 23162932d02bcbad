//! What Redis says that it has done.

use std::collections::HashMap;

use deadpool_redis::redis::{Connection, InfoDict, cmd};

use super::Result;

/// What Redis has spent since it was asked to count.
pub struct Counters {
    /// Seconds of the processor at that moment.
    since: f64,
}

/// What was spent.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Seconds of the processor.
    pub cpu: f64,
    /// Calls of scripts.
    pub scripts: u64,
    /// Entries put into logs one by one.
    pub entries: u64,
}

impl Counters {
    /// Empties Redis and counts from here on.
    pub fn start(connection: &mut Connection) -> Result<Self> {
        cmd("FLUSHALL").arg("SYNC").exec(connection)?;
        cmd("CONFIG").arg("RESETSTAT").exec(connection)?;
        Ok(Self { since: cpu(connection)? })
    }

    pub fn spent(&self, connection: &mut Connection) -> Result<Spent> {
        let cpu = cpu(connection)? - self.since;
        let info: InfoDict = cmd("INFO").arg("commandstats").query(connection)?;
        let calls = |name: &str| calls(info.get::<String>(&format!("cmdstat_{name}")));
        Ok(Spent { cpu, scripts: calls("fcall") + calls("evalsha") + calls("eval"), entries: calls("zadd") })
    }
}

/// All that the process has taken, in user mode and in the system.
fn cpu(connection: &mut Connection) -> Result<f64> {
    let info: InfoDict = cmd("INFO").arg("cpu").query(connection)?;
    let seconds = |name| info.get::<f64>(name).ok_or_else(|| format!("no {name}"));
    Ok(seconds("used_cpu_user")? + seconds("used_cpu_sys")?)
}

/// Those of a command, which is not told of at all if there were none.
fn calls(line: Option<String>) -> u64 {
    let line = line.unwrap_or_default();
    let fields: HashMap<&str, &str> = line.split(',').filter_map(|field| field.split_once('=')).collect();
    fields.get("calls").and_then(|calls| calls.parse().ok()).unwrap_or(0)
}
