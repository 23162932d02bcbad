//! The gateways that share a Redis: each announces a text about itself, for the operators of the others.

use deadpool_redis::redis::{Cmd, cmd};

use super::Redis;
use crate::{Backend, Store, StoreError};

const SCRIPT: &str = include_str!("../../lua/fleet.lua");

/// How long an announcement counts, in milliseconds: as long as a gateway counts for the shares of limits.
const ANNOUNCEMENT_TTL_MILLIS: u32 = 15_000;

/// The maximal number of gateways that the list has. Further ones are not listed.
pub(super) const MAX_FLEET: usize = 512;

/// The longest text of a gateway, in bytes. A longer one is ignored.
pub const MAX_FLEET_TEXT: usize = 1_024;

/// A gateway that shares the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetMember {
    /// A random id of the process.
    pub id: String,
    /// Milliseconds since its last announcement, by Redis's clock.
    pub age: u64,
    /// The announced text. `None` for a version that announces no text, and if there are more than 512 gateways.
    pub text: Option<String>,
}

impl Redis {
    /// Announces a text, and returns the number of different rule files.
    async fn announce_text(&self, gateway: &str, text: &str, rule_hash: Option<&str>) -> Result<u32, StoreError> {
        let mut command = self.fleet_script("announce");
        command.arg(gateway).arg(text).arg(rule_hash.unwrap_or_default()).arg(MAX_FLEET);
        self.send_shared(&command).await
    }

    async fn read_fleet(&self) -> Result<Vec<FleetMember>, StoreError> {
        let described: Vec<(String, u64, String)> = self.send_shared(&self.fleet_script("read")).await?;
        let mut members: Vec<FleetMember> = described
            .into_iter()
            .map(|(id, age, text)| FleetMember {
                id,
                age,
                text: Some(text).filter(|text| text.len() <= MAX_FLEET_TEXT),
            })
            .collect();
        let now = self.read_time().await?;
        for (id, at) in self.read_membership().await? {
            if !members.iter().any(|member| member.id == id) {
                members.push(FleetMember { id, age: now.as_millis().saturating_sub(at), text: None });
            }
        }
        members.truncate(MAX_FLEET);
        Ok(members)
    }

    /// Returns all gateways with the times of their last announcements, also those that announce no text.
    async fn read_membership(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let key = self.names.tag("gateways");
        let mut command = cmd("ZRANGE");
        command.arg(&key).arg(0).arg(MAX_FLEET).arg("WITHSCORES");
        let members: Vec<(String, f64)> = self.query(&key, &command).await?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of milliseconds")]
        let members = members.into_iter().map(|(id, at)| (id, at as u64)).collect();
        Ok(members)
    }

    /// Returns a call of the script for this operation.
    fn fleet_script(&self, operation: &str) -> Cmd {
        let keys = ["fleet", "fleet:hashes", "fleet:seen"].map(|name| self.shared_key(name));
        let mut command = cmd("EVAL");
        command.arg(SCRIPT).arg(keys.len()).arg(&keys).arg(operation).arg(ANNOUNCEMENT_TTL_MILLIS);
        command
    }
}

impl Store {
    /// Returns the id under which this gateway announces itself. `None` if no other gateway can share the store, or if the
    /// owner is no gateway.
    #[doc(hidden)]
    pub fn gateway_id(&self) -> Option<String> {
        let Backend::Redis(redis) = &self.0 else { return None };
        redis.store().fallback().gateway().map(str::to_owned)
    }

    /// Announces a text of at most [`MAX_FLEET_TEXT`] bytes about this gateway, and the hash of its rule file. Returns the
    /// number of different hashes; `None` if no other gateway can share the store.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn announce_to_fleet(&self, text: &str, rule_hash: Option<&str>) -> Result<Option<u32>, StoreError> {
        let (Backend::Redis(redis), Some(gateway)) = (&self.0, self.gateway_id()) else { return Ok(None) };
        redis.store().announce_text(&gateway, text, rule_hash).await.map(Some)
    }

    /// Returns the gateways that share the store; `None` if no other gateway can.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    #[doc(hidden)]
    pub async fn fleet(&self) -> Result<Option<Vec<FleetMember>>, StoreError> {
        let Backend::Redis(redis) = &self.0 else { return Ok(None) };
        redis.store().read_fleet().await.map(Some)
    }
}
