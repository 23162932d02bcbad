//! Finds the node of a bucket: the only Redis, or the node of a cluster that has the hash slot.

mod cluster;
mod slot_map;

use std::sync::Arc;

use deadpool_redis::redis::RedisResult;
use tokio::time::Instant;

use self::cluster::Cluster;
pub(super) use self::slot_map::SlotMap;
use super::node::{Membership, Node};
use super::script::keys::SharedSecret;
use crate::StoreError;
use tidegate_rules::settings::store::RedisSettings;

/// The nodes of the store, for all connections of a gateway.
#[derive(Debug)]
pub(super) enum Topology {
    Single(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    /// Creates the topology of a store, without connecting.
    ///
    /// # Errors
    /// A URL is not a valid Redis URL.
    pub(super) fn new(
        settings: &RedisSettings,
        secret: Arc<SharedSecret>,
        membership: Membership,
    ) -> RedisResult<Self> {
        let membership = Arc::new(membership);
        Ok(match settings.cluster.is_empty() {
            true => Self::Single(Arc::new(Node::new(settings, secret, membership)?)),
            false => Self::Cluster(Arc::new(Cluster::new(settings, secret, membership)?)),
        })
    }

    /// Returns the node that has a hash slot.
    ///
    /// # Errors
    /// No node has it, or the slot map is unknown.
    pub(super) async fn node_of(&self, hash_slot: u16, deadline: Instant) -> Result<Arc<Node>, StoreError> {
        match self {
            Self::Single(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => {
                let map = cluster.map(deadline).await?;
                let node = map.node_of(hash_slot).cloned();
                node.ok_or_else(|| {
                    cluster.request_refresh();
                    StoreError::Unreachable
                })
            }
        }
    }

    /// Returns the number of the node that has a hash slot, as last known.
    pub(super) fn node_number(&self, hash_slot: u16) -> usize {
        self.map().and_then(|map| Some(map.node_of(hash_slot)?.number())).unwrap_or_default()
    }

    /// Returns all nodes that have hash slots.
    ///
    /// # Errors
    /// The slot map is unknown.
    pub(super) async fn nodes(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, StoreError> {
        match self {
            Self::Single(node) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster) => Ok(cluster.map(deadline).await?.nodes().to_vec()),
        }
    }

    /// Returns the slot map of a cluster, if it is known.
    pub(super) fn map(&self) -> Option<Arc<SlotMap>> {
        match self {
            Self::Single(_) => None,
            Self::Cluster(cluster) => cluster.known_map(),
        }
    }

    /// Returns the node that another node redirects to. If the redirection is MOVED, records that it has the hash
    /// slot; if it is ASK, it counts only for one call.
    pub(super) fn redirect(&self, hash_slot: u16, address: &str, is_ask: bool, named_by: &Node) -> Option<Arc<Node>> {
        let Self::Cluster(cluster) = self else { return None };
        let Some(node) = cluster.named_node(address, named_by) else {
            cluster.request_refresh();
            return None;
        };
        if !is_ask {
            cluster.moved(hash_slot, &node);
        }
        Some(node)
    }

    /// Returns `true` if the store is a Redis Cluster.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns why a node is unreachable, if one is known to be.
    pub(super) fn outage(&self) -> Option<String> {
        match self {
            Self::Single(node) => node.outage(),
            Self::Cluster(cluster) => cluster.outage(),
        }
    }

    /// Returns the last known address of the master, if the store uses sentinels.
    pub(super) fn master(&self) -> Option<String> {
        match self {
            Self::Single(node) => node.master(),
            Self::Cluster(_) => None,
        }
    }
}
