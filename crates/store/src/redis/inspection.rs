//! Reads buckets for operators: the operation `inspect` of the script, which writes nothing.

use deadpool_redis::redis::{Cmd, from_redis_value};
use futures_util::future::try_join_all;

use super::Redis;
use super::dispatch::DispatcherContext;
use super::hash_slots::hash_slot_of;
use super::node::NodeConnection;
use super::routing::Call;
use super::script::buckets::Buckets;
use crate::Inspection;
use crate::StoreError;
use crate::negative_cache::Remote as _;
use tidegate_limit::Wait;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, Decision};

/// A call that inspects the bucket of a charge.
struct Inspect<'c> {
    charge: &'c Charge,
    context: &'c DispatcherContext,
}

impl Redis {
    /// Returns the state of the buckets of a charge. The shards of a limit are inspected one by one.
    pub async fn inspect_all(&self, charge: &Charge) -> Result<Inspection, StoreError> {
        let buckets = charge.on_all_buckets();
        let read = try_join_all(buckets.iter().map(|bucket| self.inspect(bucket))).await?;
        Inspection::combine(charge, read.into_iter()).ok_or(StoreError::UnexpectedReply)
    }

    /// Returns the state of the bucket of a charge. The charge is on one bucket.
    async fn inspect(&self, charge: &Charge) -> Result<Inspection, StoreError> {
        let hash_slot = hash_slot_of(&charge.limiter, charge.client.as_ref());
        self.call_owner(hash_slot, self.deadline(), &Inspect { charge, context: &self.context }).await
    }
}

impl Call for Inspect<'_> {
    type Reply = Inspection;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Inspection, StoreError> {
        let mut buckets = Buckets::default();
        buckets.index(self.charge);
        let (secret, now) = (connection.secret()?, self.context.manual_now());
        let mut near = now.unwrap_or_else(|| self.context.estimated_now());
        for _ in 0..2 {
            let add = |call: &mut Cmd| {
                call.arg(buckets.number_of_keys());
                buckets.each_key(&secret, |key| _ = call.arg(key));
                call.arg("inspect").arg(buckets.limiter_args(near)).arg(self.charge.permits);
                call.arg(now.map(|now| now.as_millis().to_string()));
            };
            let reply = from_redis_value(connection.script.run(add).await?).map_err(|_| StoreError::UnexpectedReply)?;
            let reply: Vec<i64> = reply;
            let millis = |number: i64| u64::try_from(number).unwrap_or_default();
            match reply[..] {
                // Nothing was read, since a calendar limit needs the boundaries around this time.
                [store_time] => near = Timestamp::from_millis(millis(store_time)),
                [now, remaining, reset, used, wait, delay, time_to_live, reserved] => {
                    let now = Timestamp::from_millis(millis(now));
                    let wait = match wait {
                        0 => Wait::Now,
                        wait => u64::try_from(wait).map_or(Wait::Never, Wait::Millis),
                    };
                    let remaining = u32::try_from(remaining).map_err(|_| StoreError::UnexpectedReply)?;
                    let mut decision =
                        Decision { delay: millis(delay), ..Decision::new(remaining, wait, millis(reset)) };
                    decision.align_waits(&self.charge.limiter.quota, now);
                    let expires_at = u64::try_from(time_to_live).ok().map(|millis| now.plus_millis(millis));
                    let reserved = u64::try_from(reserved).ok();
                    return Ok(Inspection { reserved, ..Inspection::new(now, &decision, millis(used), expires_at) });
                }
                _ => break,
            }
        }
        Err(StoreError::UnexpectedReply)
    }
}
