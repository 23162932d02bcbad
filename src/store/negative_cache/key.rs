//! Keys of the negative cache. A client that is known by an address is in its key as it is, any other as a hash.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use ipnet::IpNet;

use crate::limit::{Charge, ClientId};

/// A bucket: the address of its limiter, and its client. It holds nothing that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    limiter: usize,
    /// An address, or the hash of another identity.
    client: u128,
    /// What of these it is, and the length of an address's prefix.
    kind: (u8, u8),
}

/// Makes keys, and hashes them.
#[derive(Debug)]
pub(super) struct Keys {
    /// Of values that clients choose: two, with random keys. Together they are a hash of 128 bits, on which clients cannot produce
    /// collisions.
    hashers: [RandomState; 2],
    /// Finds a key in its table. A fast hash with a random seed is enough, since keys are compared and a table is small.
    finder: DefaultHashBuilder,
}

impl Default for Keys {
    fn default() -> Self {
        Self { hashers: [RandomState::new(), RandomState::new()], finder: DefaultHashBuilder::default() }
    }
}

impl Keys {
    /// The bucket of a charge.
    pub(super) fn key_of(&self, charge: &Charge) -> Key {
        let (kind, client) = match &charge.client {
            None => ((0, 0), 0),
            Some(ClientId::Address(IpNet::V4(network))) => ((1, network.prefix_len()), network.addr().to_bits().into()),
            Some(ClientId::Address(IpNet::V6(network))) => ((2, network.prefix_len()), network.addr().to_bits()),
            Some(ClientId::Value(value)) => ((3, 0), self.hash_value(value)),
            Some(ClientId::Instance(id)) => ((4, 0), self.hash_value(id.as_bytes())),
        };
        Key { limiter: Arc::as_ptr(&charge.limiter).addr(), client, kind }
    }

    /// A keyed hash of what a client chooses.
    fn hash_value(&self, bytes: &[u8]) -> u128 {
        let [high, low] = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            hasher.write(bytes);
            u128::from(hasher.finish())
        });
        high << 64 | low
    }

    /// Where a key is looked for.
    pub(super) fn hash_of(&self, key: &Key) -> u64 {
        let mut finder = self.finder.build_hasher();
        finder.write_u128(key.client);
        finder.write_u64(key.limiter as u64 ^ u64::from(u16::from_le_bytes(key.kind.into())) << 48);
        finder.finish()
    }
}
