//! The keys of the negative cache. An address is part of a key as it is, any other client as a hash.

use std::hash::{BuildHasher, Hasher, RandomState};

use hashbrown::DefaultHashBuilder;
use ipnet::IpNet;

use tidegate_rules::charge::{Charge, ClientId};

/// A bucket: its limiter with the rate of the request, and its client. Contains no text of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    limiter: (u64, u32, u32),
    /// A network address, or the hash of another kind of client. In bytes: the alignment of a `u128` would make a key
    /// larger by 8 bytes, and halve the number of entries.
    client: [u8; 16],
    /// The kind of client, and the prefix length of an address.
    kind: (u8, u8),
}

/// Creates keys and hashes them.
#[derive(Debug)]
pub(super) struct Keys {
    /// For values that clients choose. The two random hashes together have 128 bits, so clients cannot produce
    /// collisions.
    hashers: [RandomState; 2],
    /// Hashes keys for the tables. A fast hash with a random seed is sufficient, since keys are compared and tables
    /// are small.
    finder: DefaultHashBuilder,
}

impl Default for Keys {
    fn default() -> Self {
        Self { hashers: [RandomState::new(), RandomState::new()], finder: DefaultHashBuilder::default() }
    }
}

impl Keys {
    /// Returns the key of a charge's bucket.
    pub(super) fn key_of(&self, charge: &Charge) -> Key {
        let (kind, client) = match &charge.client {
            None => ((0, 0), 0),
            Some(ClientId::Address(IpNet::V4(network))) => ((1, network.prefix_len()), network.addr().to_bits().into()),
            Some(ClientId::Address(IpNet::V6(network))) => ((2, network.prefix_len()), network.addr().to_bits()),
            Some(ClientId::Value(value)) => ((3, 0), self.hash_value(value)),
            Some(ClientId::Hash(hash)) => ((5, 0), *hash),
            Some(ClientId::Instance(id)) => ((4, 0), self.hash_value(id.as_bytes())),
        };
        Key { limiter: charge.limiter.rate_id(), client: client.to_ne_bytes(), kind }
    }

    /// Returns a keyed hash of a value that a client chooses.
    fn hash_value(&self, bytes: &[u8]) -> u128 {
        let [high, low] = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.build_hasher();
            hasher.write(bytes);
            u128::from(hasher.finish())
        });
        high << 64 | low
    }

    pub(super) fn hash_of(&self, key: &Key) -> u64 {
        let mut finder = self.finder.build_hasher();
        finder.write_u128(u128::from_ne_bytes(key.client));
        let (number, rate, _) = key.limiter;
        finder.write_u64(number ^ u64::from(rate) << 32);
        finder.write_u16(u16::from_le_bytes(key.kind.into()));
        finder.finish()
    }
}
