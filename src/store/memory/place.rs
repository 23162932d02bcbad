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
    /// A keyed hash of what the client sent, where that is what it is known by.
    value: [u8; 16],
    /// By a fast function with a random seed: what clients may choose freely has been hashed with a secret before.
    pub(super) hash: u64,
    /// The bucket's slot in the table of its shard, if it has been found and stays there until all is decided.
    pub(super) slot: Option<usize>,
}

/// Whose bucket it is, of a limiter's: in as few bytes as two buckets need to be told apart.
#[derive(Debug)]
pub(super) enum Owner {
    Everybody,
    Address(IpNet),
    /// A keyed hash of what the client sent, however long that is.
    Value([u8; 16]),
    Instance(Arc<str>),
}

impl<'c> Place<'c> {
    pub(super) fn of(charge: &'c Charge, hasher: &DefaultHashBuilder, secret: &KeySecret) -> Self {
        let mut place = Self { charge, value: [0; 16], hash: 0, slot: None };
        if let Some(ClientId::Value(value)) = &charge.client {
            place.value = secret.hash(value).to_le_bytes();
        }
        let mut hasher = hasher.build_hasher();
        hasher.write(charge.limiter.name.as_bytes());
        place.write_client(&mut hasher);
        place.hash = hasher.finish();
        place
    }

    /// By bits that the table of a shard does not tell slots apart by.
    pub(super) fn shard(&self) -> usize {
        usize::try_from(self.hash >> 32).unwrap_or_default() % SHARDS
    }

    /// Whose bucket is there.
    pub(super) fn owner(&self) -> Owner {
        match &self.charge.client {
            None => Owner::Everybody,
            Some(ClientId::Address(network)) => Owner::Address(*network),
            Some(ClientId::Value(_)) => Owner::Value(self.value),
            Some(ClientId::Instance(id)) => Owner::Instance(Arc::clone(id)),
        }
    }

    /// Is it [`owner`](Self::owner)? Told without making it.
    pub(super) fn is_of(&self, owner: &Owner) -> bool {
        match (&self.charge.client, owner) {
            (None, Owner::Everybody) => true,
            (Some(ClientId::Address(asked)), Owner::Address(own)) => asked == own,
            (Some(ClientId::Value(_)), Owner::Value(own)) => self.value == *own,
            (Some(ClientId::Instance(asked)), Owner::Instance(own)) => asked == own,
            _ => false,
        }
    }

    /// In one piece each, which is faster than field by field.
    fn write_client(&self, hasher: &mut impl Hasher) {
        match &self.charge.client {
            None => {}
            Some(ClientId::Address(IpNet::V4(network))) => hasher.write_u32(network.addr().to_bits()),
            Some(ClientId::Address(IpNet::V6(network))) => hasher.write_u128(network.addr().to_bits()),
            Some(ClientId::Value(_)) => hasher.write(&self.value),
            Some(ClientId::Instance(id)) => hasher.write(id.as_bytes()),
        }
    }
}
