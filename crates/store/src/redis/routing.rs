//! Routes calls to the node of a bucket and follows redirections, within one deadline. A redirected call has not run.
//!
//! While a hash slot migrates, both nodes reject a call for keys on both. The caller then decides bucket by bucket.

use std::future::Future;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Redis;
use super::backoff::jittered;
use super::dispatch::{DispatcherContext, decide_one};
use super::hash_slots::{hash_slot_of, hash_slot_of_key};
use super::node::{Node, NodeConnection};
use super::script::slots::LeaseRequest;
use crate::{Redirection, StoreError};
use tidegate_rules::charge::{Charge, Outcome};

/// The longest pause before a call for a migrating hash slot is repeated.
const MAX_PAUSE: Duration = Duration::from_millis(4);
/// The number of redirections that are followed without a pause.
const MAX_HOPS: u32 = 3;

/// A call to the node of a hash slot.
pub(super) trait Call: Sync {
    /// The reply to the call.
    type Reply: Send;

    /// Sends the call on this connection. Called again on another connection if nothing ran.
    fn run(&self, connection: &mut NodeConnection) -> impl Future<Output = Result<Self::Reply, StoreError>> + Send;
}

/// A decision about one charge or lease, in its own call.
struct DecideOne<'c> {
    charges: &'c [Charge],
    lease: Option<&'c LeaseRequest>,
    deadline: Instant,
    context: &'c DispatcherContext,
}

impl Redis {
    /// Decides charges whose buckets are in one hash slot.
    pub(super) async fn decide_in_slot(
        &self,
        hash_slot: u16,
        charges: &[Charge],
        lease: Option<&LeaseRequest>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let (mut node, mut hop) = (self.topology.node_of(hash_slot, deadline).await?, 0);
        loop {
            let decided = self.dispatchers.dispatcher_for(&node).take(charges, lease, deadline).await;
            match &decided {
                Err(StoreError::Redirected(Redirection { hash_slot, address, is_ask: false }))
                    if Instant::now() < deadline =>
                {
                    let Some(other) = self.topology.redirect(*hash_slot, address, false, &node) else { return decided };
                    (node, hop) = (other, hop + 1);
                    pause_if_looping(hop).await;
                }
                _ => return decided,
            }
        }
    }

    /// Decides one charge on the node of its bucket.
    pub(super) async fn decide_one(&self, charge: &Charge, deadline: Instant) -> Result<Outcome, StoreError> {
        let (hash_slot, charges) = (hash_slot_of(&charge.limiter, charge.client.as_ref()), from_ref(charge));
        self.call_owner(hash_slot, deadline, &DecideOne { charges, lease: None, deadline, context: &self.context })
            .await
    }

    /// Takes a lease on the node of its sets, which may be migrating.
    pub(super) async fn take_one_lease(&self, lease: &LeaseRequest, deadline: Instant) -> Result<Outcome, StoreError> {
        let call = DecideOne { charges: &[], lease: Some(lease), deadline, context: &self.context };
        self.call_owner(hash_slot_of_key(lease.slots()), deadline, &call).await
    }

    /// Calls the node of a hash slot, and follows redirections.
    pub(super) async fn call_owner<C: Call>(
        &self,
        hash_slot: u16,
        deadline: Instant,
        call: &C,
    ) -> Result<C::Reply, StoreError> {
        let (mut node, mut is_ask, mut hop) = (self.topology.node_of(hash_slot, deadline).await?, false, 0);
        loop {
            let ask = async |connection: &mut NodeConnection| match is_ask {
                true => call.run(&mut connection.asking()).await,
                false => call.run(connection).await,
            };
            let reply = self.dispatchers.dispatcher_for(&node).connection().call(deadline, ask).await;
            hop += 1;
            match reply {
                Err(error) if Instant::now() < deadline => {
                    let Some((other, other_is_ask)) = self.next_node(hash_slot, &node, &error, hop, deadline).await
                    else {
                        return Err(error);
                    };
                    (node, is_ask) = (other, other_is_ask);
                }
                reply => return reply,
            }
        }
    }

    /// Returns the node to call after an error that means that nothing ran, and whether the redirection is ASK.
    async fn next_node(
        &self,
        hash_slot: u16,
        node: &Arc<Node>,
        error: &StoreError,
        hop: u32,
        deadline: Instant,
    ) -> Option<(Arc<Node>, bool)> {
        match error {
            StoreError::Redirected(Redirection { hash_slot, address, is_ask }) => {
                let other = self.topology.redirect(*hash_slot, address, *is_ask, node)?;
                pause_if_looping(hop).await;
                Some((other, *is_ask))
            }
            error if error.is_migrating() => {
                sleep(jittered(MAX_PAUSE)).await;
                Some((self.topology.node_of(hash_slot, deadline).await.ok()?, false))
            }
            _ => None,
        }
    }
}

impl Call for DecideOne<'_> {
    type Reply = Outcome;

    async fn run(&self, connection: &mut NodeConnection) -> Result<Outcome, StoreError> {
        decide_one(self.charges, self.lease, self.deadline, connection, self.context).await
    }
}

/// Pauses if two nodes may be redirecting to each other.
async fn pause_if_looping(hop: u32) {
    if hop >= MAX_HOPS {
        Box::pin(sleep(jittered(MAX_PAUSE))).await;
    }
}
