//! Leases of requests in flight. A lease is taken by the request itself. A task of each worker renews the leases of the
//! worker's requests and releases the leases of ended requests, many in one call. All calls of one route are to one hash slot.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, from_redis_value};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
#[cfg(feature = "gateway")]
use tokio::time::timeout;
use tokio::time::{Instant, sleep_until};

use super::Redis;
use super::hash_slots::hash_slot_of_key;
use super::node::NodeConnection;
use super::routing::Call;
use super::script::keys;
use crate::concurrency::Concurrency;
use crate::limit::ClientId;
use crate::random::random;
use crate::store::StoreError;
use crate::store::in_flight::{Full, InFlight, Lease, Slot, SlotRequest};
use crate::store::negative_cache::Remote as _;
use crate::store::settings::KeySecret;

/// How long a lease lasts. The slots of a gateway that has died are free after this time.
const LEASE: Duration = Duration::from_millis(9_000);
/// The time between renewals.
const RENEW_EVERY: Duration = Duration::from_millis(3_000);
/// The pause after renewals or releases that failed.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// The timeout of a call that renews and releases leases.
const KEEP_TIMEOUT: Duration = Duration::from_secs(1);
/// The most leases that one call renews or releases.
const MAX_PER_CALL: usize = 500;
/// The most ended leases that are kept while Redis does not reply. Further ones end by themselves.
const MAX_RELEASED: usize = 100_000;

/// The leases of a worker, as the worker and all its requests have them.
#[derive(Debug, Default)]
pub(super) struct Leases {
    shared: Arc<SharedLeases>,
    /// The task that keeps the leases. Restarted if its runtime has ended.
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// The leases of a worker, for the task that keeps them, too. The task releases the last leases when the worker and all
/// its requests have ended.
#[derive(Debug)]
struct SharedLeases {
    table: Mutex<LeaseTable>,
    /// Notified when there are leases to keep.
    changed: Notify,
}

#[derive(Debug)]
struct LeaseTable {
    /// The start of all names of this worker's leases.
    prefix: String,
    next: u64,
    held: BTreeMap<u64, Arc<LeaseKeys>>,
    /// Ended leases, by the name of their route's slots. No list is empty.
    released: HashMap<Arc<str>, Vec<KnownLease>>,
    /// Whether the worker and all its requests have ended.
    has_ended: bool,
}

/// The sorted sets that contain a lease.
#[derive(Debug)]
struct LeaseKeys {
    /// The name of the route's slots, which determines the hash slot.
    route: Arc<str>,
    /// Whether the requests of the route are bounded.
    is_bounded: bool,
    /// The client, if its requests are bounded.
    client: Option<ClientId>,
}

/// A lease of a request, which is released on drop.
#[derive(Debug)]
struct RedisLease {
    leases: Arc<Leases>,
    id: u64,
    keys: Arc<LeaseKeys>,
    /// Whether Redis may have the lease.
    may_exist: bool,
}

/// The number and the keys of a lease.
type KnownLease = (u64, Arc<LeaseKeys>);

/// A call about leases of one route. If it is dropped without success, its ended leases are released later.
#[derive(Debug)]
struct LeaseCall {
    leases: Arc<SharedLeases>,
    /// The lease to take, and the bound of each of its keys.
    taken: Option<(u64, Arc<LeaseKeys>, Vec<u32>)>,
    prefix: String,
    renewed: Vec<(u64, Arc<LeaseKeys>)>,
    released: Vec<(u64, Arc<LeaseKeys>)>,
}

impl Redis {
    /// Returns the slots of all routes that requests of this process hold.
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Takes a slot: a lease in Redis, or a part of the bounds while Redis does not reply.
    ///
    /// # Errors
    /// The bounds that are reached.
    pub(crate) async fn take_slot(&self, request: SlotRequest<'_>) -> Result<Slot, Full> {
        let Concurrency { name: route, max, per_client, .. } = request.concurrency;
        let client = request.client.filter(|_| per_client.is_some()).cloned();
        let bounds = max.iter().copied().chain(per_client.filter(|_| client.is_some())).collect();
        let keys = LeaseKeys { route: Arc::clone(route), is_bounded: max.is_some(), client };
        if !keys.is_bounded && keys.client.is_none() {
            return request.hold_if(|bound| bound, None); // no client could be identified
        }
        let mut lease = self.leases.new_lease(Arc::new(keys));
        let mut call = self.leases.shared.call_to_take(&lease, bounds);
        let slot = hash_slot_of_key(route);
        lease.may_exist = true;
        self.ensure_keeper();
        let left: Result<Vec<i64>, StoreError> = self.call_leases(slot, self.deadline(), &call).await;
        if left.is_ok() {
            call.released.clear();
        }
        match left {
            Ok(left) if left.iter().all(|left| *left >= 0) => {
                lease.start();
                let of_client = left.get(usize::from(max.is_some())).copied().unwrap_or(0);
                Ok(request.hold(u32::try_from(of_client).unwrap_or(0), Box::new(lease)))
            }
            Ok(left) => {
                lease.may_exist = false;
                let is_full = |index: usize| left.get(index).is_some_and(|left| *left < 0);
                Err(Full { route: max.is_some() && is_full(0), client: is_full(usize::from(max.is_some())) })
            }
            Err(error) => {
                tracing::debug!(%error, "store does not reply, slot is taken from the share of this gateway");
                lease.start();
                request.hold_if(|bound| self.fallback.share_of_bound(bound), Some(Box::new(lease)))
            }
        }
    }

