//! Slots of requests in flight: a request takes its lease in the decision about its limits. A task of each worker
//! renews the leases of the worker's requests and releases the leases of ended requests, many in one call. All calls of
//! one route are to one hash slot.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio::time::{Instant, sleep, sleep_until};

use super::Redis;
use super::hash_slots::hash_slot_of_key;
use super::leases::{KeptLeases, LeaseKeys, RedisLease, SharedLeases};
use super::node::NodeConnection;
use super::routing::Call;
use super::script::keys::in_flight_key;
use super::script::slots::{LEASE, LeaseRequest};
use crate::StoreError;
use crate::in_flight::{Full, InFlight, InFlightSlot, SlotRequest};
use crate::negative_cache::Remote as _;
use tidegate_limit::clock::poll_time;
use tidegate_rules::charge::{Charge, Outcome};
use tidegate_rules::limits::concurrency::Concurrency;

/// The time between renewals.
const RENEW_EVERY: Duration = Duration::from_millis(3_000);
/// The pause after renewals or releases that failed.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// The timeout of a call that renews and releases leases.
const KEEP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an ended lease waits for a decision whose call can release it.
const RELEASE_AFTER: Duration = Duration::from_millis(2);

/// The task that keeps the leases of a worker. Restarted if its runtime has ended.
#[derive(Debug, Default)]
pub(super) struct Keeper(Mutex<Option<JoinHandle<()>>>);

/// A slot that a request takes in Redis.
#[derive(Debug)]
pub struct NewSlot<'r> {
    request: SlotRequest<'r>,
    lease_request: LeaseRequest,
}

impl Redis {
    /// Returns the slots of all routes that requests of this process hold.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Prepares a slot. Returns `None` if no bound applies, since the client is unknown.
    pub fn new_slot<'r>(&self, request: SlotRequest<'r>) -> Option<NewSlot<'r>> {
        let Concurrency { name: route, max, per_client, .. } = request.concurrency;
        let client = request.client.filter(|_| per_client.is_some()).cloned();
        let per_client = per_client.filter(|_| client.is_some());
        if max.is_none() && per_client.is_none() {
            return None;
        }
        let keys = LeaseKeys { route: Arc::clone(route), is_bounded: max.is_some(), client };
        let lease = Arc::new(self.leases.new_lease(keys));
        let (gateway, waits_since) = (self.in_flight.gateway(), request.waits_since);
        Some(NewSlot { request, lease_request: LeaseRequest { lease, max: *max, per_client, gateway, waits_since } })
    }

    /// Returns `true` if one call can decide these charges and the lease.
    pub fn is_one_call(&self, charges: &[Charge], new_slot: &NewSlot<'_>) -> bool {
        let lease_slot = hash_slot_of_key(new_slot.lease_request.slots());
        charges.iter().all(|charge| {
            charge.limiter.shards().is_empty() && self.hash_slot(charge).is_none_or(|hash_slot| hash_slot == lease_slot)
        })
    }

    /// Makes all charges and takes the lease, or does nothing. The outcome has a decision for each charge, then for each
    /// bound of the slot.
    pub async fn take_with_lease(
        &self,
        charges: &[Charge],
        new_slot: &NewSlot<'_>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        self.ensure_keeper();
        let (since, hash_slot) = (poll_time(), hash_slot_of_key(new_slot.lease_request.slots()));
        let mut decided = match self.decide_in_slot(hash_slot, charges, Some(&new_slot.lease_request), deadline).await {
            // Both nodes may have some of the keys.
            Err(error) if error.is_migrating() && charges.is_empty() => {
                self.take_one_lease(&new_slot.lease_request, deadline).await
            }
            decided => decided,
        };
        self.record_decision(charges, since, &mut decided);
        decided
    }

    /// Renews and releases leases. Returns `false` if Redis does not reply in time.
    async fn keep(&self, mut kept: KeptLeases) -> bool {
        let Some(route) = kept.route().cloned() else { return true };
        let is_kept = self.call_owner(hash_slot_of_key(&route), Instant::now() + KEEP_TIMEOUT, &kept).await.is_ok();
        if is_kept {
            kept.done();
        }
        is_kept
    }

    /// Waits until the leases of ended requests are released, but at most a second. To be called before the runtime of
    /// the worker ends: its tasks end with it.
    pub async fn release_last_leases(&self) {
        let Some(keeper) = self.keeper.0.lock().take() else { return };
        self.leases.end();
        _ = timeout(KEEP_TIMEOUT, keeper).await; // leases that are not released end by themselves
    }

    /// Starts the task that keeps the leases, on the current runtime, unless it runs.
    fn ensure_keeper(&self) {
        let mut keeper = self.keeper.0.lock();
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            let redis = self.with_dispatchers(Arc::clone(&self.dispatchers));
            *keeper = Some(tokio::spawn(keep_leases(redis, Arc::clone(&self.leases.shared_leases))));
        }
    }
}

