//! Reads the statistics of the benchmark's Redis: time per call, longest calls, and memory.

use std::collections::HashMap;

use deadpool_redis::redis::{Connection, FromRedisValue, InfoDict, Value, cmd};

use super::Result;
use super::redis::{self, Redis};

/// A running Redis, and a connection for its statistics.
pub struct Server {
    redis: Redis,
    connection: Connection,
}

/// The cost of a series of script calls.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCost {
    /// Microseconds per call.
    pub per_call: f64,
    /// Microseconds of the longest call.
    pub longest: u64,
}

/// More calls than one series has.
const SLOWLOG_LENGTH: usize = 8_192;

impl Server {
    /// Starts a Redis that logs all calls.
    pub async fn start() -> Result<Self> {
        let redis =
            Redis::start(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", &SLOWLOG_LENGTH.to_string()]).await?;
        let connection = redis.connect()?;
        Ok(Self { redis, connection })
    }

    pub fn url(&self) -> String {
        self.redis.url()
    }

    pub fn connect(&self) -> Result<Connection> {
        self.redis.connect()
    }

    pub fn version(&mut self) -> Result<String> {
        redis::version(&mut self.connection)
    }

    /// Resets the statistics.
    pub fn start_counting(&mut self) -> Result<()> {
        cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection)?;
        Ok(cmd("SLOWLOG").arg("RESET").exec(&mut self.connection)?)
    }

    /// Returns the cost of the script calls since the last reset.
    ///
    /// # Errors
    /// Fails unless exactly `calls` scripts ran.
    pub fn cost_of(&mut self, calls: u64) -> Result<ScriptCost> {
        let info: InfoDict = cmd("INFO").arg("commandstats").query(&mut self.connection)?;
        let stat = |name: &str| info.get::<String>(name);
        let line = stat("cmdstat_fcall").or_else(|| stat("cmdstat_evalsha")).ok_or("no script ran")?;
        let fields: HashMap<&str, &str> = line.split(',').filter_map(|field| field.split_once('=')).collect();
        let field = |name| fields.get(name).copied().ok_or_else(|| format!("no {name} in {line}"));
        if field("calls")?.parse() != Ok(calls) {
            return Err(format!("{calls} calls, but Redis reports {line}").into());
        }
        Ok(ScriptCost { per_call: field("usec_per_call")?.parse()?, longest: self.longest_call()? })
    }

    /// Returns the memory of all keys whose name contains `name`, in bytes.
    pub fn memory_of(&mut self, name: &str) -> Result<u64> {
        let keys: Vec<String> = cmd("KEYS").arg(format!("*{name}*")).query(&mut self.connection)?;
        let mut bytes = 0;
        for key in keys {
            bytes += cmd("MEMORY").arg("USAGE").arg(&key).arg("SAMPLES").arg(0).query::<u64>(&mut self.connection)?;
        }
        Ok(bytes)
    }

    fn longest_call(&mut self) -> Result<u64> {
        let entries: Vec<Value> = cmd("SLOWLOG").arg("GET").arg(SLOWLOG_LENGTH).query(&mut self.connection)?;
        let mut longest = 0;
        for entry in entries {
            let (_, _, micros, words, _, _): (u64, u64, u64, Vec<Vec<u8>>, String, String) =
                FromRedisValue::from_redis_value(entry)?;
            if words
                .first()
                .is_some_and(|word| [&b"fcall"[..], b"evalsha"].iter().any(|name| word.eq_ignore_ascii_case(name)))
            {
                longest = longest.max(micros);
            }
        }
        Ok(longest)
    }
}
