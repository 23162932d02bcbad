//! The leases of a worker's requests in flight: those that the worker holds, and ended ones that Redis may still have.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::in_flight::Lease;
use tidegate_limit::random::random;
use tidegate_rules::charge::ClientId;

/// The most leases that one call renews or releases.
const MAX_PER_CALL: usize = 500;
/// The most ended leases that are kept while Redis does not reply. Further ones end by themselves.
const MAX_RELEASED: usize = 100_000;

/// The leases of a worker, as the worker and all its requests have them.
#[derive(Debug, Default)]
pub(super) struct Leases {
    pub(super) shared_leases: Arc<SharedLeases>,
}

/// The leases of a worker, for the task that keeps them, too. The task releases the last leases when the worker and all
/// its requests have ended.
#[derive(Debug)]
pub(super) struct SharedLeases {
    table: Mutex<LeaseTable>,
    /// Notified when there are leases to keep.
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct LeaseTable {
    /// The start of all names of this worker's leases.
    prefix: Arc<str>,
    /// The number of the last lease. Numbers are used again after 2^32 leases.
    last: u32,
    held: BTreeMap<u32, Arc<LeaseKeys>>,
    /// Ended leases, by the name of their route's slots. No list is empty.
    released: HashMap<Arc<str>, Vec<KnownLease>>,
    /// Whether the worker and all its requests have ended.
    has_ended: bool,
}

/// The sorted sets that contain a lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeaseKeys {
    /// The name of the route's slots, which determines the hash slot.
    pub(super) route: Arc<str>,
    /// Whether the requests of the route are bounded.
    pub(super) is_bounded: bool,
    /// The client, if its requests are bounded.
    pub(super) client: Option<ClientId>,
}

/// A lease of a request. Released when the request and the call that takes the lease have ended.
#[derive(Debug)]
pub(super) struct RedisLease {
    leases: Arc<Leases>,
    pub(super) number: u32,
    pub(super) keys: Arc<LeaseKeys>,
    /// Whether Redis may have the lease.
    may_exist: AtomicBool,
}

/// The number and the keys of a lease.
type KnownLease = (u32, Arc<LeaseKeys>);

/// Leases to renew and to release with one call. If it is dropped before that has succeeded, the ended leases are released
/// later.
#[derive(Debug)]
pub(super) struct KeptLeases {
    leases: Arc<SharedLeases>,
    pub(super) prefix: Arc<str>,
    renewed: Vec<KnownLease>,
    released: Vec<KnownLease>,
}

// === impl Leases ===

impl Leases {
    pub(super) fn new_lease(self: &Arc<Self>, keys: LeaseKeys) -> RedisLease {
        let number = self.shared_leases.table.lock().next_number();
        RedisLease { leases: Arc::clone(self), number, keys: Arc::new(keys), may_exist: AtomicBool::new(false) }
    }

    /// Ends the task that keeps the leases, after it has released the leases of ended requests.
    pub(super) fn end(&self) {
        self.shared_leases.table.lock().has_ended = true;
        self.shared_leases.changed.notify_one();
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
        let prefix = format!("{:016x}", u64::from_le_bytes(random())).into();
        let (held, released) = (BTreeMap::new(), HashMap::new());
        let table = LeaseTable { prefix, last: 0, held, released, has_ended: false };
        Self { table: Mutex::new(table), changed: Notify::default() }
    }
}

impl SharedLeases {
    /// Returns all ended leases, and all others if that `is_due`, in parts of one route and one call.
    pub(super) fn to_keep(self: &Arc<Self>, is_due: bool) -> Vec<KeptLeases> {
        let mut table = self.table.lock();
        let released = take(&mut table.released).into_iter();
        let mut by_route: BTreeMap<_, _> = released.map(|(route, released)| (route, [Vec::new(), released])).collect();
        for (number, keys) in table.held.iter().filter(|_| is_due) {
            by_route.entry(Arc::clone(&keys.route)).or_default()[0].push((*number, Arc::clone(keys)));
        }
        let mut kept = Vec::new();
        for [renewed, released] in by_route.into_values() {
            let part = |renewed: &[_], released: &[_]| KeptLeases {
                leases: Arc::clone(self),
                prefix: Arc::clone(&table.prefix),
                renewed: renewed.to_vec(),
                released: released.to_vec(),
            };
            kept.extend(released.chunks(MAX_PER_CALL).map(|released| part(&[], released)));
            kept.extend(renewed.chunks(MAX_PER_CALL).map(|renewed| part(renewed, &[])));
        }
        kept
    }