/// Renews and releases leases, until the worker and all its requests have ended.
async fn keep_leases(redis: Redis, leases: Arc<SharedLeases>) {
    let mut renew_at = Instant::now() + RENEW_EVERY;
    loop {
        tokio::select! {
            // The next decision releases the lease with its own call.
            () = leases.changed.notified() => if !leases.has_ended() { sleep(RELEASE_AFTER).await },
            () = sleep_until(renew_at) => {}
        }
        let has_ended = leases.has_ended();
        let is_due = Instant::now() >= renew_at;
        if is_due {
            renew_at = Instant::now() + RENEW_EVERY;
        }
        // All at once: leases on other nodes would end while a node does not reply.
        let kept = join_all(leases.to_keep(is_due).into_iter().map(|kept| redis.keep(kept))).await;
        if kept.contains(&false) {
            renew_at = renew_at.min(Instant::now() + RETRY_EVERY);
        }
        if has_ended {
            return;
        }
        if leases.is_idle() {
            leases.changed.notified().await;
            leases.changed.notify_one();
            renew_at = Instant::now() + RENEW_EVERY;
        }
    }
}

// === impl NewSlot ===

impl NewSlot<'_> {
    /// Returns the slot that Redis has granted with this outcome, whose first decisions are about `charges`.
    ///
    /// # Errors
    /// The bounds that are reached.
    pub fn finish(self, outcome: &Outcome, charges: usize) -> Result<InFlightSlot, Full> {
        let of_bounds = outcome.decisions.get(charges..).unwrap_or_default();
        let (has_max, lease) = (self.lease_request.max.is_some(), Arc::clone(&self.lease_request.lease));
        if outcome.granted() {
            lease.start();
            let remaining = of_bounds.get(usize::from(has_max)).map_or(0, |of_client| of_client.remaining);
            return Ok(self.request.hold(remaining, Box::new(lease)));
        }
        lease.set_may_exist(false);
        let is_full = |index: usize| of_bounds.get(index).is_some_and(|decision| !decision.granted);
        Err(Full { route: has_max && is_full(0), client: is_full(usize::from(has_max)) })
    }

    /// Returns a slot of this gateway's share of the bounds, while Redis does not reply.
    ///
    /// # Errors
    /// The bounds that are reached.
    pub fn finish_locally(self, redis: &Redis) -> Result<InFlightSlot, Full> {
        let lease: Arc<RedisLease> = Arc::clone(&self.lease_request.lease);
        lease.set_may_exist(true); // from its first renewal on
        lease.start();
        self.request.hold_if(|bound| redis.fallback.share_of_bound(bound), Some(Box::new(lease)))
    }
}

/// Renews and releases leases of one route.
impl Call for KeptLeases {
    type Reply = Value;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Value, StoreError> {
        let secret = connection.secret()?;
        let kept = self.by_key(|route, client| in_flight_key(route, client, &secret));
        let add = |call: &mut Cmd| {
            call.arg(kept.len()).arg(kept.keys().collect::<Vec<_>>());
            call.arg("in_flight").arg(LEASE.as_millis().to_string());
            for leases in kept.values().flatten() {
                call.arg(leases.len()).arg(&leases[..]);
            }
        };
        connection.script.run(add).await
    }
}
