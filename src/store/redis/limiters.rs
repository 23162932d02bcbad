//! The operations of the library's limiters, one script call or command for each.

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};

use super::Redis;
use super::node::Connection;
use super::routing::Call;
use super::script::buckets::kind;
use super::script::keys;
use super::slots::slot_of_key;
use crate::limit::{Mode, RateConfig};
use crate::store::StoreError;
use crate::store::limiters::{Named, SetRate};
use crate::store::negative_cache::Remote as _;

/// The moment to decide at, as scripts take it: Redis's own.
const NOW: &str = "";

impl Redis {
    /// Gives a limiter its rate; was the condition met?
    pub(crate) async fn set_rate(&self, of: &Named, how: SetRate, config: &RateConfig) -> Result<bool, StoreError> {
        let (how, usage) = match how {
            SetRate::Try => ("try", "keep"),
            SetRate::Reset => ("set", "reset"),
            SetRate::Keep => ("set", "keep"),
            SetRate::UpdateAndKeep => ("update", "keep"),
            SetRate::UpdateAndReset => ("update", "reset"),
        };
        let (rate, interval) = (config.rate().to_string(), config.quota().interval().to_string());
        let keep_alive = config.keep_alive().unwrap_or_default().as_millis().to_string();
        let arguments = ["set_rate", NOW, how, &rate, &interval, kind(config.mode()), &keep_alive, usage];
        self.operate(of, &arguments).await
    }

    /// The configuration, if there is one.
    pub(crate) async fn rate_config(&self, of: &Named) -> Result<Option<RateConfig>, StoreError> {
        let mut command = cmd("HMGET");
        command.arg(of.name()).arg(&["rate", "interval", "type", "keepAliveTime"]);
        let fields: Vec<Option<String>> = self.query(of.name(), &command).await?;
        let [Some(rate), Some(interval), Some(kind), keep_alive] = &fields[..] else { return Ok(None) };
        let mode = match kind.as_str() {
            "1" => Mode::PerClient,
            _ => Mode::Overall,
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| StoreError::Shape);
        let keep_alive = keep_alive.as_deref().map_or(Ok(0), number)?;
        RateConfig::from_stored(mode, number(rate)?, number(interval)?, keep_alive).map(Some).ok_or(StoreError::Shape)
    }

    /// Puts permits back; returns how many were in use. A call puts back what 512 entries hold, so that more take more.
    pub(crate) async fn release(&self, of: &Named, permits: u32) -> Result<u32, StoreError> {
        let mut released = 0;
        while released < permits {
            match self.operate::<u32>(of, &["release", NOW, &(permits - released).to_string()]).await {
                Ok(0) => break,
                Ok(more) => released += more,
                // What was put back is put back; the caller is told so, and not that nothing was.
                Err(_) if released > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(released)
    }

    /// Lets a limiter vanish after this many milliseconds, or never; was there one?
    pub(crate) async fn expire(&self, of: &Named, after: Option<u64>) -> Result<bool, StoreError> {
        let millis = after.map(|millis| millis.to_string()).unwrap_or_default();
        self.operate(of, &["expire", NOW, &millis]).await
    }

    /// Milliseconds until a limiter vanishes; nothing if it stays.
    pub(crate) async fn time_to_live(&self, of: &Named) -> Result<Option<u64>, StoreError> {
        match self.query::<i64>(of.name(), cmd("PTTL").arg(of.name())).await? {
            -2 => Err(StoreError::NotInitialised),
            left => Ok(u64::try_from(left).ok()),
        }
    }

    /// Removes a limiter with its state, in Redis's background; was there anything?
    pub(crate) async fn delete(&self, of: &Named) -> Result<bool, StoreError> {
        let removed: u64 = self.query(of.name(), cmd("UNLINK").arg(&keys_of(of)[..])).await?;
        Ok(removed > 0)
    }

    async fn operate<T: FromRedisValue>(&self, of: &Named, arguments: &[&str]) -> Result<T, StoreError> {
        let keys = keys_of(of);
        let reply = self.ask_owner(slot_of_key(of.name()), self.deadline(), &Operate { keys, arguments }).await?;
        from_redis_value(reply).map_err(|_| StoreError::Shape)
    }
}

/// One call of the script.
struct Operate<'a> {
    keys: [String; 6],
    arguments: &'a [&'a str],
}

impl Call for Operate<'_> {
    type Answer = Value;

    async fn run(&self, connection: &mut Connection) -> Result<Value, StoreError> {
        let add = |call: &mut Cmd| _ = call.arg(self.keys.len()).arg(&self.keys[..]).arg(self.arguments);
        connection.script.run(add).await
    }
}

fn keys_of(of: &Named) -> [String; 6] {
    keys::foreign(of.name(), &format!(":{}", of.instance()))
}
