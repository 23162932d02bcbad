//! The way to the node that has a bucket. Where a node names another one nothing ran, so that one is asked; all that within
//! one deadline.
//!
//! While a slot moves from one node to another, a call about keys on both sides is refused by both. That is for the caller to
//! know, who then asks bucket by bucket.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Redis;
use super::backoff::jittered;
use super::dispatch::{DispatcherContext, decide_one};
use super::hash_slots::hash_slot_of;
use super::node::{Node, NodeConnection};
use crate::clock::Timestamp;
use crate::limit::{Charge, Outcome};
use crate::store::StoreError;

/// The longest pause before a slot is asked for again that is on its way.
const MAX_PAUSE: Duration = Duration::from_millis(4);
/// So many nodes in a row may name another one without a pause.
const MAX_HOPS: u32 = 3;

/// What is asked of the node that has a slot.
pub(super) trait Call: Sync {
    /// What it answers.
    type Reply: Send;

    /// Asks on this connection; again on another one after an error that says that nothing ran.
    fn run(&self, connection: &mut NodeConnection) -> impl Future<Output = Result<Self::Reply, StoreError>> + Send;
}

/// Has one charge decided.
struct DecideOne<'c> {
    charge: &'c Charge,
    now: Option<Timestamp>,
    deadline: Instant,
    context: &'c DispatcherContext,
}

impl Redis {
    /// Has charges decided whose buckets are in one slot.
    pub(super) async fn decide_in_slot(
        &self,
        slot: u16,
        charges: &[Charge],
        now: Option<Timestamp>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let (mut node, mut hop) = (self.topology.node_of(slot, deadline).await?, 0);
        loop {
            let decided = self.dispatchers.dispatcher_for(&node).take(charges, now, deadline).await;
            match &decided {
                Err(StoreError::Redirected { slot, address, is_ask: false }) if Instant::now() < deadline => {
                    let Some(other) = self.topology.redirect(*slot, address, false, &node) else { return decided };
                    (node, hop) = (other, hop + 1);
                    pause_if_looping(hop).await;
                }
                _ => return decided,
            }
        }
    }

    /// Has one charge decided by whoever has its bucket.
    pub(super) async fn decide_one(
        &self,
        charge: &Charge,
        now: Option<Timestamp>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let slot = hash_slot_of(&charge.limiter, charge.client.as_ref());
        self.call_owner(slot, deadline, &DecideOne { charge, now, deadline, context: &self.context }).await
    }

    /// Asks the node that has a slot, and whoever is named next_node.
    pub(super) async fn call_owner<C: Call>(
        &self,
        slot: u16,
        deadline: Instant,
        call: &C,
    ) -> Result<C::Reply, StoreError> {
        let (mut node, mut is_ask, mut hop) = (self.topology.node_of(slot, deadline).await?, false, 0);
        loop {
            let ask = async |connection: &mut NodeConnection| match is_ask {
                true => call.run(&mut connection.asking()).await,
                false => call.run(connection).await,
            };
            let reply = self.dispatchers.dispatcher_for(&node).connection().call(deadline, ask).await;
            hop += 1;
            match reply {
                Err(error) if Instant::now() < deadline => {
                    let Some((other, other_is_ask)) = self.next_node(slot, &node, &error, hop, deadline).await else {
                        return Err(error);
                    };
                    (node, is_ask) = (other, other_is_ask);
                }
                reply => return reply,
            }
        }
    }

    /// Who is asked next_node after an error that says that nothing ran, and whether only this is_ask.
    async fn next_node(
        &self,
        slot: u16,
        node: &Arc<Node>,
        error: &StoreError,
        hop: u32,
        deadline: Instant,
    ) -> Option<(Arc<Node>, bool)> {
        match error {
            StoreError::Redirected { slot, address, is_ask } => {
                let other = self.topology.redirect(*slot, address, *is_ask, node)?;
                pause_if_looping(hop).await;
                Some((other, *is_ask))
            }
            error if error.is_migrating() => {
                sleep(jittered(MAX_PAUSE)).await;
                Some((self.topology.node_of(slot, deadline).await.ok()?, false))
            }
            _ => None,
        }
    }
}

impl Call for DecideOne<'_> {
    type Reply = Outcome;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Outcome, StoreError> {
        decide_one(std::slice::from_ref(self.charge), self.now, self.deadline, connection, self.context).await
    }
}

/// Nodes that name each other are not asked without an end.
async fn pause_if_looping(hop: u32) {
    if hop >= MAX_HOPS {
        sleep(jittered(MAX_PAUSE)).await;
    }
}
