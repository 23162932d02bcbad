//! What the benchmark's Redis says of itself: its time per call, its longest calls, its memory.

use std::collections::HashMap;

use deadpool_redis::redis::{Connection, FromRedisValue, InfoDict, Value, cmd};

use super::Result;
use super::redis::{self, Redis};

/// A running Redis, and a connection to ask it what happened.
pub struct Server {
    redis: Redis,
    connection: Connection,
}

/// Scripts that ran.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Microseconds per call.
    pub per_call: f64,
    /// Microseconds of the longest call.
    pub longest: u64,
}

/// More calls than are ever looked at together.
const SLOWLOG: usize = 8_192;

impl Server {
    /// Starts one that notes all its calls.
    pub async fn start() -> Result<Self> {
        let redis =
            Redis::start(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", &SLOWLOG.to_string()]).await?;
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

    /// From here on counts what is spent.
    pub fn start_counting(&mut self) -> Result<()> {
        cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection)?;
        Ok(cmd("SLOWLOG").arg("RESET").exec(&mut self.connection)?)
    }

    /// What so many scripts have spent, which are all that ran since.
    pub fn spent(&mut self, calls: u64) -> Result<Spent> {
        let info: InfoDict = cmd("INFO").arg("commandstats").query(&mut self.connection)?;
        let of = |name: &str| info.get::<String>(name);
        let line = of("cmdstat_fcall").or_else(|| of("cmdstat_evalsha")).ok_or("no script ran")?;
        let fields: HashMap<&str, &str> = line.split(',').filter_map(|field| field.split_once('=')).collect();
        let field = |name| fields.get(name).copied().ok_or_else(|| format!("no {name} in {line}"));
        if field("calls")?.parse() != Ok(calls) {
            return Err(format!("{calls} calls, but Redis says {line}").into());
        }
        Ok(Spent { per_call: field("usec_per_call")?.parse()?, longest: self.longest()? })
    }

    /// The bytes of all keys with this name.
    pub fn weigh(&mut self, name: &str) -> Result<u64> {
        let keys: Vec<String> = cmd("KEYS").arg(format!("*{name}*")).query(&mut self.connection)?;
        let mut bytes = 0;
        for key in keys {
            bytes += cmd("MEMORY").arg("USAGE").arg(&key).arg("SAMPLES").arg(0).query::<u64>(&mut self.connection)?;
        }
        Ok(bytes)
    }

    fn longest(&mut self) -> Result<u64> {
        let entries: Vec<Value> = cmd("SLOWLOG").arg("GET").arg(SLOWLOG).query(&mut self.connection)?;
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