    async fn call_leases<T: FromRedisValue>(
        &self,
        slot: u16,
        deadline: Instant,
        call: &LeaseCall,
    ) -> Result<T, StoreError> {
        from_redis_value(self.call_owner(slot, deadline, call).await?).map_err(|_| StoreError::UnexpectedReply)
    }

    /// Renews and releases leases. Returns `false` if Redis does not reply in time.
    async fn keep(&self, mut call: LeaseCall) -> bool {
        let keys = call.renewed.first().or(call.released.first());
        let Some(slot) = keys.map(|(_, keys)| hash_slot_of_key(&keys.route)) else { return true };
        let kept = self.call_leases::<Value>(slot, Instant::now() + KEEP_TIMEOUT, &call).await;
        if kept.is_ok() {
            call.released.clear();
        }
        kept.is_ok()
    }

    /// Waits until the leases of ended requests are released, but at most a second. To be called before the runtime of the
    /// worker ends: its tasks end with it.
    #[cfg(feature = "gateway")]
    pub(crate) async fn release_last_leases(&self) {
        let Some(keeper) = self.leases.keeper.lock().take() else { return };
        self.leases.end();
        _ = timeout(KEEP_TIMEOUT, keeper).await; // leases that are not released end by themselves
    }

    /// Starts the task that keeps the leases, on the current runtime, unless it runs.
    fn ensure_keeper(&self) {
        let mut keeper = self.leases.keeper.lock();
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            let redis = Self { leases: Arc::default(), ..self.with_dispatchers(Arc::clone(&self.dispatchers)) };
            *keeper = Some(tokio::spawn(keep_leases(redis, Arc::clone(&self.leases.shared))));
        }
    }
}

