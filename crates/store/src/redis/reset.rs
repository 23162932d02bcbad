//! Removes the keys of buckets for operators. The hash of a shared limiter, with its rate, stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Value, cmd, from_redis_value};
use tokio::time::Instant;

use super::Redis;
use super::hash_slots::{hash_slot_of, hash_slot_of_key};
use super::node::{Node, NodeConnection};
use super::routing::Call;
use super::script::keys::{self, BucketKeys};
use super::script::store_error;
use crate::StoreError;
use crate::negative_cache::Remote as _;
use tidegate_limit::{Algorithm, Mode};
use tidegate_rules::charge::{Charge, Limiter};

/// The number of keys that Redis visits in one step: less than a millisecond of its time.
const SCANNED_KEYS: u32 = 1_000;

/// The maximal number of keys that one command removes. Redis frees their memory in the background.
const REMOVED_KEYS: usize = 500;

/// The deadline of a step. It is longer than the deadline of a decision: a slow step must not cut off a connection.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(2);

/// A call that removes the keys of a bucket.
struct RemoveBucket<'c>(&'c Charge);

impl Redis {
    /// Forgets the local bucket and the local grants of a charge.
    pub fn forget_locally(&self, charge: &Charge) {
        if let Some(secret) = self.secret.get() {
            self.fallback.reset(charge, secret);
        }
    }

    /// Removes the bucket of a charge. The charge is on one bucket. Returns the number of removed keys.
    pub async fn reset(&self, charge: &Charge) -> Result<u64, StoreError> {
        let hash_slot = hash_slot_of(&charge.limiter, charge.client.as_ref());
        self.call_owner(hash_slot, self.deadline(), &RemoveBucket(charge)).await
    }

    /// Removes all buckets of a limiter. Returns their number.
    pub async fn reset_all(&self, limiter: &Arc<Limiter>) -> Result<u64, StoreError> {
        let mut removed = 0;
        // The mode of an adopted limiter may be known only to the store.
        if limiter.mode == Mode::Overall || is_redisson(limiter) {
            let whole = Charge::new(Arc::clone(limiter), None, 0);
            for bucket in whole.on_all_buckets() {
                removed += self.reset(&bucket).await?.min(1);
            }
        }
        if limiter.mode == Mode::PerClient {
            let keys = BucketKeys::new(limiter);
            for node in self.topology.nodes(Instant::now() + STEP_TIMEOUT).await? {
                removed += self.reset_on(&node, &keys).await?;
            }
        }
        Ok(removed)
    }

    /// Removes the buckets of a limiter that are on this node.
    async fn reset_on(&self, node: &Arc<Node>, keys: &BucketKeys) -> Result<u64, StoreError> {
        let (mut cursor, mut removed) = (0_u64, 0);
        loop {
            let mut command = cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(keys.pattern()).arg("COUNT").arg(SCANNED_KEYS);
            let scan = async |connection: &mut NodeConnection| command.run(connection).await;
            let deadline = Instant::now() + STEP_TIMEOUT;
            let reply = self.dispatchers.dispatcher_for(node).connection().call(deadline, scan).await?;
            let (next, found): (u64, Vec<Vec<u8>>) =
                from_redis_value(reply).map_err(|_| StoreError::UnexpectedReply)?;
            let found = found.into_iter().filter_map(|key| String::from_utf8(key).ok());
            let found: Vec<(usize, String)> = found.filter_map(|key| Some((keys.kind_of(&key)?, key))).collect();
            removed += found.iter().map(|(kind, _)| u64::from(*kind == 0)).sum::<u64>();
            let found: Vec<String> = found.into_iter().map(|(_, key)| key).collect();
            self.remove(&found).await?;
            if next == 0 {
                return Ok(removed);
            }
            cursor = next;
        }
    }

    /// Removes keys, with a command for each hash slot.
    async fn remove(&self, keys: &[String]) -> Result<(), StoreError> {
        let mut by_slot: BTreeMap<u16, Vec<&String>> = BTreeMap::new();
        keys.iter().for_each(|key| by_slot.entry(hash_slot_of_key(key)).or_default().push(key));
        for (hash_slot, keys) in by_slot {
            for chunk in keys.chunks(REMOVED_KEYS) {
                match self.call_owner(hash_slot, Instant::now() + STEP_TIMEOUT, cmd("UNLINK").arg(chunk)).await {
                    // Some keys have moved to another node already: each key is on one node.
                    Err(error) if error.is_migrating() => {
                        for key in chunk {
                            self.call_owner(hash_slot, Instant::now() + STEP_TIMEOUT, cmd("UNLINK").arg(key)).await?;
                        }
                    }
                    reply => _ = reply?,
                }
            }
        }
        Ok(())
    }
}

impl Call for RemoveBucket<'_> {
    type Reply = u64;

    async fn run(&self, connection: &mut NodeConnection) -> Result<u64, StoreError> {
        let (secret, Charge { limiter, client, .. }) = (connection.secret()?, self.0);
        let mut command = cmd("UNLINK");
        let mut add = |key: &str| _ = (key != limiter.name || !is_redisson(limiter)).then(|| command.arg(key));
        keys::for_each(limiter, std::slice::from_ref(client), &secret, &mut String::new(), &mut add);
        let reply: Value = connection.script.send(command).await.map_err(|error| store_error(&error))?;
        from_redis_value(reply).map_err(|_| StoreError::UnexpectedReply)
    }
}

fn is_redisson(limiter: &Limiter) -> bool {
    matches!(limiter.quota.algorithm(), Algorithm::Redisson(_))
}