    /// Adds ended leases that are released with one of the next calls.
    fn release_later(&self, ended: Vec<KnownLease>) {
        let released = &mut self.table.lock().released;
        let room = MAX_RELEASED.saturating_sub(released.values().map(Vec::len).sum());
        for (number, keys) in ended.into_iter().take(room) {
            released.entry(Arc::clone(&keys.route)).or_default().push((number, keys));
        }
    }

    /// Returns `true` if there are no leases.
    pub(super) fn is_idle(&self) -> bool {
        let table = self.table.lock();
        table.held.is_empty() && table.released.is_empty()
    }

    /// Returns `true` if the worker and all its requests have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.table.lock().has_ended
    }
}

// === impl LeaseTable ===

impl LeaseTable {
    /// Returns a number from 1 that no held lease has.
    fn next_number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last > 0 && !self.held.contains_key(&self.last) {
                return self.last;
            }
        }
    }

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

impl Lease for Arc<RedisLease> {}

impl RedisLease {
    /// Keeps the lease until it is dropped.
    pub(super) fn start(&self) {
        let mut table = self.leases.shared_leases.table.lock();
        if table.held.insert(self.number, Arc::clone(&self.keys)).is_none() && table.held.len() == 1 {
            self.leases.shared_leases.changed.notify_one();
        }
    }

    /// Records whether Redis may have the lease.
    pub(super) fn set_may_exist(&self, may_exist: bool) {
        self.may_exist.store(may_exist, Ordering::Relaxed);
    }

    /// Takes the ended leases of the worker and of these routes, which the call that takes this lease releases first, so
    /// that they count no longer.
    pub(super) fn take_released<'r>(&self, routes: impl Iterator<Item = &'r Arc<str>>) -> KeptLeases {
        let (leases, mut table) = (Arc::clone(&self.leases.shared_leases), self.leases.shared_leases.table.lock());
        let mut released = Vec::new();
        for route in routes {
            if released.len() < MAX_PER_CALL {
                released.append(&mut table.take_released(route));
            }
        }
        KeptLeases { leases, prefix: Arc::clone(&table.prefix), renewed: Vec::new(), released }
    }
}

impl Drop for RedisLease {
    fn drop(&mut self) {
        let leases = &self.leases.shared_leases;
        leases.table.lock().held.remove(&self.number);
        if *self.may_exist.get_mut() {
            leases.release_later(vec![(self.number, Arc::clone(&self.keys))]);
            leases.changed.notify_one();
        }
    }
}

// === impl LeaseKeys ===

impl LeaseKeys {
    /// Calls `each` with the client of each sorted set: of the route, then of the client.
    fn each(&self, mut each: impl FnMut(Option<&ClientId>)) {
        if self.is_bounded {
            each(None);
        }
        if let Some(client) = &self.client {
            each(Some(client));
        }
    }
}

// === impl KeptLeases ===

impl KeptLeases {
    /// Returns the name of the slots of the first lease. Returns `None` if there are no leases.
    pub(super) fn route(&self) -> Option<&Arc<str>> {
        self.renewed.first().or(self.released.first()).map(|(_, keys)| &keys.route)
    }

    /// Returns the names of the leases to renew and to release, by key. `key` returns the key of a route or client. A
    /// lease that has ended since is not renewed: it may have been released already, and would be added again.
    pub(super) fn by_key(&self, key: impl Fn(&str, Option<&ClientId>) -> String) -> BTreeMap<String, [Vec<String>; 2]> {
        let renewed: Vec<_> = {
            let table = self.leases.table.lock();
            self.renewed.iter().filter(|(number, _)| table.held.contains_key(number)).collect()
        };
        let mut by_key: BTreeMap<String, [Vec<String>; 2]> = BTreeMap::new();
        for (index, leases) in [renewed, self.released.iter().collect()].into_iter().enumerate() {
            for (number, keys) in leases {
                let lease = format!("{}{number:x}", self.prefix);
                keys.each(|client| {
                    by_key.entry(key(&keys.route, client)).or_default()[index].push(lease.clone());
                });
            }
        }
        by_key
    }

    /// Records that the call has succeeded.
    pub(super) fn done(&mut self) {
        self.released.clear();
    }
}

impl Drop for KeptLeases {
    fn drop(&mut self) {
        if !self.released.is_empty() {
            self.leases.release_later(take(&mut self.released));
        }
    }
}
