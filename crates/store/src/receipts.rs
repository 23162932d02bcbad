//! Decisions that are made once for an id. A granted decision leaves a receipt, in the call that makes the charges. The same
//! request with the same id gets the decision of the receipt, and its permits can be given back once.

use crate::{Backend, Store, StoreError, backend};
use tidegate_rules::charge::{Charge, Decision, Outcome};

/// How long a receipt is kept, in milliseconds.
pub const RECEIPT_TTL_MILLIS: u64 = 10 * 60 * 1_000;

/// The id of a request, and its content. A store keeps only keyed hashes of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceId {
    /// The id.
    pub id: Box<[u8]>,
    /// An unambiguous encoding of the request.
    pub request: Box<[u8]>,
}

/// The result of a request with an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenOnce {
    /// The decision. It has left a receipt if it was granted.
    Decided(Outcome),
    /// The request was granted before: its decisions, each with the number that the caller gave its charge.
    Repeated(Vec<(u8, Decision)>),
    /// The id belongs to another request.
    OtherRequest,
    /// The permits were given back.
    Returned,
    /// The store in this process has too many receipts.
    NoCapacity,
}

/// The result of giving back the permits of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnedOnce {
    /// They were given back now.
    Now,
    /// They were given back before.
    Before,
    /// No receipt has this id.
    Unknown,
}

impl OnceId {
    /// Returns the text whose keyed hash names the receipt. No client has this hash: its encoding has no such start.
    pub(crate) fn hashed_id(id: &[u8]) -> Vec<u8> {
        [b"id of a receipt: ", id].concat()
    }

    /// Returns the text whose keyed hash identifies the request.
    pub(crate) fn hashed_request(&self) -> Vec<u8> {
        [b"request of a receipt: ", &*self.request].concat()
    }
}

#[doc(hidden)]
impl Store {
    /// Returns `true` if one call can make these charges and write a receipt. In a cluster, all buckets must be in one hash
    /// slot. Buckets in shards are never.
    pub fn can_take_once(&self, charges: &[Charge]) -> bool {
        backend!(self, |_| true, |redis| redis.store().can_take_once(charges))
    }

    /// Makes all charges and writes a receipt, or does nothing, unless there is a receipt. `numbers` has a number for each
    /// charge, for the caller. [`can_take_once`](Self::can_take_once) is `true` for the charges.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`].
    pub async fn take_once(&self, charges: &[Charge], numbers: &[u8], id: &OnceId) -> Result<TakenOnce, StoreError> {
        backend!(self, |memory| memory.take_once(charges, numbers, id), |redis| {
            redis.take_once(charges, numbers, id).await
        })
    }

    /// Returns the result of an earlier request with this id. Returns `None` if there is no receipt.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`].
    pub async fn find_receipt(&self, id: &OnceId) -> Result<Option<TakenOnce>, StoreError> {
        backend!(self, |memory| Ok(memory.find_receipt(id)), |redis| redis.store().find_receipt(id).await)
    }

    /// Gives back the permits of the receipt with this id, at most once.
    ///
    /// # Errors
    /// The store did not reply; see [`StoreError`]. The permits may have been given back.
    pub async fn return_once(&self, id: &[u8]) -> Result<ReturnedOnce, StoreError> {
        backend!(self, |memory| Ok(memory.return_once(id)), |redis| redis.return_once(id).await)
    }
}
