//! The slot map of a Redis Cluster. A task queries one node after the other until one replies: soon after something
//! does not match the map, and otherwise at long intervals. A redirection for a single hash slot is applied
//! immediately.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deadpool_redis::redis::{ErrorKind, RedisError, RedisResult, cmd};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::super::backoff::{Backoff, jittered};
use super::super::locator::Address;
use super::super::node::{Membership, Node, OwnedHashSlots, UpGauge, no_slots};
use super::super::script::keys::SharedSecret;
use super::slot_map::{SlotMap, SlotRange};
use crate::StoreError;
use tidegate_limit::random::random;
use tidegate_metrics::NodeSeries;
use tidegate_rules::settings::store::RedisSettings;

/// The timeout for a node's reply.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval of refreshes if nothing is wrong.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// The longest pause before a refresh that was requested. Refreshes that find nothing new grow rarer, since a node may
/// be unreachable for long.
const MAX_REFRESH_DELAY: Duration = Duration::from_millis(100);

/// The nodes of a cluster, for all connections of a gateway.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    secret: Arc<SharedSecret>,
    membership: Arc<Membership>,
    /// Down while no map is known.
    up: Arc<UpGauge>,
    /// All nodes that may be called, by address.
    nodes: Mutex<HashMap<String, KnownNode>>,
    next_number: AtomicUsize,
    map: watch::Sender<SlotMapState>,
    /// Notified to request a refresh of the map.
    refresh_requests: Arc<Notify>,
    /// Started on the first runtime that needs it, and restarted when that runtime has ended.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A node, with its metrics while it may be called.
#[derive(Debug)]
struct KnownNode {
    node: Arc<Node>,
    _series: NodeSeries,
}

#[derive(Clone, Debug)]
enum SlotMapState {
    /// No node has replied or failed yet.
    Pending,
    /// All nodes have failed, with the last cause.
    Failed(String),
    Known(Arc<SlotMap>),
}

impl Cluster {
    /// Creates a cluster whose slot map is not known yet.
    ///
    /// # Errors
    /// A URL is not a valid Redis URL.
    pub(super) fn new(
        settings: &RedisSettings,
        secret: Arc<SharedSecret>,
        membership: Arc<Membership>,
    ) -> RedisResult<Self> {
        let up = Arc::clone(membership.up());
        let address = |url| Address::new(url, &settings.tls, settings.password_file.as_deref());
        Ok(Self {
            seeds: settings.cluster.iter().map(address).collect::<RedisResult<_>>()?,
            secret,
            membership,
            up,
            nodes: Mutex::default(),
            next_number: AtomicUsize::new(0),
            map: watch::Sender::new(SlotMapState::Pending),
            refresh_requests: Arc::default(),
            task: Mutex::default(),
        })
    }

    /// Returns the slot map. Waits for the first query.
    ///
    /// # Errors
    /// No node replies.
    pub(super) async fn map(self: &Arc<Self>, deadline: Instant) -> Result<Arc<SlotMap>, StoreError> {
        match self.known_map() {
            Some(map) => Ok(map),
            None => Box::pin(self.wait_for_map(deadline)).await, // rare, and larger than the future of a decision
        }
    }

    async fn wait_for_map(self: &Arc<Self>, deadline: Instant) -> Result<Arc<SlotMap>, StoreError> {
        self.ensure_refresh();
        let mut state = self.map.subscribe();
        let loaded = state.wait_for(|state| !matches!(state, SlotMapState::Pending));
        match timeout_at(deadline, loaded).await.map_err(|_| StoreError::Timeout)?.as_deref() {
            Ok(SlotMapState::Known(map)) => Ok(Arc::clone(map)),
            _ => Err(StoreError::Unreachable),
        }
    }

    /// Returns the slot map, if it is known.
    pub(super) fn known_map(&self) -> Option<Arc<SlotMap>> {
        match &*self.map.borrow() {
            SlotMapState::Known(map) => Some(Arc::clone(map)),
            SlotMapState::Pending | SlotMapState::Failed(_) => None,
        }
    }

    /// Returns why the cluster or one of its nodes is unreachable, if it is known to be.
    pub(super) fn outage(&self) -> Option<String> {
        match &*self.map.borrow() {
            SlotMapState::Pending => None,
            SlotMapState::Failed(cause) => Some(cause.clone()),
            SlotMapState::Known(map) => {
                map.nodes().iter().find_map(|node| Some(format!("{}: {}", node.url(), node.outage()?)))
            }
        }
    }

    /// Requests a refresh of the slot map soon.
    pub(super) fn request_refresh(self: &Arc<Self>) {
        self.ensure_refresh();
        self.refresh_requests.notify_one();
    }

