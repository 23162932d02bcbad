//! The dispatchers of a worker: some for each node. They are started when the node is first asked, on the runtime that asks
//! it, and end when the node has no slots any more. Those of a runtime that has ended are started anew on the next.

mod clock_offset;
mod dispatcher;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use self::dispatcher::Dispatcher;
pub(super) use self::dispatcher::{DispatcherContext, decide_one};
use super::node::Node;
use super::topology::{SlotMap, Topology};

/// All of them.
#[derive(Debug)]
pub(super) struct Dispatchers {
    context: Arc<DispatcherContext>,
    topology: Arc<Topology>,
    /// How many connections to have to each node.
    pool_size: usize,
    started: Mutex<Started>,
    next_dispatcher: AtomicUsize,
    /// Begins anywhere, so that workers do not all ask one node at a time.
    departures: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Started {
    by_node: Vec<NodeDispatchers>,
    /// The map that they were last held against.
    map: Option<Arc<SlotMap>>,
}

#[derive(Debug)]
struct NodeDispatchers {
    node: Arc<Node>,
    dispatchers: Box<[Arc<Dispatcher>]>,
}

impl Dispatchers {
    /// None yet.
    pub(super) fn new(context: Arc<DispatcherContext>, topology: Arc<Topology>, pool_size: usize) -> Self {
        let departures = Arc::new(AtomicU64::new(context.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)));
        Self {
            context,
            topology,
            pool_size,
            started: Mutex::default(),
            next_dispatcher: AtomicUsize::new(0),
            departures,
        }
    }

    /// Others for the same nodes.
    pub(super) fn for_worker(&self) -> Self {
        Self::new(Arc::clone(&self.context), Arc::clone(&self.topology), self.pool_size)
    }

    /// How often any of them has sent calls, from a number at random.
    pub(super) fn departures(&self) -> u64 {
        self.departures.load(Ordering::Relaxed)
    }

    /// One of those of a node, in next_dispatcher.
    pub(super) fn dispatcher_for(&self, node: &Arc<Node>) -> Arc<Dispatcher> {
        let map = self.topology.map();
        let next_dispatcher = self.next_dispatcher.fetch_add(1, Ordering::Relaxed);
        let mut started = self.started.lock();
        started.remove_stale(map);
        let known = started.by_node.iter().position(|known| Arc::ptr_eq(&known.node, node));
        let position = known.unwrap_or_else(|| {
            let dispatchers = (0..self.pool_size).map(|_| self.start(node)).collect();
            started.by_node.push(NodeDispatchers { node: Arc::clone(node), dispatchers });
            started.by_node.len() - 1
        });
        let dispatchers = &mut started.by_node[position].dispatchers;
        let dispatcher = &mut dispatchers[next_dispatcher % self.pool_size];
        if dispatcher.has_ended() {
            *dispatcher = self.start(node);
        }
        Arc::clone(dispatcher)
    }

    fn start(&self, node: &Arc<Node>) -> Arc<Dispatcher> {
        let (node, context) = (Arc::clone(node), Arc::clone(&self.context));
        let (departures, has_slots) = (Arc::clone(&self.departures), self.topology.is_cluster());
        Arc::new(Dispatcher::start(node, context, departures, has_slots))
    }
}

impl Started {
    /// Ends those of nodes that have left the map.
    fn remove_stale(&mut self, map: Option<Arc<SlotMap>>) {
        let Some(map) = map else { return };
        if !self.map.as_ref().is_some_and(|known| Arc::ptr_eq(known, &map)) {
            self.by_node.retain(|known| map.has(&known.node));
            self.map = Some(map);
        }
    }
}
