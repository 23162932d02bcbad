//! The owner of a bucket: a client in 16 bytes, for identities of any length.

use ipnet::IpNet;

use tidegate_rules::charge::ClientId;
use tidegate_rules::settings::store::KeySecret;

/// An owner. The first byte is the kind, the others identify the client. All bytes are zero for an OVERALL limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Owner([u8; LENGTH]);

const LENGTH: usize = 16;

/// The longest IPv6 prefix that fits next to the kind and the prefix length.
const MAX_INLINE_PREFIX: u8 = 112;

const V4: u8 = 1;
const V6: u8 = 2;
const LONG_V6: u8 = 3;
const VALUE: u8 = 4;
const INSTANCE: u8 = 5;

impl Owner {
    /// A kind that no client has, for lookups of a PER_CLIENT limit without a client.
    pub(super) const ANY: Self = Self([u8::MAX; LENGTH]);

    /// Creates the owner of a client. An address is stored as it is, if it fits. Other identities are hashed with a
    /// secret, so that clients cannot produce collisions.
    pub(super) fn new(client: Option<&ClientId>, secret: &KeySecret) -> Self {
        let Some(client) = client else { return Self::default() };
        match client {
            ClientId::Address(IpNet::V4(network)) => {
                let [a, b, c, d] = network.network().octets();
                Self([V4, network.prefix_len(), a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            ClientId::Address(IpNet::V6(network)) => {
                let (address, prefix) = (network.network().octets(), network.prefix_len());
                if prefix > MAX_INLINE_PREFIX {
                    let mut long = [prefix; LENGTH + 1];
                    long[..LENGTH].copy_from_slice(&address);
                    return Self::hashed(LONG_V6, &long, secret);
                }
                let mut bytes = [V6; LENGTH];
                bytes[1] = prefix;
                bytes[2..].copy_from_slice(&address[..LENGTH - 2]);
                Self(bytes)
            }
            ClientId::Value(value) => Self::of_hash(VALUE, secret.hash(value)),
            ClientId::Hash(hash) => Self::of_hash(VALUE, *hash),
            ClientId::Instance(id) => Self::hashed(INSTANCE, id.as_bytes(), secret),
        }
    }

    /// Returns `true` for the bucket of an OVERALL limit.
    pub(super) fn is_overall(self) -> bool {
        self == Self::default()
    }

    /// Creates an owner from the bytes of another process.
    pub(super) fn of_bytes(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// Returns all bytes, for another process with the same secret.
    pub(super) fn bytes(self) -> [u8; LENGTH] {
        self.0
    }

    /// Returns all bytes as a number, for hashing.
    pub(super) fn bits(self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    fn hashed(kind: u8, bytes: &[u8], secret: &KeySecret) -> Self {
        Self::of_hash(kind, secret.hash(bytes))
    }

    fn of_hash(kind: u8, hash: u128) -> Self {
        let mut hash = hash.to_le_bytes();
        hash[0] = kind;
        Self(hash)
    }
}
