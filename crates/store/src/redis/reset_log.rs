//! Announces resets to all gateways, which then drop cached refusals, local buckets and local grants of the buckets.
//!
//! A reset is announced before and after the buckets are removed. The first announcement keeps gateways from charging
//! local grants of the removed buckets: they read the list before each late charge. The second one removes refusals
//! that were cached in the meantime.

use std::sync::Arc;

use deadpool_redis::redis::{Cmd, FromRedisValue, RedisError, Value, cmd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Redis;
use super::script::Invoker;
use crate::StoreError;
use crate::fallback::ResetGrants;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::random::random;
use tidegate_rules::charge::{Charge, ClientId, Limiter};

const SCRIPT: &str = include_str!("../../lua/resets.lua");

/// The number of resets in the list; the oldest are removed.
const MAX_RESETS: u32 = 1_000;

/// The resets that this gateway knows.
#[derive(Debug)]
pub(super) struct ResetLog {
    key: String,
    /// The time of the last reset that was applied, in milliseconds of Redis's clock.
    applied: Mutex<u64>,
}

/// The present time by two clocks. The local one must be read first, so that a grant after a reset never seems older
/// than the reset.
#[derive(Clone, Copy, Debug)]
pub struct ResetTimes {
    /// The clock that dates local grants.
    pub local: Timestamp,
    /// Redis's clock, which dates resets.
    pub redis: Timestamp,
}

/// A reset, as the list contains it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AnnouncedReset {
    /// The name of the limiter, and the names of its shards.
    limiters: Vec<String>,
    client: ResetClient,
    /// Makes the text unique.
    id: String,
    /// The time by Redis's clock.
    #[serde(skip)]
    at: Timestamp,
}

/// The clients whose buckets are reset.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum ResetClient {
    /// All clients of the limit.
    All,
    /// The bucket of an OVERALL limit.
    Overall,
    Address(String),
    Hash(String),
}

// === impl ResetLog ===

impl ResetLog {
    /// Creates a log from which no reset was applied. Resets before the start concern only local grants that are older.
    pub(super) fn new(prefix: &str) -> Self {
        let key = format!("{{{prefix}tidegate:@operators}}:resets");
        Self { key, applied: Mutex::default() }
    }

    /// Returns a command for the resets that were not applied yet.
    fn read_command(&self) -> Cmd {
        let mut command = cmd("ZRANGE");
        command.arg(&self.key).arg(format!("({}", self.applied.lock())).arg(&["+inf", "BYSCORE", "WITHSCORES"]);
        command
    }

    /// Returns the resets that were not applied yet. Returns none if another node of a cluster has the list.
    pub(super) async fn read(&self, script: &mut Invoker) -> Result<Vec<AnnouncedReset>, RedisError> {
        let reply = script.send(self.read_command()).await?;
        Ok(parse(reply).unwrap_or_default())
    }

    /// Records that resets were applied.
    fn advance(&self, resets: &[AnnouncedReset]) {
        let mut applied = self.applied.lock();
        *applied = resets.iter().map(|reset| reset.at.as_millis()).fold(*applied, u64::max);
    }
}

fn parse(reply: Value) -> Option<Vec<AnnouncedReset>> {
    let pairs: Vec<(String, f64)> = FromRedisValue::from_redis_value(reply).ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of milliseconds")]
    let reset = |(text, at): (String, f64)| {
        let reset: AnnouncedReset = serde_json::from_str(&text).ok()?;
        Some(AnnouncedReset { at: Timestamp::from_millis(at as u64), ..reset })
    };
    Some(pairs.into_iter().filter_map(reset).collect())
}

