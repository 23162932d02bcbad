//! Where a charge's bucket is: the shard and the slot in its table, and how it is known from others there.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use ipnet::IpNet;

use super::SHARDS;
use crate::limit::{Charge, ClientId};
use crate::store::settings::KeySecret;

/// A charge, and the place of its bucket.
#[derive(Debug)]
pub(super) struct Place<'c> {
    pub(super) charge: &'c Charge,
    pub(super) owner: Owner,
    /// By a fast function with a random seed: what clients may choose freely has been hashed with a secret before.
    pub(super) hash: u64,
    /// The bucket's slot in the table of its shard, if it has been found and stays there until all is decided.
    pub(super) slot: Option<usize>,
}

/// Whose bucket it is, of a limiter's: in as few bytes as two buckets need to be told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Everybody,
    Address(IpNet),
    /// A keyed hash of what the client sent, however long that is.
    Value([u8; 16]),
    Instance(Arc<str>),
}

impl<'c> Place<'c> {
    pub(super) fn of(charge: &'c Charge, hasher: &DefaultHashBuilder, secret: &KeySecret) -> Self {
        let owner = Owner::new(charge.client.as_ref(), secret);
        let mut hasher = hasher.build_hasher();
        hasher.write(charge.limiter.name.as_bytes());
        owner.write(&mut hasher);
        Self { charge, owner, hash: hasher.finish(), slot: None }
    }

    /// By bits that the table of a shard does not tell slots apart by.
    pub(super) fn shard(&self) -> usize {
        usize::try_from(self.hash >> 32).unwrap_or_default() % SHARDS
    }
}

impl Owner {
    fn new(client: Option<&ClientId>, secret: &KeySecret) -> Self {
        match client {
            None => Self::Everybody,
            Some(ClientId::Address(network)) => Self::Address(*network),
            Some(ClientId::Value(value)) => Self::Value(secret.hash(value).to_le_bytes()),
            Some(ClientId::Instance(id)) => Self::Instance(Arc::clone(id)),
        }
    }

    /// In one piece each, which is faster than field by field.
    fn write(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Everybody => {}
            Self::Address(IpNet::V4(network)) => hasher.write_u32(network.addr().to_bits()),
            Self::Address(IpNet::V6(network)) => hasher.write_u128(network.addr().to_bits()),
            Self::Value(value) => hasher.write(value),
            Self::Instance(id) => hasher.write(id.as_bytes()),
        }
    }
}
