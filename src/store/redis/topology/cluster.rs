//! A Redis Cluster: which node has which slots. A task asks one node after the other until one tells, again and again: soon
//! when something does not fit, and now and then when all does. What a node says of one slot is believed at once.

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
use super::super::random_byte;
use super::super::script::keys::SharedSecret;
use super::slot_map::{SlotMap, SlotRange};
use crate::metrics::ShownNode;
use crate::store::StoreError;
use crate::store::settings::RedisSettings;

/// The longest that a node may take to answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the map is looked at if nothing is wrong.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// The longest pause before it is looked at because something is wrong. Looks that find nothing new are further and further
/// apart, for a node may be away for long.
const MAX_REFRESH_DELAY: Duration = Duration::from_millis(100);

/// The nodes of a cluster, for all connections of a gateway.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    secret: Arc<SharedSecret>,
    membership: Arc<Membership>,
    /// Falls while no map is known.
    up: Arc<UpGauge>,
    /// All nodes that may be asked, by address.
    nodes: Mutex<HashMap<String, KnownNode>>,
    next_number: AtomicUsize,
    map: watch::Sender<SlotMapState>,
    /// Notified when the map is to be looked at again.
    refresh_requests: Arc<Notify>,
    /// Started on the runtime that needs it first, and anew when that has ended.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A node, which is shown as long as it may be asked.
#[derive(Debug)]
struct KnownNode {
    node: Arc<Node>,
    _shown: ShownNode,
}

/// What is known of the slots.
#[derive(Clone, Debug)]
enum SlotMapState {
    /// The first answer is awaited.
    Pending,
    /// No node has answered, for this cause.
    Failed(String),
    Known(Arc<SlotMap>),
}

impl Cluster {
    /// # Errors
    /// A URL is none that leads to a Redis.
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

    /// The map, waiting for it while it is first asked for.
    ///
    /// # Errors
    /// No node answers.
    pub(super) async fn map(self: &Arc<Self>, deadline: Instant) -> Result<Arc<SlotMap>, StoreError> {
        if let Some(map) = self.known_map() {
            return Ok(map);
        }
        self.ensure_refresh();
        let mut known = self.map.subscribe();
        let settled = known.wait_for(|known| !matches!(known, SlotMapState::Pending));
        match timeout_at(deadline, settled).await.map_err(|_| StoreError::Timeout)?.as_deref() {
            Ok(SlotMapState::Known(map)) => Ok(Arc::clone(map)),
            _ => Err(StoreError::Unreachable),
        }
    }

    /// The map, if it is known.
    pub(super) fn known_map(&self) -> Option<Arc<SlotMap>> {
        match &*self.map.borrow() {
            SlotMapState::Known(map) => Some(Arc::clone(map)),
            SlotMapState::Pending | SlotMapState::Failed(_) => None,
        }
    }

    /// Why nobody, or one of the nodes, can be asked.
    pub(super) fn outage(&self) -> Option<String> {
        match &*self.map.borrow() {
            SlotMapState::Pending => None,
            SlotMapState::Failed(cause) => Some(cause.clone()),
            SlotMapState::Known(map) => {
                map.nodes().iter().find_map(|node| Some(format!("{}: {}", node.url(), node.outage()?)))
            }
        }
    }

    /// The map is to be looked at again, soon.
    pub(super) fn request_refresh(self: &Arc<Self>) {
        self.ensure_refresh();
        self.refresh_requests.notify_one();
    }

