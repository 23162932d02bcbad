//! The leases that the requests of a call take, in the format of the script: bound by bound, after the limiters
//! (`lua/in_flight.lua`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::algorithms::ScriptArgs;
use super::buckets::BucketIndex;
use super::keys::{in_flight_key, waiting_key};
use crate::redis::leases::{KeptLeases, RedisLease};
use tidegate_rules::charge::ClientId;
use tidegate_rules::settings::store::KeySecret;

/// How long a lease lasts. The slots of a gateway that has died are free after this time.
pub(crate) const LEASE: Duration = Duration::from_millis(9_000);

/// A request for a lease under each bound that applies to it.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRequest {
    pub lease: Arc<RedisLease>,
    /// The bounds of the route and of the client.
    pub max: Option<u32>,
    pub per_client: Option<u32>,
    /// The gateway, among the gateways whose requests wait.
    pub gateway: u64,
    /// When the request began to wait, if it is the first of its gateway that waits for the route.
    pub waits_since: Option<Instant>,
}

/// The bounds of a call, with the sorted sets of their leases, without duplicates.
#[derive(Debug, Default)]
pub(super) struct SlotBuckets {
    bounds: Vec<SlotBound>,
    /// Ended leases, which the call releases first.
    released: Mutex<Option<KeptLeases>>,
    /// The start of the names of leases. All requests of a dispatcher have one.
    prefix: Option<Arc<str>>,
}

/// A bound of a route, or a bound of each of its clients.
#[derive(Debug)]
struct SlotBound {
    route: Arc<str>,
    bound: u32,
    /// The clients; `None` for the bound of the route.
    clients: Vec<Option<ClientId>>,
    gateway: u64,
    waits_since: Option<Instant>,
}

impl LeaseRequest {
    /// Returns the bounds that apply, each with the client of its sorted set.
    fn bounds(&self) -> impl Iterator<Item = (u32, Option<&ClientId>)> {
        let of_client = self.lease.keys.client.as_ref().zip(self.per_client);
        let of_route = self.max.map(|max| (max, None));
        of_route.into_iter().chain(of_client.map(|(client, bound)| (bound, Some(client))))
    }

    /// Returns the name of the route's slots.
    pub(crate) fn slots(&self) -> &str {
        &self.lease.keys.route
    }

    pub(crate) fn len(&self) -> usize {
        self.bounds().count()
    }
}

impl SlotBuckets {
    /// Returns the positions of the buckets of a request, and adds buckets that are new.
    pub(super) fn index(&mut self, request: &LeaseRequest) -> impl Iterator<Item = BucketIndex> {
        let route = &request.lease.keys.route;
        let indexes: Vec<BucketIndex> = request
            .bounds()
            .map(|(bound, client)| {
                let is_it = |other: &SlotBound| other.has(route, client.is_some()) && other.bound == bound;
                let limiter = self.bounds.iter().position(is_it).unwrap_or_else(|| {
                    let (route, gateway) = (Arc::clone(route), request.gateway);
                    self.bounds.push(SlotBound { route, bound, clients: Vec::new(), gateway, waits_since: None });
                    self.bounds.len() - 1
                });
                let entry = &mut self.bounds[limiter];
                if client.is_none() {
                    entry.waits_since = entry.waits_since.into_iter().chain(request.waits_since).min();
                }
                let bucket = entry.clients.iter().position(|other| other.as_ref() == client).unwrap_or_else(|| {
                    entry.clients.push(client.cloned());
                    entry.clients.len() - 1
                });
                BucketIndex { limiter, bucket }
            })
            .collect();
        indexes.into_iter()
    }

    /// Returns `true` if a bound of this request is present with another number. In one call, the script would load
    /// such a sorted set twice, and neither copy would contain the leases of the other.
    pub(super) fn conflict_with(&self, request: &LeaseRequest) -> bool {
        let route = &request.lease.keys.route;
        let differs = |(bound, client): (u32, Option<&ClientId>)| {
            self.bounds.iter().any(|other| other.has(route, client.is_some()) && other.bound != bound)
        };
        request.bounds().any(differs)
    }

    /// Takes the ended leases of the worker, which the call releases first. `lease` is one of its requests.
    pub(super) fn take_released(&mut self, lease: &RedisLease) {
        let mut routes: Vec<_> = self.bounds.iter().map(|bound| &bound.route).collect();
        routes.dedup();
        let released = lease.take_released(routes.into_iter());
        self.prefix = Some(Arc::clone(&released.prefix));
        *self.released.get_mut() = Some(released);
    }

    /// Records that the call has succeeded.
    pub(super) fn done(&self) {
        self.released.lock().iter_mut().for_each(KeptLeases::done);
    }

    /// Lets another call release the ended leases.
    pub(super) fn give_up_releases(&self) {
        *self.released.lock() = None;
    }

    /// Returns the names of the ended leases, by key.
    fn released(&self, secret: &KeySecret) -> BTreeMap<String, [Vec<String>; 2]> {
        let key = |route: &str, client: Option<&ClientId>| in_flight_key(route, client, secret);
        self.released.lock().as_ref().map(|released| released.by_key(key)).unwrap_or_default()
    }

    /// Returns the keys and arguments of the script, and the number of buckets before the requests' buckets.
    pub(super) fn encode(&self, secret: &KeySecret) -> EncodedSlots {
        let mut encoded = EncodedSlots { keys: Vec::new(), args: ScriptArgs(String::new()), first: 0 };
        for (key, [_, leases]) in self.released(secret) {
            encoded.keys.push(key);
            encoded.args.word("released").word(&leases.join(",")).number(1_u8);
        }
        encoded.first = encoded.keys.len();
        for bound in &self.bounds {
            bound.encode(self.prefix.as_deref().unwrap_or_default(), secret, &mut encoded);
        }
        encoded
    }

    /// Returns the number of each bound's first bucket, given the number of the first bucket of all.
    pub(super) fn first_numbers(&self, mut next: usize) -> Vec<usize> {
        let first = |bound: &SlotBound| {
            let first = next;
            next += bound.clients.len();
            first
        };
        self.bounds.iter().map(first).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }
}

/// Keys and arguments of the script.
pub(super) struct EncodedSlots {
    pub(super) keys: Vec<String>,
    pub(super) args: ScriptArgs,
    /// The number of buckets before the requests' buckets.
    pub(super) first: usize,
}

impl SlotBound {
    fn has(&self, route: &Arc<str>, of_clients: bool) -> bool {
        self.route == *route && self.clients.iter().all(|client| client.is_some() == of_clients)
    }

    fn encode(&self, prefix: &str, secret: &KeySecret, encoded: &mut EncodedSlots) {
        let is_shared = self.clients.iter().all(Option::is_none);
        let name = if is_shared { "in_flight_shared" } else { "in_flight" };
        let args = encoded.args.word(name).number(self.bound).number(LEASE.as_millis()).word(prefix);
        if is_shared {
            args.word(&format!("{:x}", self.gateway));
            match self.waits_since {
                Some(since) => args.number(since.elapsed().as_millis()),
                None => args.word("-"),
            };
        }
        encoded.args.number(self.clients.len());
        for client in &self.clients {
            encoded.keys.push(in_flight_key(&self.route, client.as_ref(), secret));
            if is_shared {
                encoded.keys.push(waiting_key(&self.route));
            }
        }
    }
}
