//! Decisions that are made once for an id, each with its receipt in one call (`lua/receipts.lua`). These calls are not batched.
//!
//! Without a cluster, all receipts have one hash tag. In a cluster, a receipt is in the hash slot of the buckets. So the gateway first binds the id
//! to their hash tag, in another call: then a request to give the permits back finds the receipt by its id alone.

use std::pin::pin;
use std::sync::atomic::Ordering;

use deadpool_redis::redis::{Cmd, Value, cmd};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Redis;
use super::dispatch::DispatcherContext;
use super::hash_slots::hash_slot_of_key;
use super::node::NodeConnection;
use super::routing::Call;
use super::script::batch::{Batch, PendingDecision};
use super::script::keys::{bound_tag_key, bucket_tag, receipt_key};
use super::script::receipt::{OnceCall, OnceReply, Receipt};
use super::script::store_error;
use crate::StoreError;
use crate::negative_cache::{NegativeCache, Remote as _};
use crate::receipts::{OnceId, RECEIPT_TTL_MILLIS, ReturnedOnce, TakenOnce};
use tidegate_limit::clock::poll_time;
use tidegate_rules::charge::Charge;
use tidegate_rules::settings::store::KeySecret;

/// The most calls for one decision: the script may need other boundaries, and may clean up a bucket in several calls.
const MAX_CALLS: usize = 64;

/// The most attempts to return a receipt that changes in the meantime.
const MAX_RETURNS: usize = 4;

/// How long an id stays bound to its hash tag, in milliseconds: longer than its receipt is kept.
const BOUND_TTL_MILLIS: u64 = RECEIPT_TTL_MILLIS + 60_000;

impl NegativeCache<Redis> {
    /// See [`Store::take_once`](crate::Store::take_once).
    pub async fn take_once(&self, charges: &[Charge], numbers: &[u8], id: &OnceId) -> Result<TakenOnce, StoreError> {
        let (mut other, deadline) = (None, self.deadline());
        let ask = async {
            match self.store().take_once(charges, numbers, id, deadline).await? {
                TakenOnce::Decided(outcome) => Ok(outcome),
                known => {
                    other = Some(known);
                    Err(StoreError::UnexpectedReply) // nothing for the cache
                }
            }
        };
        let decided = self.take_and_cache(charges, pin!(ask)).await;
        other.map_or_else(|| decided.map(TakenOnce::Decided), Ok)
    }

    /// See [`Store::return_once`](crate::Store::return_once). The receipt does not contain the clients of its buckets, so all
    /// cached refusals are forgotten.
    pub async fn return_once(&self, id: &[u8]) -> Result<ReturnedOnce, StoreError> {
        let returned = self.store().return_once(id).await;
        if returned != Ok(ReturnedOnce::Unknown) && returned != Ok(ReturnedOnce::Before) {
            self.forget_all();
        }
        returned
    }
}

impl Redis {
    /// See [`Store::can_take_once`](crate::Store::can_take_once).
    pub fn can_take_once(&self, charges: &[Charge]) -> bool {
        let mut hash_slots = charges.iter().map(|charge| self.hash_slot(charge));
        let first = hash_slots.next().flatten();
        hash_slots.all(|hash_slot| hash_slot == first)
            && charges.iter().all(|charge| charge.limiter.shards().is_empty())
    }

    /// Decides, unless there is a receipt.
    async fn take_once(
        &self,
        charges: &[Charge],
        numbers: &[u8],
        id: &OnceId,
        deadline: Instant,
    ) -> Result<TakenOnce, StoreError> {
        let tag = self.receipt_tag(charges);
        if self.bind(&id.id, Some(&tag), deadline).await?.is_some_and(|bound| bound != tag) {
            return Ok(TakenOnce::OtherRequest);
        }
        let since = poll_time();
        let call = TakeOnce { charges, numbers, id, tag: &tag, deadline, context: &self.context };
        let taken = self.call_owner(hash_slot_of_key(&tag), deadline, &call).await;
        match taken {
            Ok(TakenOnce::Decided(outcome)) => {
                let mut decided = Ok(outcome);
                self.record_decision(charges, since, &mut decided);
                decided.map(TakenOnce::Decided)
            }
            Ok(known) => Ok(known),
            Err(error) => {
                let mut failed = Err(error);
                self.record_decision(charges, since, &mut failed);
                failed.map(TakenOnce::Decided)
            }
        }
    }

