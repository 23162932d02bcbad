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

use super::super::locator::Address;
use super::super::node::{Membership, Node, OwnedSlots, UpGauge, no_slots};
use super::super::pauses::{Pauses, jittered};
use super::super::random_byte;
use super::super::script::keys::SharedSecret;
use super::slot_map::{SlotMap, SlotRange};
use crate::metrics::ShownNode;
use crate::store::StoreError;
use crate::store::settings::RedisSettings;

/// The longest that a node may take to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the map is looked at if nothing is wrong.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The longest pause before it is looked at because something is wrong. Looks that find nothing new are further and further
/// apart, for a node may be away for long.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// The nodes of a cluster, for all connections of a gateway.
#[derive(Debug)]
pub(crate) struct Cluster {
    seeds: Vec<Address>,
    secret: Arc<SharedSecret>,
    membership: Arc<Membership>,
    /// Falls while no map is known.
    up: Arc<UpGauge>,
    /// All nodes that may be asked, by address.
    nodes: Mutex<HashMap<String, HeardOf>>,
    next_number: AtomicUsize,
    map: watch::Sender<Known>,
    /// Notified when the map is to be looked at again.
    doubts: Arc<Notify>,
    /// Started on the runtime that needs it first, and anew when that has ended.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A node, which is shown as long as it may be asked.
#[derive(Debug)]
struct HeardOf {
    node: Arc<Node>,
    _shown: ShownNode,
}

/// What is known of the slots.
#[derive(Clone, Debug)]
enum Known {
    /// The first answer is awaited.
    Nothing,
    /// No node has answered, for this cause.
    Cause(String),
    Map(Arc<SlotMap>),
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
            map: watch::Sender::new(Known::Nothing),
            doubts: Arc::default(),
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
        self.look_on();
        let mut known = self.map.subscribe();
        let told = known.wait_for(|known| !matches!(known, Known::Nothing));
        match timeout_at(deadline, told).await.map_err(|_| StoreError::Timeout)?.as_deref() {
            Ok(Known::Map(map)) => Ok(Arc::clone(map)),
            _ => Err(StoreError::Unreachable),
        }
    }

    /// The map, if it is known.
    pub(super) fn known_map(&self) -> Option<Arc<SlotMap>> {
        match &*self.map.borrow() {
            Known::Map(map) => Some(Arc::clone(map)),
            Known::Nothing | Known::Cause(_) => None,
        }
    }

    /// Why nobody, or one of the nodes, can be asked.
    pub(super) fn outage(&self) -> Option<String> {
        match &*self.map.borrow() {
            Known::Nothing => None,
            Known::Cause(cause) => Some(cause.clone()),
            Known::Map(map) => map.nodes().iter().find_map(|node| Some(format!("{}: {}", node.url(), node.outage()?))),
        }
    }

    /// The map is to be looked at again, soon.
    pub(super) fn doubt(self: &Arc<Self>) {
        self.look_on();
        self.doubts.notify_one();
    }

