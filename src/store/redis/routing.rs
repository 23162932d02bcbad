//! The way to the node that has a bucket. Where a node names another one nothing ran, so that one is asked; all that within
//! one deadline.
//!
//! While a slot moves from one node to another, some of its keys are here and some are there, and a call about several of them
//! is refused by both. So what a request asks for is then decided bucket by bucket.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use super::Redis;
use super::dispatch::{DispatcherContext, decide_one};
use super::node::{Connection, Node};
use super::pauses::jittered;
use super::slots::slot_of;
use crate::clock::Timestamp;
use crate::limit::{Charge, Granted, Outcome};
use crate::store::StoreError;
use crate::store::in_turn::{Taker, take_in_turn};

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

/// Has a bucket decided.
struct DecideOne<'c> {
    charges: &'c [Charge],
    now: Option<Timestamp>,
    deadline: Instant,
    context: &'c DispatcherContext,
}

/// Has each charge of a request decided by itself.
struct OneByOne<'r> {
    redis: &'r Redis,
    now: Option<Timestamp>,
    deadline: Instant,
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
        let mut node = self.topology.node_of(slot, deadline).await?;
        for hop in 1.. {
            let decided = self.dispatchers.of(&node).take(charges, now, deadline).await;
            match &decided {
                Err(StoreError::Elsewhere { slot, place, once: false }) if Instant::now() < deadline => {
                    let Some(other) = self.topology.elsewhere(*slot, place, false, &node) else { return decided };
                    node = other;
                    rest(hop).await;
                }
                Err(error) if is_on_its_way(error) => break,
                _ => return decided,
            }
        }
        // Boxed, so that all others do without the memory that this needs.
        self.decide_one_by_one(charges, now, deadline).boxed().await
    }

    /// Has each charge decided by itself, and gives back what was granted if one is refused.
    async fn decide_one_by_one(
        &self,
        charges: &[Charge],
        now: Option<Timestamp>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let groups: Vec<_> = (0..charges.len()).map(|position| vec![position]).collect();
        take_in_turn(charges, &groups, &OneByOne { redis: self, now, deadline }).await
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
            error if is_on_its_way(error) => {
                sleep(jittered(PAUSE)).await;
                Some((self.topology.node_of(slot, deadline).await.ok()?, false))
            }
            _ => None,
        }
    }
}

impl Taker for OneByOne<'_> {
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        let Self { redis, now, deadline } = *self;
        let decide = DecideOne { charges, now, deadline, context: &redis.context };
        redis.ask_owner(slot_of_charges(charges), deadline, &decide).await
    }

    async fn give_back(&self, granted: &[Granted]) {
        for one in granted {
            // What is not given back returns by itself.
            _ = self.redis.undo(std::slice::from_ref(one), self.now).await;
        }
    }
}

impl Call for DecideOne<'_> {
    type Answer = Outcome;

    async fn run(&self, connection: &mut Connection) -> Result<Outcome, StoreError> {
        decide_one(self.charges, self.now, self.deadline, connection, self.context).await
    }
}

/// The slot of charges that are in one.
fn slot_of_charges(charges: &[Charge]) -> u16 {
    charges.first().map_or(0, |first| slot_of(&first.limiter, first.client.as_ref()))
}

/// Is the slot on its way from one node to another?
fn is_on_its_way(error: &StoreError) -> bool {
    match error {
        StoreError::Elsewhere { once, .. } => *once,
        StoreError::Answer(word) => word == "TRYAGAIN",
        _ => false,
    }
}

/// Nodes that name each other are not asked without an end.
async fn rest(hop: u32) {
    if hop >= HOPS {
        sleep(jittered(PAUSE)).await;
    }
}
