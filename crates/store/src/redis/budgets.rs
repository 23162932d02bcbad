//! Keeps the reservations of budgets open in Redis: a task of each worker renews the lease that this gateway has in each bucket.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::Redis;
use super::hash_slots::hash_slot_of;
use super::node::NodeConnection;
use super::routing::Call;
use super::script::algorithms::BUDGET_LEASE_MILLIS;
use super::script::keys::{self, RESERVATIONS};
use crate::StoreError;
use tidegate_limit::Algorithm;
use tidegate_rules::charge::{BucketId, Charge, ClientId, Limiter};

/// The time between renewals: two can fail before the lease ends.
const RENEW_EVERY: Duration = Duration::from_millis(BUDGET_LEASE_MILLIS / 3);

/// The timeout of a renewal.
const RENEW_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a settlement can correct the charge of a lease that has ended (`lua/budgets.lua`).
const CORRECTABLE_MILLIS: u64 = 600_000;

/// The most buckets of a call.
const MAX_PER_CALL: usize = 100;

/// The buckets of a worker that have open reservations.
#[derive(Debug, Default)]
pub(super) struct OpenBudgets(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// A bucket has other keys after a reload that changes the algorithm of its limit.
    buckets: HashMap<(BucketId, Discriminant<Algorithm>), OpenBucket>,
    /// Whether the task runs that renews the leases.
    is_renewing: bool,
}

/// The limiter and the client of a bucket.
type Bucket = (Arc<Limiter>, Option<ClientId>);

/// A bucket, and the number of its open reservations.
#[derive(Debug)]
struct OpenBucket {
    limiter: Arc<Limiter>,
    reservations: usize,
}

impl OpenBudgets {
    /// Adds a reservation. Returns `true` if the caller must start the task that renews the leases.
    fn add(&self, charge: &Charge) -> bool {
        let mut table = self.0.lock();
        let new = || OpenBucket { limiter: Arc::clone(&charge.limiter), reservations: 0 };
        let bucket = table.buckets.entry(key(charge)).or_insert_with(new);
        // The time to live of the keys depends on the latest rate.
        bucket.limiter = Arc::clone(&charge.limiter);
        bucket.reservations += 1;
        !std::mem::replace(&mut table.is_renewing, true)
    }

    fn remove(&self, charge: &Charge) {
        let (mut table, key) = (self.0.lock(), key(charge));
        let Some(bucket) = table.buckets.get_mut(&key) else { return };
        bucket.reservations -= 1;
        if bucket.reservations == 0 {
            table.buckets.remove(&key);
        }
    }

    /// Returns the buckets by hash slot. Without buckets, returns `None`, and the task ends.
    fn by_hash_slot(&self) -> Option<HashMap<u16, Vec<Bucket>>> {
        let mut table = self.0.lock();
        table.is_renewing = !table.buckets.is_empty();
        let mut by_hash_slot: HashMap<u16, Vec<_>> = HashMap::new();
        for (((_, client), _), bucket) in &table.buckets {
            let hash_slot = hash_slot_of(&bucket.limiter, client.as_ref());
            by_hash_slot.entry(hash_slot).or_default().push((Arc::clone(&bucket.limiter), client.clone()));
        }
        table.is_renewing.then_some(by_hash_slot)
    }
}

fn key(charge: &Charge) -> (BucketId, Discriminant<Algorithm>) {
    (charge.bucket_id(), discriminant(&charge.limiter.quota.algorithm()))
}

impl Redis {
    /// Keeps a reservation open. To be called in the runtime of the worker.
    pub(crate) fn keep_reservation(&self, charge: &Charge) {
        if self.budgets.add(charge) {
            let (redis, budgets) = (self.with_dispatchers(Arc::clone(&self.dispatchers)), Arc::clone(&self.budgets));
            tokio::spawn(async move { redis.renew_leases(&budgets).await });
        }
    }

    /// Stops to keep a reservation open.
    pub(crate) fn drop_reservation(&self, charge: &Charge) {
        self.budgets.remove(charge);
    }

    /// Renews the leases until there are no reservations.
    async fn renew_leases(&self, budgets: &OpenBudgets) {
        loop {
            sleep(RENEW_EVERY).await;
            let Some(by_hash_slot) = budgets.by_hash_slot() else { return };
            let parts = by_hash_slot.into_iter().flat_map(|(hash_slot, buckets)| {
                let parts: Vec<_> = buckets.chunks(MAX_PER_CALL).map(|part| (hash_slot, part.to_vec())).collect();
                parts
            });
            let renew = async |(hash_slot, buckets)| {
                let renewal = Renewal { gateway: self.in_flight.gateway(), buckets };
                // A renewal that fails is repeated soon enough.
                if let Err(error) = self.call_owner(hash_slot, Instant::now() + RENEW_TIMEOUT, &renewal).await {
                    tracing::debug!(%error, "failed to renew the lease of reservations");
                }
            };
            join_all(parts.map(renew)).await;
        }
    }
}

/// Renews the leases of a gateway in buckets of one hash slot.
struct Renewal {
    gateway: u64,
    buckets: Vec<Bucket>,
}

impl Call for Renewal {
    type Reply = Value;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Value, StoreError> {
        let (secret, mut keys, mut buffer) = (connection.secret()?, Vec::new(), String::new());
        for (limiter, client) in &self.buckets {
            let client = std::slice::from_ref(client);
            keys::for_each(limiter, client, &secret, &mut buffer, |key| {
                keys.extend(RESERVATIONS.iter().map(|suffix| format!("{key}{suffix}")));
            });
        }
        let add = |call: &mut Cmd| {
            call.arg(keys.len())
                .arg(&keys)
                .arg("renew_budgets")
                .arg(&self.gateway.to_be_bytes())
                .arg(BUDGET_LEASE_MILLIS);
            for (limiter, _) in &self.buckets {
                call.arg(limiter.quota.fills_in().saturating_add(BUDGET_LEASE_MILLIS + CORRECTABLE_MILLIS));
            }
        };
        connection.script.run(add).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_limit::{Mode, Quota};
    use tidegate_rules::charge::OnLost;

    /// A reload can change the algorithm, and so the keys, while reservations are open.
    #[test]
    fn leases_are_renewed_in_the_keys_of_each_algorithm() {
        let charge = |algorithm| {
            let quota = Quota::new(9, 1_000, algorithm).expect("a quota");
            let limiter = Limiter::new("{a}:b".to_owned(), Mode::Overall, quota).with_budget(OnLost::Charge);
            Charge::new(Arc::new(limiter), None, 1)
        };
        let open = OpenBudgets::default();
        let charges = [charge(Algorithm::TokenBucket), charge(Algorithm::Gcra { burst: 9 })];
        charges.iter().chain(&charges).for_each(|charge| _ = open.add(charge));
        let count = || open.by_hash_slot().map(|by_hash_slot| by_hash_slot.into_values().flatten().count());
        assert_eq!(count(), Some(2));
        charges.iter().for_each(|charge| open.remove(charge));
        assert_eq!(count(), Some(2));
        charges.iter().for_each(|charge| open.remove(charge));
        assert_eq!(count(), None);
    }
}
