//! Keeps the overrides of limits in Redis, where all gateways on a store share them.

use deadpool_redis::redis::{Cmd, cmd};

use super::Redis;
use crate::StoreError;
use crate::operations::overrides::{MAX_OVERRIDES, OverridesVersion, PutOverride, StoredOverrides};
use tidegate_limit::clock::Timestamp;
use tidegate_limit::random::random;

const SCRIPT: &str = include_str!("../../lua/overrides.lua");

const VERSION_KEY: &str = "overrides:version";

impl Redis {
    /// Returns the version of the overrides.
    pub async fn overrides_version(&self) -> Result<OverridesVersion, StoreError> {
        let version: Option<String> = self.send_shared(cmd("GET").arg(self.shared_key(VERSION_KEY))).await?;
        Ok(OverridesVersion(version.unwrap_or_default()))
    }

    /// Returns all overrides, including those that have ended since the last write.
    pub async fn read_overrides(&self) -> Result<StoredOverrides, StoreError> {
        let (now, version, texts): (u64, String, Vec<(String, String)>) =
            self.send_shared(&self.overrides_script("read")).await?;
        self.record_time(Timestamp::from_millis(now));
        Ok(StoredOverrides { version: OverridesVersion(version), texts })
    }

    /// Writes an override that ends at `until`, unless there is one with this id that it does not replace.
    pub async fn put_override(
        &self,
        id: &str,
        text: &str,
        until: Timestamp,
        replaces: bool,
    ) -> Result<PutOverride, StoreError> {
        let mut command = self.overrides_script("put");
        command.arg(id).arg(text).arg(until.as_millis()).arg(new_version()).arg(MAX_OVERRIDES);
        let reply: String = self.send_shared(command.arg(u8::from(replaces))).await?;
        match reply.as_str() {
            "done" => Ok(PutOverride::Done),
            "exists" => Ok(PutOverride::Exists),
            "full" => Ok(PutOverride::Full),
            _ => Err(StoreError::UnexpectedReply),
        }
    }

    /// Removes an override. Returns its text, if it existed.
    pub async fn remove_override(&self, id: &str) -> Result<Option<String>, StoreError> {
        self.send_shared(self.overrides_script("remove").arg(id).arg(new_version())).await
    }

    /// Returns a call of the script for this operation.
    fn overrides_script(&self, operation: &str) -> Cmd {
        let keys = ["overrides", "overrides:ends", VERSION_KEY].map(|name| self.shared_key(name));
        let mut command = cmd("EVAL");
        command.arg(SCRIPT).arg(keys.len()).arg(&keys).arg(operation);
        command
    }
}

fn new_version() -> String {
    format!("{:032x}", u128::from_le_bytes(random()))
}
