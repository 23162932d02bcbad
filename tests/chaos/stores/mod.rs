//! Stores into which faults can be injected, together with the network in front of them.

mod clock;
mod cluster;
mod sentinel;
mod server;
mod single;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use tidegate::Clock;
use tidegate_limit::clock::SystemClock;
use tokio::runtime::Runtime;

use self::cluster::Cluster;
use self::sentinel::SentinelStore;
use self::server::Server;
use self::single::SingleStore;
use super::faults::Fault;

/// How gateways reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// One Redis, through a proxy for each gateway.
    Single,
    /// One Redis with TLS, through a proxy for each gateway.
    Tls,
    /// A master and its replica with Sentinel, without proxies.
    Sentinel,
    /// A cluster of three primaries and three replicas, through a proxy for each node.
    Cluster,
}

/// A store and the network in front of it.
pub enum FaultyStore {
    Single(Box<SingleStore>),
    Sentinel(SentinelStore),
    Cluster(Cluster),
}

/// A loss of data. Times are in milliseconds of this machine's clock.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// A server died at this time and lost everything that was not replicated or written.
    At(u64),
    /// A running server was replaced at this time or later. Its grants are lost until all gateways have left it.
    Since(u64),
}

impl StoreKind {
    pub const fn title(self) -> &'static str {
        match self {
            Self::Single => "Single Redis",
            Self::Tls => "Single Redis with TLS",
            Self::Sentinel => "Master with Sentinel",
            Self::Cluster => "Cluster",
        }
    }
}

impl FaultyStore {
    /// Starts a store with its data in `folder`. Returns `None` if Redis is not installed.
    pub fn start(kind: StoreKind, folder: &Path, network: &Runtime, deadline: Duration) -> Option<Self> {
        Some(match kind {
            StoreKind::Single => Self::Single(Box::new(SingleStore::start(Server::start(folder)?, network, deadline))),
            StoreKind::Tls => {
                Self::Single(Box::new(SingleStore::start(Server::start_with_tls(folder)?, network, deadline)))
            }
            StoreKind::Sentinel => Self::Sentinel(SentinelStore::start()?),
            StoreKind::Cluster => Self::Cluster(Cluster::start(network)?),
        })
    }

    /// Returns the `store` entry of a gateway's rule file, without the deadline.
    pub fn rule(&self, gateway: usize) -> String {
        match self {
            Self::Single(single) => single.rule(gateway),
            Self::Sentinel(store) => store.rule(),
            Self::Cluster(cluster) => cluster.rule(),
        }
    }

    /// Injects a fault for the duration `lasts`. Faults of one gateway or one server hit the one with the number
    /// `victim`. Returns the loss of data, if there was one.
    pub async fn inject(&mut self, fault: Fault, lasts: Duration, victim: usize) -> Option<Loss> {
        match self {
            Self::Single(single) => single.inject(fault, lasts, victim).await,
            Self::Sentinel(store) => store.inject(fault, lasts).await,
            Self::Cluster(cluster) => cluster.inject(fault, lasts, victim).await,
        }
    }

    /// Returns `true` if no server that was replaced while it ran can still grant.
    pub fn is_replacement_complete(&self) -> bool {
        match self {
            Self::Single(_) => true,
            Self::Sentinel(store) => store.is_replacement_complete(),
            Self::Cluster(cluster) => cluster.is_replacement_complete(),
        }
    }

    /// Returns a number that each failover increases by at least one.
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Single(_) => 0,
            Self::Sentinel(store) => store.epoch,
            Self::Cluster(cluster) => cluster.epoch(),
        }
    }

    /// Restarts dead servers and waits until the store is healthy. Returns `true` if there was a further failover in
    /// the meantime, for example because the machine was too busy.
    pub fn repair(&mut self) -> bool {
        match self {
            Self::Single(_) => false,
            Self::Sentinel(store) => store.repair(),
            Self::Cluster(cluster) => cluster.repair(),
        }
    }
}

/// Returns this machine's time, in milliseconds.
fn now() -> u64 {
    SystemClock::new().now().as_millis()
}
