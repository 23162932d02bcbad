//! Counts the connections of each client.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hashbrown::HashMap;
use ipnet::IpNet;
use parking_lot::Mutex;

use tidegate_rules::client::AddressRules;

/// The number of maps that clients are sharded over, so that workers seldom contend for a lock.
const SHARDS: usize = 16;

/// The connection counts of one listener's clients.
#[derive(Debug)]
pub(crate) struct ClientConnections {
    max_per_client: AtomicUsize,
    hasher: RandomState,
    shards: [Mutex<HashMap<IpNet, usize>>; SHARDS],
}

/// The client has reached its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientLimitReached;

impl ClientConnections {
    /// Limits each client to `max_per_client` connections.
    pub(crate) fn new(max_per_client: usize) -> Self {
        let max_per_client = AtomicUsize::new(max_per_client);
        Self { max_per_client, hasher: RandomState::new(), shards: Default::default() }
    }

    /// Changes the limit. Open connections stay open.
    pub(crate) fn set_max_per_client(&self, max_per_client: usize) {
        self.max_per_client.store(max_per_client, Relaxed);
    }

    /// Counts a new connection. Returns the client it is counted for, or `None` if the peer is a trusted proxy.
    /// `addresses` defines which addresses belong to one client.
    ///
    /// # Errors
    /// The client has reached its cap.
    pub(crate) fn add(&self, peer: IpAddr, addresses: &AddressRules) -> Result<Option<IpNet>, ClientLimitReached> {
        let peer = peer.to_canonical();
        if addresses.trusts(peer) {
            return Ok(None);
        }
        let client = addresses.network(peer);
        let mut shard = self.shard(&client).lock();
        let count = shard.entry(client).or_insert(0);
        if *count >= self.max_per_client.load(Relaxed) {
            return Err(ClientLimitReached);
        }
        *count += 1;
        Ok(Some(client))
    }

    /// Returns the number of connections of a client.
    pub(crate) fn count(&self, client: &IpNet) -> usize {
        self.shard(client).lock().get(client).copied().unwrap_or(0)
    }

    /// Removes a connection from the count of its client.
    pub(crate) fn remove(&self, client: &IpNet) {
        let mut shard = self.shard(client).lock();
        if let Some(count) = shard.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(client);
            }
        }
        // Frees the memory that a burst of clients needed.
        if shard.capacity() > 64 && shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
    }

    fn shard(&self, client: &IpNet) -> &Mutex<HashMap<IpNet, usize>> {
        let hash = usize::try_from(self.hasher.hash_one(client) % SHARDS as u64);
        &self.shards[hash.unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> AddressRules {
        AddressRules { trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()], ipv6_prefix: 64 }
    }

    fn add(connections: &ClientConnections, address: &str) -> Result<Option<IpNet>, ClientLimitReached> {
        connections.add(address.parse().unwrap(), &addresses())
    }

    #[test]
    fn closed_connection_frees_capacity_of_its_client() {
        let connections = ClientConnections::new(2);
        let first = add(&connections, "192.0.2.1").unwrap().unwrap();
        assert!(add(&connections, "::ffff:192.0.2.1").is_ok());
        assert_eq!(add(&connections, "192.0.2.1"), Err(ClientLimitReached));
        assert_eq!(connections.count(&first), 2);
        assert!(add(&connections, "192.0.2.2").is_ok());
        connections.remove(&first);
        assert!(add(&connections, "192.0.2.1").is_ok());
        assert_eq!(add(&connections, "192.0.2.1"), Err(ClientLimitReached));
        connections.set_max_per_client(3);
        assert!(add(&connections, "192.0.2.1").is_ok());
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_are_one_client() {
        let connections = ClientConnections::new(1);
        assert!(add(&connections, "2001:db8::1").is_ok());
        assert_eq!(add(&connections, "2001:db8::ffff:2"), Err(ClientLimitReached));
        assert!(add(&connections, "2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn trusted_proxies_have_no_cap() {
        let connections = ClientConnections::new(1);
        for _ in 0..3 {
            assert_eq!(add(&connections, "10.1.2.3"), Ok(None));
        }
        let left: Vec<_> =
            (0..=255).map(|last| add(&connections, &format!("192.0.2.{last}")).unwrap().unwrap()).collect();
        left.iter().for_each(|client| connections.remove(client));
        assert!(connections.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
