//! The dispatchers of a worker: `pool_size` for each node. They start at the first call to the node, on the runtime of
//! the caller, and end when the node has no more hash slots. If their runtime has ended, the next call restarts them on
//! its own runtime.

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

#[derive(Debug)]
pub(super) struct Dispatchers {
    context: Arc<DispatcherContext>,
    topology: Arc<Topology>,
    /// The number of connections to each node.
    pool_size: usize,
    /// Whether all requests come from one thread.
    is_of_worker: bool,
    started: Mutex<Started>,
    next_dispatcher: AtomicUsize,
    /// Starts at a random number, so that workers do not all call the same node first.
    call_count: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Started {
    by_node: Vec<NodeDispatchers>,
    /// The slot map of the last clean-up.
    map: Option<Arc<SlotMap>>,
}

#[derive(Debug)]
struct NodeDispatchers {
    node: Arc<Node>,
    dispatchers: Box<[Arc<Dispatcher>]>,
}

impl Dispatchers {
    /// Creates dispatchers for any threads. They are not started yet.
    pub(super) fn new(context: Arc<DispatcherContext>, topology: Arc<Topology>, pool_size: usize) -> Self {
        let call_count = Arc::new(AtomicU64::new(context.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)));
        Self {
            context,
            topology,
            pool_size,
            is_of_worker: false,
            started: Mutex::default(),
            next_dispatcher: AtomicUsize::new(0),
            call_count,
        }
    }

    /// Creates dispatchers for the same nodes and one thread.
    pub(super) fn for_worker(&self) -> Self {
        let dispatchers = Self::new(Arc::clone(&self.context), Arc::clone(&self.topology), self.pool_size);
        Self { is_of_worker: true, ..dispatchers }
    }

    /// Returns the number of calls, as [`call_count`](queue::call_count) counts them, from a random start.
    pub(super) fn call_count(&self) -> u64 {
        self.call_count.load(Ordering::Relaxed)
    }

    /// Returns `true` if the connections of all started dispatchers are open.
    pub(super) fn are_connected(&self) -> bool {
        let started = self.started.lock();
        let mut dispatchers = started.by_node.iter().flat_map(|node| &node.dispatchers);
        dispatchers.all(|dispatcher| dispatcher.connection().is_open())
    }

    /// Returns the next dispatcher of a node, round robin.
    pub(super) fn dispatcher_for(&self, node: &Arc<Node>) -> Arc<Dispatcher> {
        let map = self.topology.map();
        let next_dispatcher = self.next_dispatcher.fetch_add(1, Ordering::Relaxed);
        let mut started = self.started.lock();
        started.remove_stale(map);
        let existing = started.by_node.iter().position(|existing| Arc::ptr_eq(&existing.node, node));
        let position = existing.unwrap_or_else(|| {
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
        let (call_count, has_slots) = (Arc::clone(&self.call_count), self.topology.is_cluster());
        Arc::new(Dispatcher::start(node, context, call_count, has_slots, self.is_of_worker))
    }
}

impl Started {
    /// Removes the dispatchers of nodes that are no longer in the map.
    fn remove_stale(&mut self, map: Option<Arc<SlotMap>>) {
        let Some(map) = map else { return };
        if !self.map.as_ref().is_some_and(|current| Arc::ptr_eq(current, &map)) {
            self.by_node.retain(|current| map.has(&current.node));
            self.map = Some(map);
        }
    }
}
