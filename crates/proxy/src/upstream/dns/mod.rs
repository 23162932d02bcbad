//! Resolves the host names of targets in the background, so that no request waits for DNS.
//!
//! Each name has one task in the process. It publishes the addresses, and the workers connect to these. Connections
//! that fail are reported to the task, which then resolves the name again before its TTL ends.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

mod client;
mod lookup;
mod pending;
mod probe;
mod resolver;
mod state;
mod task;

use self::pending::PendingName;
pub use self::resolver::{HostLookup, NameTasks, Resolver};
pub(crate) use self::state::ResolvedAddress;

/// The maximum number of failed addresses that wait for the task of their name.
const MAX_REPORTS: usize = 1_024;

/// A name to resolve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DnsName {
    /// A host with A or AAAA records, and a port.
    Host(Box<str>, u16),
    /// A service with SRV records.
    Service(Box<str>),
}

/// A name that is resolved until the last handle is dropped.
pub(crate) struct ResolvedName {
    name: DnsName,
    users: Mutex<Users>,
    /// The addresses that failed to connect, until the task reads them.
    unreachable: Mutex<BTreeSet<SocketAddr>>,
    /// Wakes the task.
    wake: Arc<Notify>,
    /// Counted until the first resolution has ended.
    pending: Mutex<Option<PendingName>>,
}

/// The users of a name, and the addresses that they use.
#[derive(Default)]
struct Users {
    /// `None` until the first resolution has ended.
    addresses: Option<Vec<ResolvedAddress>>,
    all: Vec<User>,
}

/// A user of a name.
struct User {
    /// The owner of the user. The user ends with it.
    owner: Weak<dyn Any + Send + Sync>,
    set_addresses: Box<SetAddresses>,
}

type SetAddresses = dyn Fn(&[ResolvedAddress]) + Send + Sync;

// === impl DnsName ===

/// Writes the name as in metrics and logs.
impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Service(service) => f.write_str(service),
        }
    }
}

// === impl ResolvedName ===

impl ResolvedName {
    fn new(name: DnsName, pending: PendingName) -> Self {
        Self {
            name,
            users: Mutex::default(),
            unreachable: Mutex::default(),
            wake: Arc::default(),
            pending: Mutex::new(Some(pending)),
        }
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &DnsName {
        &self.name
    }

    /// Passes the addresses to a user, now if they are known, and after each change while `owner` exists.
    pub(crate) fn subscribe(
        &self,
        owner: Weak<dyn Any + Send + Sync>,
        set_addresses: impl Fn(&[ResolvedAddress]) + Send + Sync + 'static,
    ) {
        let mut users = self.users.lock();
        users.addresses.iter().for_each(|addresses| set_addresses(addresses));
        users.all.retain(|user| user.owner.strong_count() > 0);
        users.all.push(User { owner, set_addresses: Box::new(set_addresses) });
    }

    /// Reports that no connection to an address could be opened.
    pub(crate) fn report_unreachable(&self, address: SocketAddr) {
        let mut unreachable = self.unreachable.lock();
        if unreachable.len() < MAX_REPORTS && unreachable.insert(address) {
            self.wake.notify_one();
        }
    }

    /// Passes the addresses to all users. Returns `true` if they have changed.
    fn publish(&self, addresses: &[ResolvedAddress]) -> bool {
        // A new user receives the addresses while it subscribes, so the lock is held until all users have them.
        let mut users = self.users.lock();
        let is_new = users.addresses.as_deref() != Some(addresses);
        if is_new {
            users.addresses = Some(addresses.to_vec());
            users.all.iter().for_each(|user| (user.set_addresses)(addresses));
        }
        drop(self.pending.lock().take());
        is_new
    }
}

/// Ends the task.
impl Drop for ResolvedName {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl fmt::Debug for ResolvedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedName").field("name", &self.name).finish_non_exhaustive()
    }
}
