//! The keys of the sketches: a limit and a client, of a fixed size.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::DefaultHashBuilder;
use ipnet::IpNet;

use super::cause::Cause;
use tidegate_rules::charge::ClientId;
use tidegate_store::Store;

/// Identifies what rejects a request, in all gateways and after each reload: a limit by its name and the name of its route,
/// or another cause by its name and the name of the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitId(u64);

/// A client as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// All clients of an OVERALL limit. Also a client while the secret of the hashes is unknown.
    All,
    /// An address or a network.
    Address(IpNet),
    /// The keyed hash of a value, as bytes, which need less memory than an aligned number.
    Hash([u8; 16]),
}

/// A client that a limit or another cause rejected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) limit: LimitId,
    pub(super) client: Client,
    /// A hash with a random key. The sketch itself hashes without a secret, so that clients could choose addresses with
    /// equal hashes.
    hash: u64,
}

// === impl LimitId ===

impl LimitId {
    /// Returns the id of a limit. Names of domains and of their limits can contain slashes, but no name has a zero byte.
    pub fn new(route: &str, limit: &str) -> Self {
        Self::hash(&format!("{route}\0{limit}"))
    }

    /// Returns the id of another cause in a route. No limit has this id.
    pub fn of_cause(route: &str, cause: Cause) -> Self {
        Self::hash(&format!("{route}\0\0{}", cause.as_str()))
    }

    fn hash(name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

// === impl Client ===

impl Client {
    /// Returns the client of a charge. Values are hashed as in the keys of the store.
    pub(super) fn new(client: Option<&ClientId>, store: &Store) -> Self {
        match client {
            None | Some(ClientId::Instance(_)) => Self::All,
            Some(ClientId::Address(network)) => Self::Address(*network),
            Some(ClientId::Hash(hash)) => Self::Hash(hash.to_be_bytes()),
            Some(value @ ClientId::Value(_)) => {
                store.key_of(value).map_or(Self::All, |hash| Self::Hash(hash.to_be_bytes()))
            }
        }
    }

    /// Returns the client; `None` for all clients together.
    #[doc(hidden)]
    pub fn id(self) -> Option<ClientId> {
        match self {
            Self::All => None,
            Self::Address(network) => Some(ClientId::Address(network)),
            Self::Hash(hash) => Some(ClientId::Hash(u128::from_be_bytes(hash))),
        }
    }
}

// === impl Key ===

impl Key {
    pub(super) fn new(limit: LimitId, client: Client, hasher: &DefaultHashBuilder) -> Self {
        Self { limit, client, hash: hasher.hash_one((limit, client)) }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.hash, self.limit, self.client) == (other.hash, other.limit, other.client)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_have_different_ids() {
        assert_ne!(LimitId::new("/a", "b/c"), LimitId::new("/a/b", "c"));
        assert_ne!(LimitId::new("/a", "/banned"), LimitId::of_cause("/a", Cause::Banned));
    }
}