/// Renews and releases leases, until the worker and all its requests have ended.
async fn keep_leases(redis: Redis, leases: Arc<SharedLeases>) {
    let mut renew_at = Instant::now() + RENEW_EVERY;
    loop {
        tokio::select! {
            () = leases.changed.notified() => {}
            () = sleep_until(renew_at) => {}
        }
        let has_ended = leases.table.lock().has_ended;
        let is_due = Instant::now() >= renew_at;
        if is_due {
            renew_at = Instant::now() + RENEW_EVERY;
        }
        // All at once: leases on other nodes would end while a node does not reply.
        let kept = join_all(leases.calls_to_keep(is_due).into_iter().map(|call| redis.keep(call))).await;
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

// === impl Leases ===

impl Leases {
    fn new_lease(self: &Arc<Self>, keys: Arc<LeaseKeys>) -> RedisLease {
        let mut table = self.shared.table.lock();
        table.next += 1;
        RedisLease { leases: Arc::clone(self), id: table.next, keys, may_exist: false }
    }

    /// Ends the task that keeps the leases, after it has released the leases of ended requests.
    fn end(&self) {
        self.shared.table.lock().has_ended = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl SharedLeases ===

impl Default for SharedLeases {
    fn default() -> Self {
        let prefix = format!("{:016x}", u64::from_le_bytes(random()));
        let (held, released) = (BTreeMap::new(), HashMap::new());
        let table = LeaseTable { prefix, next: 0, held, released, has_ended: false };
        Self { table: Mutex::new(table), changed: Notify::default() }
    }
}

impl SharedLeases {
    /// Returns a call that takes a lease. It first releases ended leases of the route, so that they count no longer.
    fn call_to_take(self: &Arc<Self>, lease: &RedisLease, bounds: Vec<u32>) -> LeaseCall {
        let mut table = self.table.lock();
        let released = table.take_released(&lease.keys.route);
        let taken = Some((lease.id, Arc::clone(&lease.keys), bounds));
        LeaseCall { leases: Arc::clone(self), taken, prefix: table.prefix.clone(), renewed: Vec::new(), released }
    }

    /// Returns calls that release all ended leases, and renew all others if that `is_due`.
    fn calls_to_keep(self: &Arc<Self>, is_due: bool) -> Vec<LeaseCall> {
        let mut table = self.table.lock();
        let released = take(&mut table.released).into_iter();
        let mut by_route: BTreeMap<_, _> = released.map(|(route, released)| (route, [Vec::new(), released])).collect();
        for (id, keys) in table.held.iter().filter(|_| is_due) {
            by_route.entry(Arc::clone(&keys.route)).or_default()[0].push((*id, Arc::clone(keys)));
        }
        let mut calls = Vec::new();
        for [renewed, released] in by_route.into_values() {
            let call = |renewed: &[_], released: &[_]| LeaseCall {
                leases: Arc::clone(self),
                taken: None,
                prefix: table.prefix.clone(),
                renewed: renewed.to_vec(),
                released: released.to_vec(),
            };
            calls.extend(released.chunks(MAX_PER_CALL).map(|released| call(&[], released)));
            calls.extend(renewed.chunks(MAX_PER_CALL).map(|renewed| call(renewed, &[])));
        }
        calls
    }

    /// Adds ended leases that are released with one of the next calls.
    fn release_later(&self, ended: Vec<(u64, Arc<LeaseKeys>)>) {
        let released = &mut self.table.lock().released;
        let room = MAX_RELEASED.saturating_sub(released.values().map(Vec::len).sum());
        for (id, keys) in ended.into_iter().take(room) {
            released.entry(Arc::clone(&keys.route)).or_default().push((id, keys));
        }
    }

    fn is_idle(&self) -> bool {
        let table = self.table.lock();
        table.held.is_empty() && table.released.is_empty()
    }
}

// === impl LeaseTable ===

impl LeaseTable {
    /// Removes and returns ended leases of a route, at most [`MAX_PER_CALL`].
    fn take_released(&mut self, route: &str) -> Vec<KnownLease> {
        let Some(of_route) = self.released.get_mut(route) else { return Vec::new() };
        let taken = of_route.split_off(of_route.len().saturating_sub(MAX_PER_CALL));
        if of_route.is_empty() {
            self.released.remove(route);
        }
        taken
    }
}

// === impl RedisLease ===

impl Lease for RedisLease {}

impl RedisLease {
    /// Keeps the lease until it is dropped.
    fn start(&mut self) {
        let mut table = self.leases.shared.table.lock();
        if table.held.insert(self.id, Arc::clone(&self.keys)).is_none() && table.held.len() == 1 {
            self.leases.shared.changed.notify_one();
        }
    }
}

impl Drop for RedisLease {
    fn drop(&mut self) {
        let leases = &self.leases.shared;
        leases.table.lock().held.remove(&self.id);
        if self.may_exist {
            leases.release_later(vec![(self.id, Arc::clone(&self.keys))]);
            leases.changed.notify_one();
        }
    }
}

// === impl LeaseKeys ===

impl LeaseKeys {
    /// Returns the keys: of the route, then of the client.
    fn names(&self, secret: &KeySecret) -> Vec<String> {
        let route = self.is_bounded.then(|| self.route.to_string());
        let client = self.client.as_ref().map(|client| keys::in_flight_key(&self.route, client, secret));
        route.into_iter().chain(client).collect()
    }
}

// === impl LeaseCall ===

impl LeaseCall {
    /// Returns the names of the leases to renew and to release, by key. A lease that has ended since this call was created
    /// is not renewed: it may have been released already, and would be added again.
    fn kept(&self, secret: &KeySecret) -> BTreeMap<String, [Vec<String>; 2]> {
        let renewed: Vec<_> = {
            let table = self.leases.table.lock();
            self.renewed.iter().filter(|(id, _)| table.held.contains_key(id)).collect()
        };
        let mut kept: BTreeMap<String, [Vec<String>; 2]> = BTreeMap::new();
        for (index, leases) in [renewed, self.released.iter().collect()].into_iter().enumerate() {
            for (id, of) in leases {
                let lease = name(&self.prefix, *id);
                of.names(secret).into_iter().for_each(|key| kept.entry(key).or_default()[index].push(lease.clone()));
            }
        }
        kept
    }
}

impl Call for LeaseCall {
    type Reply = Value;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Value, StoreError> {
        let secret = connection.secret()?;
        let taken = self.taken.as_ref();
        let mut keys = taken.map(|(_, keys, _)| keys.names(&secret)).unwrap_or_default();
        let kept = self.kept(&secret);
        let others: Vec<String> = kept.keys().filter(|key| !keys.contains(key)).cloned().collect();
        keys.extend(others);
        let lease = taken.map_or_else(String::new, |(id, ..)| name(&self.prefix, *id));
        let bounds = taken.map_or(&[][..], |(_, _, bounds)| bounds).iter().map(u32::to_string).collect::<Vec<_>>();
        let add = |call: &mut Cmd| {
            call.arg(keys.len()).arg(&keys[..]).arg("in_flight").arg(LEASE.as_millis().to_string());
            call.arg(&lease).arg(bounds.join(" "));
            for key in &keys {
                let none = [Vec::new(), Vec::new()];
                for leases in kept.get(key).unwrap_or(&none) {
                    call.arg(leases.len()).arg(&leases[..]);
                }
            }
        };
        connection.script.run(add).await
    }
}

impl Drop for LeaseCall {
    fn drop(&mut self) {
        if !self.released.is_empty() {
            self.leases.release_later(take(&mut self.released));
        }
    }
}

/// Returns the name of a lease in Redis.
fn name(prefix: &str, id: u64) -> String {
    format!("{prefix}{id:x}")
}
