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
use super::dispatch::{DispatcherContext, decide_one};
use super::node::{Connection, Node};
use super::pauses::jittered;
use super::slots::slot_of;
use crate::clock::Timestamp;
use crate::limit::{Charge, Outcome};
use crate::store::StoreError;

/// The longest pause before a slot is asked for again that is on its way.
const PAUSE: Duration = Duration::from_millis(4);
/// So many nodes in a row may name another one without a pause.
const HOPS: u32 = 3;

/// What is asked of the node that has a slot.
pub(super) trait Call: Sync {
    /// What it answers.
    type Answer: Send;

    /// Asks on this connection; again on another one after an error that says that nothing ran.
    fn run(&self, connection: &mut Connection) -> impl Future<Output = Result<Self::Answer, StoreError>> + Send;
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
            let decided = self.dispatchers.of(&node).take(charges, now, deadline).await;
            match &decided {
                Err(StoreError::Elsewhere { slot, place, once: false }) if Instant::now() < deadline => {
                    let Some(other) = self.topology.elsewhere(*slot, place, false, &node) else { return decided };
                    (node, hop) = (other, hop + 1);
                    rest(hop).await;
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
        let slot = slot_of(&charge.limiter, charge.client.as_ref());
        self.ask_owner(slot, deadline, &DecideOne { charge, now, deadline, context: &self.context }).await
    }

    /// Asks the node that has a slot, and whoever is named instead.
    pub(super) async fn ask_owner<C: Call>(
        &self,
        slot: u16,
        deadline: Instant,
        call: &C,
    ) -> Result<C::Answer, StoreError> {
        let (mut node, mut once, mut hop) = (self.topology.node_of(slot, deadline).await?, false, 0);
        loop {
            let ask = async |connection: &mut Connection| match once {
                true => call.run(&mut connection.asking()).await,
                false => call.run(connection).await,
            };
            let answer = self.dispatchers.of(&node).connection().within(deadline, ask).await;
            hop += 1;
            match answer {
                Err(error) if Instant::now() < deadline => {
                    let Some((other, is_once)) = self.instead(slot, &node, &error, hop, deadline).await else {
                        return Err(error);
                    };
                    (node, once) = (other, is_once);
                }
                answer => return answer,
            }
        }
    }

    /// Who is asked instead after an error that says that nothing ran, and whether only this once.
    async fn instead(
        &self,
        slot: u16,
        node: &Arc<Node>,
        error: &StoreError,
        hop: u32,
        deadline: Instant,
    ) -> Option<(Arc<Node>, bool)> {
        match error {
            StoreError::Elsewhere { slot, place, once } => {
                let other = self.topology.elsewhere(*slot, place, *once, node)?;
                rest(hop).await;
                Some((other, *once))
            }
            error if error.is_migrating() => {
                sleep(jittered(PAUSE)).await;
                Some((self.topology.node_of(slot, deadline).await.ok()?, false))
            }
            _ => None,
        }
    }
}

impl Call for DecideOne<'_> {
    type Answer = Outcome;

    async fn run(&self, connection: &mut Connection) -> Result<Outcome, StoreError> {
        decide_one(std::slice::from_ref(self.charge), self.now, self.deadline, connection, self.context).await
    }
}

/// Nodes that name each other are not asked without an end.
async fn rest(hop: u32) {
    if hop >= HOPS {
        sleep(jittered(PAUSE)).await;
    }
}
