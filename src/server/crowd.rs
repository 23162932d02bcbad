//! How many connections each client has.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;

use hashbrown::HashMap;
use ipnet::IpNet;
use parking_lot::Mutex;

use crate::client::AddressRules;

/// The number of maps that clients are sharded over, so that workers seldom contend for a lock.
const SHARDS: usize = 16;

/// The clients of one listener, looked up when a connection opens and when it closes.
#[derive(Debug)]
pub(crate) struct Crowd {
    max: usize,
    addresses: AddressRules,
    hasher: RandomState,
    shards: [Mutex<HashMap<IpNet, usize>>; SHARDS],
}

/// The client has reached its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Crowd {
    /// Clients as `addresses` tell them apart, each with up to `max` connections.
    pub(crate) fn new(max: usize, addresses: AddressRules) -> Self {
        Self { max, addresses, hasher: RandomState::new(), shards: Default::default() }
    }

    /// Counts a connection in; returns as whose, or nobody's if it comes from a trusted proxy.
    ///
    /// # Errors
    /// Its client has all that it may have.
    pub(crate) fn enter(&self, peer: IpAddr) -> Result<Option<IpNet>, TooMany> {
        let peer = peer.to_canonical();
        if self.addresses.trusts(peer) {
            return Ok(None);
        }
        let client = self.addresses.network(peer);
        let mut shard = self.shard(&client).lock();
        let count = shard.entry(client).or_insert(0);
        if *count >= self.max {
            return Err(TooMany);
        }
        *count += 1;
        Ok(Some(client))
    }

    /// Counts a connection out.
    pub(crate) fn leave(&self, client: &IpNet) {
        let mut shard = self.shard(client).lock();
        if let Some(count) = shard.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(client);
            }
        }
        // A rush leaves no room behind that nobody needs.
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

    fn crowd(max: usize, trusted: &[&str]) -> Crowd {
        let trusted_proxies = trusted.iter().map(|net| net.parse().unwrap()).collect();
        Crowd::new(max, AddressRules { trusted_proxies, ipv6_prefix: 64 })
    }

    fn enter(crowd: &Crowd, address: &str) -> Result<Option<IpNet>, TooMany> {
        crowd.enter(address.parse().unwrap())
    }

    #[test]
    fn a_client_has_so_many_connections_and_again_one_when_one_is_over() {
        let crowd = crowd(2, &[]);
        let first = enter(&crowd, "192.0.2.1").unwrap().unwrap();
        assert!(enter(&crowd, "::ffff:192.0.2.1").is_ok());
        assert_eq!(enter(&crowd, "192.0.2.1"), Err(TooMany));
        assert!(enter(&crowd, "192.0.2.2").is_ok());
        crowd.leave(&first);
        assert!(enter(&crowd, "192.0.2.1").is_ok());
        assert_eq!(enter(&crowd, "192.0.2.1"), Err(TooMany));
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_are_one_client() {
        let crowd = crowd(1, &[]);
        assert!(enter(&crowd, "2001:db8::1").is_ok());
        assert_eq!(enter(&crowd, "2001:db8::ffff:2"), Err(TooMany));
        assert!(enter(&crowd, "2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn trusted_proxies_bring_as_many_as_they_like_and_nothing_stays_of_those_who_left() {
        let crowd = crowd(1, &["10.0.0.0/8"]);
        for _ in 0..3 {
            assert_eq!(enter(&crowd, "10.1.2.3"), Ok(None));
        }
        let left: Vec<_> = (0..=255)
            .map(|last| crowd.enter(std::net::Ipv4Addr::new(192, 0, 2, last).into()).unwrap().unwrap())
            .collect();
        left.iter().for_each(|client| crowd.leave(client));
        assert!(crowd.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