    /// Has a task look at the map, unless one does.
    fn look_on(self: &Arc<Self>) {
        let mut task = self.task.lock();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(keep_looking(Arc::downgrade(self), Arc::clone(&self.doubts))));
        }
    }

    /// The node at a place that another one has told of; its host is that one's if the place has none.
    pub(super) fn node_at(&self, place: &str, told_by: &Node) -> Option<Arc<Node>> {
        Some(self.node(told_by.address().told(place)?))
    }

    /// A node has said that another one has this slot.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, to: &Arc<Node>) {
        self.map.send_if_modified(|known| {
            let Known::Map(map) = known else { return false };
            let from = map.node_of(slot);
            if from.is_some_and(|node| Arc::ptr_eq(node, to)) {
                return false;
            }
            to.slots().gain(slot);
            from.inspect(|from| from.slots().lose(slot));
            let mut new = SlotMap::clone(map);
            new.give(slot, slot, to);
            *map = Arc::new(new);
            true
        });
        self.doubt();
    }

    fn node(&self, address: Address) -> Arc<Node> {
        let (mut nodes, place) = (self.nodes.lock(), address.host_and_port());
        let heard_of = nodes.entry(place.clone()).or_insert_with(|| {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let (secret, membership) = (Arc::clone(&self.secret), Arc::clone(&self.membership));
            let (slots, shown) = (OwnedSlots::none(Arc::clone(&self.doubts)), self.membership.show_node(place));
            let node = Node::of_cluster(address, number, slots, shown.metrics(), secret, membership);
            HeardOf { node: Arc::new(node), _shown: shown }
        });
        Arc::clone(&heard_of.node)
    }

    /// Asks one node after the other until one answers; returns whether the map is new.
    async fn look(&self) -> Result<bool, String> {
        let mut cause = "no node is known".to_owned();
        for address in self.whom_to_ask() {
            match timeout(ASK_TIMEOUT, ask(&address)).await {
                Ok(Ok(ranges)) => return Ok(self.heard(&ranges, &address).await),
                Ok(Err(error)) => cause = format!("{} {error}", address.host_and_port()),
                Err(_) => cause = format!("{} no answer in time", address.host_and_port()),
            }
        }
        Err(cause)
    }

    /// The nodes, beginning with any of those that are up; then the places that the rule file names.
    fn whom_to_ask(&self) -> Vec<Address> {
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
    async fn heard(&self, ranges: &[SlotRange], told_by: &Address) -> bool {
        let mut map = SlotMap::empty();
        for SlotRange { first, last, host, port } in ranges {
            let host = if host.is_empty() { told_by.host() } else { host };
            map.give(*first, *last, &self.node(told_by.moved_to(host.to_owned(), *port)));
        }
        let before = self.known_map();
        let got_slots = tell_nodes(&map);
        if let Some(before) = &before {
            let charge_debts = got_slots.iter().filter(|node| before.knows(node)).map(|node| node.charge_debts());
            futures_util::future::join_all(charge_debts).await;
        }
        let nobody_left = before.as_ref().is_some_and(|before| before.nodes().iter().all(|node| map.knows(node)));
        let is_new = !nobody_left || !got_slots.is_empty();
        if is_new {
            tracing::info!(nodes = map.nodes().len(), moved_to = got_slots.len(), "slots of the cluster are known");
        }
        self.nodes.lock().retain(|_, HeardOf { node, .. }| {
            let is_known = map.knows(node);
            _ = is_known || node.slots().set(no_slots());
            is_known
        });
        if let Known::Cause(_) = self.map.send_replace(Known::Map(Arc::new(map))) {
            self.up.back();
        }
        is_new
    }

    /// Notes why no node has answered, unless a map is known from before.
    fn lost(&self, cause: String) {
        self.map.send_if_modified(|known| {
            let is_lost = !matches!(known, Known::Map(_));
            if is_lost {
                if matches!(known, Known::Nothing) {
                    self.up.gone();
                    tracing::warn!(error = cause, "no node of the cluster tells of its slots, trying on");
                }
                *known = Known::Cause(cause);
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
fn tell_nodes(map: &SlotMap) -> Vec<Arc<Node>> {
    map.owned().filter_map(|(node, slots)| node.slots().set(slots).then(|| Arc::clone(node))).collect()
}

async fn ask(address: &Address) -> RedisResult<Vec<SlotRange>> {
    let answer = cmd("CLUSTER").arg("SLOTS").query_async(&mut address.open(|_| ()).await?).await?;
    let none = || RedisError::from((ErrorKind::Client, "tells of no slots"));
    SlotRange::read_all(&answer).ok_or_else(none)
}

/// One look at a time, and never at once after another, so that many gateways do not come at the same moment.
async fn keep_looking(cluster: Weak<Cluster>, doubts: Arc<Notify>) {
    let (mut pauses, mut rested) = (Pauses::default(), Duration::ZERO);
    loop {
        let Some(looking) = cluster.upgrade() else { return };
        let pause = match looking.look().await {
            Ok(true) => {
                pauses = Pauses::default();
                LOOK_AFTER
            }
            Ok(false) => pauses.after_connection(rested).max(LOOK_AFTER),
            Err(cause) => {
                looking.lost(cause);
                pauses.after_failure()
            }
        };
        let is_known = looking.known_map().is_some();
        drop(looking);
        let since = Instant::now();
        if is_known {
            _ = timeout(jittered(LOOK_EVERY), doubts.notified()).await;
        }
        rested = since.elapsed();
        sleep(jittered(pause)).await;
    }
}