    /// See [`Store::find_receipt`](crate::Store::find_receipt).
    pub async fn find_receipt(&self, id: &OnceId) -> Result<Option<TakenOnce>, StoreError> {
        let Some((_, bytes)) = self.read_receipt(&id.id, self.deadline()).await? else { return Ok(None) };
        let receipt = Receipt::parse(&bytes).ok_or(StoreError::UnexpectedReply)?;
        let secret = self.secret.get().ok_or(StoreError::Unreachable)?;
        Ok(Some(receipt.repeat(secret.hash(&id.hashed_request()))))
    }

    /// Gives back the permits of a receipt, unless that was done before.
    async fn return_once(&self, id: &[u8]) -> Result<ReturnedOnce, StoreError> {
        let deadline = self.deadline();
        for _ in 0..MAX_RETURNS {
            let Some((tag, bytes)) = self.read_receipt(id, deadline).await? else { return Ok(ReturnedOnce::Unknown) };
            let receipt = Receipt::parse(&bytes).ok_or(StoreError::UnexpectedReply)?;
            if receipt.is_returned() {
                return Ok(ReturnedOnce::Before);
            }
            let call = ReturnOnce { id, tag: &tag, receipt, bytes: &bytes, context: &self.context };
            if self.call_owner(hash_slot_of_key(&tag), deadline, &call).await? {
                return Ok(ReturnedOnce::Now);
            }
        }
        Err(StoreError::Timeout)
    }

    /// Returns the receipt of an id, with its hash tag.
    async fn read_receipt(&self, id: &[u8], deadline: Instant) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        let tag = match self.bind(id, None, deadline).await? {
            None => self.common_tag(),
            Some(tag) if tag.is_empty() => return Ok(None),
            Some(tag) => tag,
        };
        let call = ReadReceipt { id, tag: &tag };
        Ok(self.call_owner(hash_slot_of_key(&tag), deadline, &call).await?.map(|bytes| (tag, bytes)))
    }

    /// Binds an id to the hash tag of its receipt in a cluster, or only reads the hash tag. Returns the hash tag that the id is bound to,
    /// or an empty text. Returns `None` without a cluster.
    async fn bind(&self, id: &[u8], tag: Option<&str>, deadline: Instant) -> Result<Option<String>, StoreError> {
        if !self.topology.is_cluster() {
            return Ok(None);
        }
        let common_tag = self.common_tag();
        let call = BindId { id, common_tag: &common_tag, tag: tag.unwrap_or_default() };
        self.call_owner(hash_slot_of_key(&common_tag), deadline, &call).await.map(Some)
    }

    /// Returns the hash tag of the receipt of these charges.
    fn receipt_tag(&self, charges: &[Charge]) -> String {
        match charges.first() {
            Some(first) if self.topology.is_cluster() => bucket_tag(&first.limiter, first.client.as_ref()),
            _ => self.common_tag(),
        }
    }

    /// Returns the hash tag of data that does not depend on buckets. No route has this name.
    fn common_tag(&self) -> String {
        self.names.tag("@receipts")
    }
}

/// Returns the keyed hash of an id.
fn hash(id: &[u8], secret: &KeySecret) -> u128 {
    secret.hash(&OnceId::hashed_id(id))
}

/// A call that decides a request with an id.
struct TakeOnce<'c> {
    charges: &'c [Charge],
    numbers: &'c [u8],
    id: &'c OnceId,
    tag: &'c str,
    deadline: Instant,
    context: &'c DispatcherContext,
}

