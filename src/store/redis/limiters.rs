//! The operations of the library's limiters, one script call or command for each.

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};

use super::Redis;
use super::hash_slots::hash_slot_of_key;
use super::node::NodeConnection;
use super::routing::Call;
use super::script::buckets::redisson_mode;
use super::script::keys;
use crate::limit::{Mode, RateConfig};
use crate::store::StoreError;
use crate::store::limiters::{LimiterRef, SetRate};
use crate::store::negative_cache::Remote as _;

/// The moment to decide at, as scripts take it: Redis's own.
const NOW: &str = "";

impl Redis {
    /// Gives a limiter its rate; was the condition met?
    pub(crate) async fn set_rate(
        &self,
        limiter: &LimiterRef,
        how: SetRate,
        config: &RateConfig,
    ) -> Result<bool, StoreError> {
        let (how, usage) = match how {
            SetRate::Try => ("try", "keep"),
            SetRate::Reset => ("set", "reset"),
            SetRate::Keep => ("set", "keep"),
            SetRate::UpdateAndKeep => ("update", "keep"),
            SetRate::UpdateAndReset => ("update", "reset"),
        };
        let (rate, interval) = (config.rate().to_string(), config.quota().interval().to_string());
        let keep_alive = config.keep_alive().unwrap_or_default().as_millis().to_string();
        let arguments = ["set_rate", NOW, how, &rate, &interval, redisson_mode(config.mode()), &keep_alive, usage];
        self.operate(limiter, &arguments).await
    }

    /// The configuration, if there is one.
    pub(crate) async fn rate_config(&self, limiter: &LimiterRef) -> Result<Option<RateConfig>, StoreError> {
        let mut command = cmd("HMGET");
        command.arg(limiter.name()).arg(&["rate", "interval", "type", "keepAliveTime"]);
        let fields: Vec<Option<String>> = self.query(limiter.name(), &command).await?;
        let [Some(rate), Some(interval), Some(kind), keep_alive] = &fields[..] else { return Ok(None) };
        let mode = match kind.as_str() {
            "1" => Mode::PerClient,
            _ => Mode::Overall,
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| StoreError::UnexpectedReply);
        let keep_alive = keep_alive.as_deref().map_or(Ok(0), number)?;
        RateConfig::from_stored(mode, number(rate)?, number(interval)?, keep_alive)
            .map(Some)
            .ok_or(StoreError::UnexpectedReply)
    }

    /// Puts permits back; returns how many were in use. A call puts back what 512 entries hold, so that more take more.
    pub(crate) async fn release(&self, limiter: &LimiterRef, permits: u32) -> Result<u32, StoreError> {
        let mut released = 0;
        while released < permits {
            match self.operate::<u32>(limiter, &["release", NOW, &(permits - released).to_string()]).await {
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
    pub(crate) async fn expire(&self, limiter: &LimiterRef, after: Option<u64>) -> Result<bool, StoreError> {
        let millis = after.map(|millis| millis.to_string()).unwrap_or_default();
        self.operate(limiter, &["expire", NOW, &millis]).await
    }

    /// Milliseconds until a limiter vanishes; nothing if it stays.
    pub(crate) async fn time_to_live(&self, limiter: &LimiterRef) -> Result<Option<u64>, StoreError> {
        match self.query::<i64>(limiter.name(), cmd("PTTL").arg(limiter.name())).await? {
            -2 => Err(StoreError::NotInitialised),
            left => Ok(u64::try_from(left).ok()),
        }
    }

    /// Removes a limiter with its state, in Redis's background; was there anything?
    pub(crate) async fn delete(&self, limiter: &LimiterRef) -> Result<bool, StoreError> {
        let removed: u64 = self.query(limiter.name(), cmd("UNLINK").arg(&keys_of(limiter)[..])).await?;
        Ok(removed > 0)
    }

    async fn operate<T: FromRedisValue>(&self, limiter: &LimiterRef, arguments: &[&str]) -> Result<T, StoreError> {
        let keys = keys_of(limiter);
        let reply = self
            .call_owner(hash_slot_of_key(limiter.name()), self.deadline(), &OperationCall { keys, arguments })
            .await?;
        from_redis_value(reply).map_err(|_| StoreError::UnexpectedReply)
    }
}

/// One call of the script.
struct OperationCall<'a> {
    keys: [String; 6],
    arguments: &'a [&'a str],
}

impl Call for OperationCall<'_> {
    type Reply = Value;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Value, StoreError> {
        let add = |call: &mut Cmd| _ = call.arg(self.keys.len()).arg(&self.keys[..]).arg(self.arguments);
        connection.script.run(add).await
    }
}

fn keys_of(limiter: &LimiterRef) -> [String; 6] {
    keys::redisson_keys(limiter.name(), &format!(":{}", limiter.instance()))
}
