//! The names that are in use.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::lookup::Lookup;
use super::pending::PendingNames;
use super::task::NameTask;
use super::{DnsName, ResolvedName};
use tidegate_metrics::Metrics;

/// The longest time that a start or a reload waits for names.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The names that are in use. Clones share the names.
#[derive(Clone, Debug)]
pub struct Resolver {
    lookup: Arc<Lookup>,
    names: Arc<Mutex<BTreeMap<DnsName, Weak<ResolvedName>>>>,
    pending: PendingNames,
    tasks: UnboundedSender<NameTask>,
}

/// Looks up hosts that are not targets, with the DNS servers of a [`Resolver`].
#[derive(Clone, Debug)]
pub struct HostLookup(Arc<Lookup>);

/// Runs the tasks of names.
#[derive(Debug)]
pub struct NameTasks(UnboundedReceiver<NameTask>);

// === impl Resolver ===

impl Resolver {
    /// Creates a resolver that uses these DNS servers. Without servers, the servers of the system are used. Names are
    /// resolved while the tasks run.
    pub fn new(servers: &[SocketAddr]) -> (Self, NameTasks) {
        let (tasks, receiver) = unbounded_channel();
        let (names, pending) = (Arc::default(), PendingNames::default());
        let resolver = Self { lookup: Arc::new(Lookup::new(servers.into())), names, pending, tasks };
        (resolver, NameTasks(receiver))
    }

    /// Returns a handle to look up hosts.
    pub fn hosts(&self) -> HostLookup {
        HostLookup(Arc::clone(&self.lookup))
    }

    /// Uses other DNS servers for the next resolutions.
    pub fn set_servers(&self, servers: &[SocketAddr]) {
        self.lookup.set_servers(servers.into());
    }

    /// Returns a name, which is resolved until the last handle is dropped. A name in use keeps its addresses.
    pub(crate) fn name(&self, name: &DnsName, metrics: &Metrics) -> Arc<ResolvedName> {
        let mut names = self.names.lock();
        if let Some(resolved) = names.get(name).and_then(Weak::upgrade) {
            return resolved;
        }
        names.retain(|_, name| name.strong_count() > 0);
        let resolved = Arc::new(ResolvedName::new(name.clone(), self.pending.add()));
        names.insert(name.clone(), Arc::downgrade(&resolved));
        let metrics = metrics.dns_name(&name.to_string());
        // An error means that the gateway has ended.
        _ = self.tasks.send(NameTask::new(&resolved, Arc::clone(&self.lookup), metrics));
        resolved
    }

    /// Blocks until all names in use have been resolved once, at most for 2 seconds.
    pub fn wait_for_names(&self) {
        match self.pending.wait(MAX_WAIT) {
            0 => {}
            names => tracing::warn!(names, "upstream names are not resolved yet, starting without them"),
        }
    }
}

// === impl HostLookup ===

impl HostLookup {
    /// Returns the addresses of a host: of an IP address, or of a name.
    ///
    /// # Errors
    /// The name has no addresses, or no DNS server answered.
    pub(crate) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let answer = self.0.resolve(&DnsName::Host(host.into(), port)).await.map_err(io::Error::other)?;
        Ok(answer.hosts.iter().flat_map(|host| host.ipv6.iter().chain(&host.ipv4)).copied().collect())
    }
}

// === impl NameTasks ===

impl NameTasks {
    /// Returns `true` if no name waits for its task.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs the task of each name, until no resolver is left.
    pub async fn run(mut self) {
        while let Some(task) = self.0.recv().await {
            tokio::spawn(task.run());
        }
    }
}