impl Call for TakeOnce<'_> {
    type Reply = TakenOnce;

    async fn run(&self, connection: &mut NodeConnection) -> Result<TakenOnce, StoreError> {
        let Self { charges, numbers, id, tag, deadline, context } = *self;
        let secret = connection.secret()?;
        // Nothing waits for this sender: the reply is returned.
        let (decided, _decision) = oneshot::channel();
        let batch = Batch::single(PendingDecision::new(charges, None, deadline, decided));
        let (request, key) = (secret.hash(&id.hashed_request()), receipt_key(tag, hash(&id.id, &secret)));
        let call = OnceCall { batch: &batch, numbers, request, key };
        let now = context.manual_now();
        let mut near = now.unwrap_or_else(|| context.clock_offset.redis_now());
        let now = now.map(|now| now.as_millis().to_string()).unwrap_or_default();
        for _ in 0..MAX_CALLS {
            context.metrics.store_called(1);
            connection.metrics.called();
            let random = context.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let reply = connection.script.run(|command| call.write(command, &secret, near, &now, random)).await?;
            match call.read(&reply)? {
                OnceReply::Taken(taken) => {
                    connection.metrics.decided(1);
                    return Ok(taken);
                }
                OnceReply::BoundariesNeeded(store_time) => {
                    context.clock_offset.record(store_time);
                    near = store_time;
                }
                OnceReply::Again => {}
            }
        }
        Err(StoreError::UnexpectedReply)
    }
}

/// A call that reads a receipt.
struct ReadReceipt<'c> {
    id: &'c [u8],
    tag: &'c str,
}

impl Call for ReadReceipt<'_> {
    type Reply = Option<Vec<u8>>;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Option<Vec<u8>>, StoreError> {
        let mut command = cmd("GET");
        command.arg(receipt_key(self.tag, hash(self.id, &connection.secret()?)));
        match connection.script.send(command).await.map_err(|error| store_error(&error))? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Err(StoreError::UnexpectedReply),
        }
    }
}

/// A call that gives back the permits of a receipt, if it has not changed.
struct ReturnOnce<'c> {
    id: &'c [u8],
    tag: &'c str,
    receipt: Receipt<'c>,
    bytes: &'c [u8],
    context: &'c DispatcherContext,
}

impl Call for ReturnOnce<'_> {
    type Reply = bool;

    async fn run(&self, connection: &mut NodeConnection) -> Result<bool, StoreError> {
        let key = receipt_key(self.tag, hash(self.id, &connection.secret()?));
        let now = self.context.manual_now().map(|now| now.as_millis().to_string()).unwrap_or_default();
        let add = |call: &mut Cmd| {
            call.arg(self.receipt.keys.len() + 1).arg(&self.receipt.keys).arg(&key);
            call.arg("return_once").arg(self.receipt.limiters).arg(self.receipt.grants()).arg(&now).arg(self.bytes);
        };
        match connection.script.run(add).await? {
            Value::Int(returned) => Ok(returned == 1),
            _ => Err(StoreError::UnexpectedReply),
        }
    }
}

/// A call that binds an id to a hash tag, or only reads it.
struct BindId<'c> {
    id: &'c [u8],
    /// The hash tag of the key.
    common_tag: &'c str,
    /// The hash tag of the receipt. Empty to read it.
    tag: &'c str,
}

impl Call for BindId<'_> {
    type Reply = String;

    async fn run(&self, connection: &mut NodeConnection) -> Result<String, StoreError> {
        let key = bound_tag_key(self.common_tag, hash(self.id, &connection.secret()?));
        let add = |call: &mut Cmd| _ = call.arg(1).arg(&key).arg("bind_id").arg(self.tag).arg(BOUND_TTL_MILLIS);
        match connection.script.run(add).await? {
            Value::BulkString(tag) => String::from_utf8(tag).map_err(|_| StoreError::UnexpectedReply),
            _ => Err(StoreError::UnexpectedReply),
        }
    }
}
