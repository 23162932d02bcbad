//! Whose bucket it is, among those of a limit: 16 bytes, whatever the client sent.

use ipnet::IpNet;

use crate::limit::ClientId;
use crate::store::settings::KeySecret;

/// A kind in the first byte, and fifteen that tell two clients of the kind apart. All zero, it is everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner([u8; LENGTH]);

const LENGTH: usize = 16;

/// The longest prefix that fits beside its length and the kind.
const LONGEST: u8 = 112;

const V4: u8 = 1;
const V6: u8 = 2;
const LONG_V6: u8 = 3;
const VALUE: u8 = 4;
const INSTANCE: u8 = 5;

impl Owner {
    /// Addresses as they are, as far as they fit; of everything else a hash under a secret, so that nobody can find two
    /// that have the same.
    pub(super) fn of(client: Option<&ClientId>, secret: &KeySecret) -> Self {
        let Some(client) = client else { return Self::default() };
        match client {
            ClientId::Address(IpNet::V4(network)) => {
                let [a, b, c, d] = network.network().octets();
                Self([V4, network.prefix_len(), a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            ClientId::Address(IpNet::V6(network)) => {
                let (address, prefix) = (network.network().octets(), network.prefix_len());
                if prefix > LONGEST {
                    let mut long = [prefix; LENGTH + 1];
                    long[..LENGTH].copy_from_slice(&address);
                    return Self::hashed(LONG_V6, &long, secret);
                }
                let mut bytes = [V6; LENGTH];
                bytes[1] = prefix;
                bytes[2..].copy_from_slice(&address[..LENGTH - 2]);
                Self(bytes)
            }
            ClientId::Value(value) => Self::hashed(VALUE, value, secret),
            ClientId::Instance(id) => Self::hashed(INSTANCE, id.as_bytes(), secret),
        }
    }

    /// Is the bucket everybody's? The limit is an OVERALL one then.
    pub(super) fn is_everybody(self) -> bool {
        self == Self::default()
    }

    /// The whole, for the hash of a table.
    pub(super) fn bits(self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    fn hashed(kind: u8, bytes: &[u8], secret: &KeySecret) -> Self {
        let mut hash = secret.hash(bytes).to_le_bytes();
        hash[0] = kind;
        Self(hash)
    }
}