    /// Has a task look at the map, unless one does.
    fn ensure_refresh(self: &Arc<Self>) {
        let mut task = self.task.lock();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(run_refresh(Arc::downgrade(self), Arc::clone(&self.refresh_requests))));
        }
    }

    /// The node at a address that another one has settled of; its host is that one's if the address has none.
    pub(super) fn named_node(&self, address: &str, named_by: &Node) -> Option<Arc<Node>> {
        Some(self.node(named_by.address().named_node(address)?))
    }

    /// A node has said that another one has this slot.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, to: &Arc<Node>) {
        self.map.send_if_modified(|known| {
            let SlotMapState::Known(map) = known else { return false };
            let from = map.node_of(slot);
            if from.is_some_and(|node| Arc::ptr_eq(node, to)) {
                return false;
            }
            to.slots().add(slot);
            from.inspect(|from| from.slots().remove(slot));
            let mut new = SlotMap::clone(map);
            new.assign(slot, slot, to);
            *map = Arc::new(new);
            true
        });
        self.request_refresh();
    }

    fn node(&self, address: Address) -> Arc<Node> {
        let (mut nodes, name) = (self.nodes.lock(), address.host_and_port());
        let known = nodes.entry(name.clone()).or_insert_with(|| {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let (secret, membership) = (Arc::clone(&self.secret), Arc::clone(&self.membership));
            let (slots, shown) =
                (OwnedHashSlots::none(Arc::clone(&self.refresh_requests)), self.membership.show_node(name));
            let node = Node::of_cluster(address, number, slots, shown.metrics(), secret, membership);
            KnownNode { node: Arc::new(node), _shown: shown }
        });
        Arc::clone(&known.node)
    }

    /// Asks one node after the other until one answers; returns whether the map is new.
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

    /// The nodes, beginning with any of those that are up; then the places that the rule file names.
    fn nodes_to_query(&self) -> Vec<Address> {
        let map = self.known_map();
        let mut nodes: Vec<&Arc<Node>> = map.iter().flat_map(|map| map.nodes()).collect();
        if !nodes.is_empty() {
            let first = usize::from(random_byte()) % nodes.len();
            nodes.rotate_left(first);
        }
        nodes.sort_by_key(|node| node.outage().is_some());
        let nodes = nodes.into_iter().map(|node| node.address());
        nodes.chain(&self.seeds).cloned().collect()
    }

    /// Nodes that get slots are first charged what was granted while these had nobody who could be asked.
    async fn apply(&self, ranges: &[SlotRange], named_by: &Address) -> bool {
        let mut map = SlotMap::empty();
        for SlotRange { first, last, host, port } in ranges {
            let host = if host.is_empty() { named_by.host() } else { host };
            map.assign(*first, *last, &self.node(named_by.moved_to(host.to_owned(), *port)));
        }
        let before = self.known_map();
        let got_slots = assign_slots(&map);
        if let Some(before) = &before {
            let charges = got_slots.iter().filter(|node| before.has(node)).map(|node| node.charge_debts_now());
            futures_util::future::join_all(charges).await;
        }
        let no_node_left = before.as_ref().is_some_and(|before| before.nodes().iter().all(|node| map.has(node)));
        let is_new = !no_node_left || !got_slots.is_empty();
        if is_new {
            tracing::info!(nodes = map.nodes().len(), moved_to = got_slots.len(), "slots of the cluster are known");
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

    /// Notes why no node has answered, unless a map is known from before.
    fn record_failure(&self, cause: String) {
        self.map.send_if_modified(|known| {
            let is_lost = !matches!(known, SlotMapState::Known(_));
            if is_lost {
                if matches!(known, SlotMapState::Pending) {
                    self.up.mark_down();
                    tracing::warn!(error = cause, "no node of the cluster returns its slots, retrying");
                }
                *known = SlotMapState::Failed(cause);
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

/// Tells each node which slots it has; returns those that have got some.
fn assign_slots(map: &SlotMap) -> Vec<Arc<Node>> {
    map.owned().filter_map(|(node, slots)| node.slots().set(slots).then(|| Arc::clone(node))).collect()
}

async fn query_slots(address: &Address) -> RedisResult<Vec<SlotRange>> {
    let answer = cmd("CLUSTER").arg("SLOTS").query_async(&mut address.open(|_| ()).await?).await?;
    let none = || RedisError::from((ErrorKind::Client, "tells of no slots"));
    SlotRange::read_all(&answer).ok_or_else(none)
}

/// One look at a time, and never at once after another, so that many gateways do not come at the same moment.
async fn run_refresh(cluster: Weak<Cluster>, refresh_requests: Arc<Notify>) {
    let (mut backoff, mut rested) = (Backoff::default(), Duration::ZERO);
    loop {
        let Some(cluster_ref) = cluster.upgrade() else { return };
        let pause = match cluster_ref.refresh().await {
            Ok(true) => {
                backoff = Backoff::default();
                MAX_REFRESH_DELAY
            }
            Ok(false) => backoff.after_connection(rested).max(MAX_REFRESH_DELAY),
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
        rested = since.elapsed();
        sleep(jittered(pause)).await;
    }
}
