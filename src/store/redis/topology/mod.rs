//! Whom to ask about a bucket: the one Redis that there is, or the node of a cluster that has its hash slot.

mod cluster;
mod slot_map;

use std::sync::Arc;

use deadpool_redis::redis::RedisResult;
use tokio::time::Instant;

use self::cluster::Cluster;
pub(super) use self::slot_map::SlotMap;
use super::node::{Membership, Node};
use super::script::keys::SharedSecret;
use crate::store::StoreError;
use crate::store::settings::RedisSettings;

/// The nodes, for all connections of a gateway.
#[derive(Debug)]
pub(super) enum Topology {
    Single(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    /// # Errors
    /// A URL is none that leads to a Redis.
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

    /// The node that has a slot.
    ///
    /// # Errors
    /// No node has it, or it is not known which.
    pub(super) async fn node_of(&self, slot: u16, deadline: Instant) -> Result<Arc<Node>, StoreError> {
        match self {
            Self::Single(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => {
                let map = cluster.map(deadline).await?;
                let node = map.node_of(slot).cloned();
                node.ok_or_else(|| {
                    cluster.request_refresh();
                    StoreError::Unreachable
                })
            }
        }
    }

    /// The number of the node that has a slot, as far as is known.
    pub(super) fn node_number(&self, slot: u16) -> usize {
        self.map().and_then(|map| Some(map.node_of(slot)?.number())).unwrap_or_default()
    }

    /// All nodes that have slots.
    ///
    /// # Errors
    /// It is not known which.
    pub(super) async fn nodes(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, StoreError> {
        match self {
            Self::Single(node) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster) => Ok(cluster.map(deadline).await?.nodes().to_vec()),
        }
    }

    /// The map of a cluster, if it is one and the map is known.
    pub(super) fn map(&self) -> Option<Arc<SlotMap>> {
        match self {
            Self::Single(_) => None,
            Self::Cluster(cluster) => cluster.known_map(),
        }
    }

    /// The node at the address that another one has named, who has the slot now, or is asked about it this `is_ask`.
    pub(super) fn redirect(&self, slot: u16, address: &str, is_ask: bool, named_by: &Node) -> Option<Arc<Node>> {
        let Self::Cluster(cluster) = self else { return None };
        let Some(node) = cluster.named_node(address, named_by) else {
            cluster.request_refresh();
            return None;
        };
        if !is_ask {
            cluster.moved(slot, &node);
        }
        Some(node)
    }

    /// Are there several nodes?
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Why somebody cannot be asked at present.
    pub(super) fn outage(&self) -> Option<String> {
        match self {
            Self::Single(node) => node.outage(),
            Self::Cluster(cluster) => cluster.outage(),
        }
    }

    /// With sentinels, where the master was last.
    pub(super) fn master(&self) -> Option<String> {
        match self {
            Self::Single(node) => node.master(),
            Self::Cluster(_) => None,
        }
    }
}