impl Redis {
    /// Announces a reset to all gateways.
    pub async fn announce_reset(&self, limiter: &Limiter, client: Option<&Charge>) -> Result<(), StoreError> {
        let client = match client.map(|charge| charge.client.as_ref()) {
            None => ResetClient::All,
            Some(Some(ClientId::Address(network))) => ResetClient::Address(network.to_string()),
            Some(Some(ClientId::Hash(hash))) => ResetClient::Hash(format!("{hash:032x}")),
            Some(Some(ClientId::Value(value))) => ResetClient::Hash(format!("{:032x}", self.hash_of(value).await?)),
            Some(None | Some(ClientId::Instance(_))) => ResetClient::Overall,
        };
        let shards = limiter.shards().iter().map(|shard| shard.name.clone());
        let limiters = std::iter::once(limiter.name.clone()).chain(shards).collect();
        let id = format!("{:016x}", u64::from_le_bytes(random()));
        let reset = AnnouncedReset { limiters, client, id, at: Timestamp::default() };
        let text = serde_json::to_string(&reset).unwrap_or_default();
        let mut command = cmd("EVAL");
        self.send_shared(command.arg(SCRIPT).arg(1).arg(&self.reset_log.key).arg(text).arg(MAX_RESETS)).await
    }

    /// Returns the hash of a client's value. The first call of a store waits for the reply from which the secret is
    /// known.
    async fn hash_of(&self, value: &[u8]) -> Result<u128, StoreError> {
        if let Some(hash) = self.key_of(value) {
            return Ok(hash);
        }
        self.announced_resets().await?;
        self.key_of(value).ok_or(StoreError::Unreachable)
    }

    /// Returns the resets that were not applied yet.
    pub async fn announced_resets(&self) -> Result<Vec<AnnouncedReset>, StoreError> {
        let reply: Value = self.send_shared(&self.reset_log.read_command()).await?;
        parse(reply).ok_or(StoreError::UnexpectedReply)
    }

    /// Returns the present times for the ages of resets.
    pub async fn reset_times(&self) -> Result<ResetTimes, StoreError> {
        Ok(ResetTimes { local: self.fallback.now(), redis: self.read_time().await? })
    }

    /// Forgets the local buckets and local grants of these limits that were reset.
    pub fn follow_reset(&self, reset: &AnnouncedReset, limiters: &[Arc<Limiter>], times: ResetTimes) {
        let (Some(secret), grants) = (self.secret.get(), reset.grants(times)) else { return };
        for limiter in limiters.iter().filter(|limiter| reset.limiters.contains(&limiter.name)) {
            self.fallback.follow_reset(limiter, &grants, secret);
        }
    }

    /// Records that resets were applied.
    pub fn mark_applied(&self, resets: &[AnnouncedReset]) {
        self.reset_log.advance(resets);
    }
}

// === impl AnnouncedReset ===

impl AnnouncedReset {
    /// Returns which local grants are reset. `times` are the present times of both clocks.
    pub fn grants(&self, times: ResetTimes) -> ResetGrants<'_> {
        let client = match &self.client {
            ResetClient::All => None,
            ResetClient::Overall => Some(None),
            ResetClient::Address(network) => Some(network.parse().ok().map(ClientId::Address)),
            ResetClient::Hash(hash) => Some(u128::from_str_radix(hash, 16).ok().map(ClientId::Hash)),
        };
        let age = times.redis.millis_since(self.at);
        // The times are rounded down to milliseconds, so their difference may be too small by almost 2 ms.
        let until = Timestamp::from_millis(times.local.as_millis().saturating_sub(age.saturating_add(2)));
        ResetGrants { limiters: &self.limiters, client, age, until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_is_never_dated_before_an_earlier_reset() {
        let millis = |micros: u64| Timestamp::from_millis(micros / 1_000);
        let steps = || (0..2_000).step_by(125);
        // All times are in microseconds; Redis's clock is ahead of the local one.
        for (ahead, reset_at) in steps().flat_map(|ahead| steps().map(move |reset_at| (ahead, 10_000 + reset_at))) {
            for (read_at, delay) in steps().flat_map(|read_at| steps().map(move |delay| (20_000 + read_at, delay))) {
                let (limiters, id) = (Vec::new(), String::new());
                let at = millis(reset_at + ahead);
                let reset = AnnouncedReset { limiters, client: ResetClient::All, id, at };
                let times = ResetTimes { local: millis(read_at), redis: millis(read_at + delay + ahead) };
                let (until, grant) = (reset.grants(times).until, millis(reset_at));
                assert!(until < grant && grant.millis_since(until) <= 6, "{until:?}, {grant:?}");
            }
        }
    }
}
