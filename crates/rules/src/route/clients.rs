//! The condition on the client's address.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use super::value::Met;
use crate::client::{AddressRules, ClientError};
use crate::request::facts::Facts;

/// The networks of clients that a route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientNetworks {
    networks: Vec<IpNet>,
    /// How the address of a client is found.
    addresses: Arc<AddressRules>,
}

// === impl ClientNetworks ===

impl ClientNetworks {
    /// Creates the condition that the address of the client is in one of these networks.
    pub fn new(networks: Vec<IpNet>, addresses: Arc<AddressRules>) -> Self {
        Self { networks, addresses }
    }

    /// Tests the address of a client. An unknown address is in no network. If a proxy forwarded an invalid address, the
    /// client may be anywhere.
    pub fn met(&self, facts: &Facts<'_>) -> Met {
        match self.addresses.valid_address(facts) {
            Ok(address) => self.networks.iter().any(|network| network.contains(&address)).into(),
            Err(ClientError::Missing) => Met::No,
            Err(ClientError::Malformed | ClientError::Ambiguous) => Met::Maybe,
        }
    }

    /// Iterates over the networks.
    pub fn networks(&self) -> std::slice::Iter<'_, IpNet> {
        self.networks.iter()
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        other.networks.iter().all(|narrow| self.networks.iter().any(|wide| wide.contains(narrow)))
    }

    pub(super) fn contradicts(&self, other: &Self) -> bool {
        let overlaps =
            |network: &IpNet| other.networks.iter().any(|other| network.contains(other) || other.contains(network));
        !self.networks.iter().any(overlaps)
    }
}

impl fmt::Display for ClientNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks: Vec<_> = self.networks.iter().map(ToString::to_string).collect();
        f.write_str(&networks.join(" or "))
    }
}
