//! The operations of the library's limiters: one script call or command for each.

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};

use super::Redis;
use super::hash_slots::hash_slot_of_key;
use super::node::NodeConnection;
use super::routing::Call;
use super::script::algorithms::redisson_mode;
use super::script::keys;
use crate::StoreError;
use crate::negative_cache::Remote as _;
use crate::operations::limiters::{LimiterRef, SetRate};
use tidegate_limit::{Mode, RateConfig};

impl Redis {
    /// Sets the rate of a limiter. Returns `true` if the condition was met.
    pub async fn set_rate(
        &self,
        limiter: &LimiterRef,
        condition: SetRate,
        config: &RateConfig,
    ) -> Result<bool, StoreError> {
        let (condition, usage) = match condition {
            SetRate::Try => ("try", "keep"),
            SetRate::Reset => ("set", "reset"),
            SetRate::Keep => ("set", "keep"),
            SetRate::UpdateAndKeep => ("update", "keep"),
            SetRate::UpdateAndReset => ("update", "reset"),
        };
        let (rate, interval) = (config.rate().to_string(), config.quota().interval().to_string());
        let keep_alive = config.keep_alive().unwrap_or_default().as_millis().to_string();
        let arguments = [condition, &rate, &interval, redisson_mode(config.mode()), &keep_alive, usage];
        self.operate(limiter, "set_rate", &arguments).await
    }

    /// Returns the configuration, if the limiter has one.
    pub async fn rate_config(&self, limiter: &LimiterRef) -> Result<Option<RateConfig>, StoreError> {
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

    /// Releases permits in use. Returns the number of released permits. One call releases at most 512 entries, so this
    /// may need several calls.
    pub async fn release(&self, limiter: &LimiterRef, permits: u32) -> Result<u32, StoreError> {
        let mut released = 0;
        while released < permits {
            match self.operate::<u32>(limiter, "release", &[&(permits - released).to_string()]).await {
                Ok(0) => break,
                Ok(more) => released += more,
                // Permits that were released before the error must be reported.
                Err(_) if released > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(released)
    }

    /// Sets the limiter's time to live in milliseconds; `None` removes it. Returns `true` if the limiter existed.
    pub async fn expire(&self, limiter: &LimiterRef, after: Option<u64>) -> Result<bool, StoreError> {
        let millis = after.map(|millis| millis.to_string()).unwrap_or_default();
        self.operate(limiter, "expire", &[&millis]).await
    }

    /// Returns the limiter's time to live in milliseconds; `None` if it does not expire.
    pub async fn time_to_live(&self, limiter: &LimiterRef) -> Result<Option<u64>, StoreError> {
        match self.query::<i64>(limiter.name(), cmd("PTTL").arg(limiter.name())).await? {
            -2 => Err(StoreError::NotInitialised),
            millis => Ok(u64::try_from(millis).ok()),
        }
    }

    /// Deletes a limiter with its state, in the background. Returns `true` if there was anything to delete.
    pub async fn delete(&self, limiter: &LimiterRef) -> Result<bool, StoreError> {
        let removed: u64 = self.query(limiter.name(), cmd("UNLINK").arg(&keys_of(limiter)[..])).await?;
        Ok(removed > 0)
    }

    async fn operate<T: FromRedisValue>(
        &self,
        limiter: &LimiterRef,
        operation: &str,
        arguments: &[&str],
    ) -> Result<T, StoreError> {
        let now = self.context.manual_now().map(|now| now.as_millis().to_string()).unwrap_or_default();
        let call = OperationCall { keys: keys_of(limiter), operation: [operation, &now], arguments };
        let reply = self.call_owner(hash_slot_of_key(limiter.name()), self.deadline(), &call).await?;
        from_redis_value(reply).map_err(|_| StoreError::UnexpectedReply)
    }
}

/// A call of one of the script's operations.
struct OperationCall<'a> {
    keys: [String; 6],
    /// The name of the operation, and the time to decide at; empty for Redis's own time.
    operation: [&'a str; 2],
    arguments: &'a [&'a str],
}

impl Call for OperationCall<'_> {
    type Reply = Value;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Value, StoreError> {
        let add = |call: &mut Cmd| {
            call.arg(self.keys.len()).arg(&self.keys[..]).arg(&self.operation).arg(self.arguments);
        };
        connection.script.run(add).await
    }
}

fn keys_of(limiter: &LimiterRef) -> [String; 6] {
    keys::redisson_keys(limiter.name(), &format!(":{}", limiter.instance()))
}