    /// Starts the refresh task, unless it is running.
    fn ensure_refresh(self: &Arc<Self>) {
        let mut task = self.task.lock();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(run_refresh(Arc::downgrade(self), Arc::clone(&self.refresh_requests))));
        }
    }

    /// Returns the node at an address that another node named. Without a host, the node has the other node's host.
    pub(super) fn named_node(&self, address: &str, named_by: &Node) -> Option<Arc<Node>> {
        Some(self.node(named_by.address().named_node(address)?))
    }

    /// Applies a redirection: another node has this hash slot.
    pub(super) fn moved(self: &Arc<Self>, hash_slot: u16, to: &Arc<Node>) {
        self.map.send_if_modified(|state| {
            let SlotMapState::Known(map) = state else { return false };
            let from = map.node_of(hash_slot);
            if from.is_some_and(|node| Arc::ptr_eq(node, to)) {
                return false;
            }
            to.slots().add(hash_slot);
            from.inspect(|from| from.slots().remove(hash_slot));
            let mut new = SlotMap::clone(map);
            new.assign(hash_slot, hash_slot, to);
            *map = Arc::new(new);
            true
        });
        self.request_refresh();
    }

    fn node(&self, address: Address) -> Arc<Node> {
        let (mut nodes, name) = (self.nodes.lock(), address.host_and_port());
        let entry = nodes.entry(name.clone()).or_insert_with(|| {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let (secret, membership) = (Arc::clone(&self.secret), Arc::clone(&self.membership));
            let (slots, series) =
                (OwnedHashSlots::none(Arc::clone(&self.refresh_requests)), self.membership.add_node(name));
            let node = Node::of_cluster(address, number, slots, series.metrics(), secret, membership);
            KnownNode { node: Arc::new(node), _series: series }
        });
        Arc::clone(&entry.node)
    }

    /// Queries one node after the other until one replies. Returns `true` if the map has changed.
    async fn refresh(&self) -> Result<bool, String> {
        let mut cause = "no node is known".to_owned();
        for address in self.nodes_to_query() {
            match timeout(QUERY_TIMEOUT, query_slots(&address)).await {
                Ok(Ok(ranges)) => return Ok(self.apply(&ranges, &address).await),
                Ok(Err(error)) => cause = format!("{} {error}", address.host_and_port()),
                Err(_) => cause = format!("{} no answer in time", address.host_and_port()),
            }
        }
        Err(cause)
    }

    /// Returns the nodes in the order of queries: reachable nodes from a random one on, then the others, then the
    /// addresses of the rule file.
    fn nodes_to_query(&self) -> Vec<Address> {
        let map = self.known_map();
        let mut nodes: Vec<&Arc<Node>> = map.iter().flat_map(|map| map.nodes()).collect();
        if !nodes.is_empty() {
            let first = usize::from_le_bytes(random()) % nodes.len();
            nodes.rotate_left(first);
        }
        nodes.sort_by_key(|node| node.outage().is_some());
        let nodes = nodes.into_iter().map(|node| node.address());
        nodes.chain(&self.seeds).cloned().collect()
    }

    /// Replaces the map. Nodes that gain hash slots are first charged with the local grants in these hash slots. Returns
    /// `true` if the map has changed.
    async fn apply(&self, ranges: &[SlotRange], named_by: &Address) -> bool {
        let mut map = SlotMap::empty();
        for SlotRange { first, last, host, port } in ranges {
            let host = if host.is_empty() { named_by.host() } else { host };
            map.assign(*first, *last, &self.node(named_by.moved_to(host.to_owned(), *port)));
        }
        let before = self.known_map();
        let gaining_nodes = assign_slots(&map);
        if let Some(before) = &before {
            let charges =
                gaining_nodes.iter().filter(|node| before.has(node)).map(|node| node.charge_local_grants_now());
            futures_util::future::join_all(charges).await;
        }
        let no_node_left = before.as_ref().is_some_and(|before| before.nodes().iter().all(|node| map.has(node)));
        let is_new = !no_node_left || !gaining_nodes.is_empty();
        if is_new {
            tracing::info!(
                nodes = map.nodes().len(),
                moved_to = gaining_nodes.len(),
                "slot map of the cluster has changed"
            );
        }
        self.nodes.lock().retain(|_, KnownNode { node, .. }| {
            let is_known = map.has(node);
            _ = is_known || node.slots().set(no_slots());
            is_known
        });
        if let SlotMapState::Failed(_) = self.map.send_replace(SlotMapState::Known(Arc::new(map))) {
            self.up.mark_up();
        }
        is_new
    }

    /// Records why no node has replied. A map that is already known stays.
    fn record_failure(&self, cause: String) {
        self.map.send_if_modified(|state| {
            let is_lost = !matches!(state, SlotMapState::Known(_));
            if is_lost {
                if matches!(state, SlotMapState::Pending) {
                    self.up.mark_down();
                    tracing::warn!(error = cause, "no node of the cluster returns its slots, retrying");
                }
                *state = SlotMapState::Failed(cause);
            }
            is_lost
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut() {
            task.abort();
        }
    }
}

/// Sets the hash slots of all nodes. Returns the nodes that gained some.
fn assign_slots(map: &SlotMap) -> Vec<Arc<Node>> {
    map.owned().filter_map(|(node, slots)| node.slots().set(slots).then(|| Arc::clone(node))).collect()
}

async fn query_slots(address: &Address) -> RedisResult<Vec<SlotRange>> {
    let answer = cmd("CLUSTER").arg("SLOTS").query_async(&mut address.open(|_| ()).await?).await?;
    let invalid = || RedisError::from((ErrorKind::Client, "returned no hash slots"));
    SlotRange::parse_all(&answer).ok_or_else(invalid)
}

/// Refreshes the map, with a random pause between refreshes, so that many gateways do not query at the same time.
async fn run_refresh(cluster: Weak<Cluster>, refresh_requests: Arc<Notify>) {
    let (mut backoff, mut waited) = (Backoff::default(), Duration::ZERO);
    loop {
        let Some(cluster_ref) = cluster.upgrade() else { return };
        let pause = match cluster_ref.refresh().await {
            Ok(true) => {
                backoff = Backoff::default();
                MAX_REFRESH_DELAY
            }
            Ok(false) => backoff.after_connection(waited).max(MAX_REFRESH_DELAY),
            Err(cause) => {
                cluster_ref.record_failure(cause);
                backoff.after_failure()
            }
        };
        let is_known = cluster_ref.known_map().is_some();
        drop(cluster_ref);
        let since = Instant::now();
        if is_known {
            _ = timeout(jittered(REFRESH_EVERY), refresh_requests.notified()).await;
        }
        waited = since.elapsed();
        sleep(jittered(pause)).await;
    }
}
