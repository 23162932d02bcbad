//! Commands of operators for all gateways, and the reports of the gateways. Both are texts: their owner signs and checks
//! them.

use deadpool_redis::redis::cmd;

use super::fleet::MAX_FLEET;
use crate::{Backend, Store, StoreError};
use tidegate_limit::clock::Timestamp;

const SCRIPT: &str = include_str!("../../lua/commands.lua");

/// The maximal number of commands that have not ended.
const MAX_COMMANDS: usize = 32;

/// How long reports are kept, in milliseconds.
const REPORT_TTL_MILLIS: u32 = 60_000;

/// The commands that have not ended.
#[derive(Clone, Debug)]
pub struct StoredCommands {
    /// The time of Redis's clock.
    pub now: Timestamp,
    /// The commands with their signatures.
    pub texts: Vec<String>,
}

impl Store {
    /// Returns the name of the list of commands, which has the prefix of the store; `None` if no other gateway can share
    /// the store.
    #[doc(hidden)]
    pub fn commands_key(&self) -> Option<String> {
        let Backend::Redis(redis) = &self.0 else { return None };
        Some(redis.store().shared_key("commands"))
    }

    /// Returns the time of the store's clock.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn read_time(&self) -> Result<Timestamp, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(self.now()) };
        redis.store().read_time().await
    }

    /// Adds a command that ends at `until`. Returns `false` if there are 32 commands, or if no other gateway can share
    /// the store.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The command may have been added.
    #[doc(hidden)]
    pub async fn put_command(&self, text: &str, until: Timestamp) -> Result<bool, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(false) };
        let (redis, mut command) = (redis.store(), cmd("EVAL"));
        command.arg(SCRIPT).arg(1).arg(redis.shared_key("commands"));
        command.arg("put").arg(text).arg(until.as_millis()).arg(MAX_COMMANDS);
        redis.send_shared(&command).await
    }

    /// Returns the commands that have not ended; `None` if no other gateway can share the store. All gateways do this twice
    /// a second, so it is no script, which would cost Redis more.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn commands(&self) -> Result<Option<StoredCommands>, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(None) };
        let redis = redis.store();
        let now = redis.read_time().await?;
        let mut command = cmd("ZRANGE");
        command.arg(redis.shared_key("commands")).arg(format!("({}", now.as_millis())).arg("+inf").arg("BYSCORE");
        command.arg("LIMIT").arg(0).arg(MAX_COMMANDS);
        Ok(Some(StoredCommands { now, texts: redis.send_shared(&command).await? }))
    }

    /// Adds the report of this gateway about a command.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The report may have been added.
    #[doc(hidden)]
    pub async fn report_command(&self, command_id: &str, text: &str) -> Result<(), StoreError> {
        let (Backend::Redis(redis), Some(gateway)) = (&self.0, self.gateway_id()) else { return Ok(()) };
        let (redis, mut command) = (redis.store(), cmd("EVAL"));
        command.arg(SCRIPT).arg(1).arg(redis.shared_key(&format!("commands:{command_id}")));
        command.arg("report").arg(gateway).arg(text).arg(REPORT_TTL_MILLIS).arg(MAX_FLEET);
        redis.send_shared(&command).await
    }

    /// Returns the reports about a command, by gateway.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn command_reports(&self, command_id: &str) -> Result<Vec<(String, String)>, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(Vec::new()) };
        let redis = redis.store();
        redis.send_shared(cmd("HGETALL").arg(redis.shared_key(&format!("commands:{command_id}")))).await
    }
}
