//! What can fail: a store, and the way to it.

mod clock;
mod cluster;
mod server;
mod single;
mod watched;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use tidegate::clock::{Clock, SystemClock};
use tokio::runtime::Runtime;

use self::cluster::Cluster;
use self::server::Server;
use self::single::Single;
use self::watched::Watched;
use super::faults::Fault;

/// How gateways reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One Redis, through a proxy for each gateway.
    Single,
    /// The same by TLS.
    Tls,
    /// A master and its replica, which sentinels watch.
    Sentinel,
    /// Three primaries with a replica each, through a proxy for each of these.
    Cluster,
}

/// A store, and the way to it.
pub enum World {
    Single(Box<Single>),
    Sentinel(Watched),
    Cluster(Cluster),
}

/// Data that was lost.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// All that was not replicated then, in milliseconds of this machine. Whoever had it grants nothing any more.
    At(u64),
    /// Whatever a server granted from then on that was replaced while it lived, until nobody asks it any more.
    Since(u64),
}

impl Kind {
    pub const fn title(self) -> &'static str {
        match self {
            Self::Single => "One Redis",
            Self::Tls => "One Redis, by TLS",
            Self::Sentinel => "A master that sentinels watch",
            Self::Cluster => "A cluster",
        }
    }
}

impl World {
    /// Starts one that keeps its data in this folder; nothing where there is no Redis.
    pub fn start(kind: Kind, folder: &Path, network: &Runtime, deadline: Duration) -> Option<Self> {
        Some(match kind {
            Kind::Single => Self::Single(Box::new(Single::start(Server::start(folder)?, network, deadline))),
            Kind::Tls => Self::Single(Box::new(Single::start(Server::start_with_tls(folder)?, network, deadline))),
            Kind::Sentinel => Self::Sentinel(Watched::start()?),
            Kind::Cluster => Self::Cluster(Cluster::start(network)?),
        })
    }

    /// What the rule file of a gateway says of the store, but for the deadline.
    pub fn rule(&self, gateway: usize) -> String {
        match self {
            Self::Single(single) => single.rule(gateway),
            Self::Sentinel(watched) => watched.rule(),
            Self::Cluster(cluster) => cluster.rule(),
        }
    }

    /// Lets it happen, for so long, to this gateway or server if it is one that it happens to. Says which data was lost, if any
    /// was.
    pub async fn strike(&mut self, fault: Fault, lasts: Duration, victim: usize) -> Option<Loss> {
        match self {
            Self::Single(single) => single.strike(fault, lasts, victim).await,
            Self::Sentinel(watched) => watched.strike(fault, lasts).await,
            Self::Cluster(cluster) => cluster.strike(fault, lasts, victim).await,
        }
    }

    /// Can no server grant any more that was replaced while it lived?
    pub fn is_left(&self) -> bool {
        match self {
            Self::Single(_) => true,
            Self::Sentinel(watched) => watched.is_left(),
            Self::Cluster(cluster) => cluster.is_left(),
        }
    }

    /// A number that each failover raises, by one at least.
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Single(_) => 0,
            Self::Sentinel(watched) => watched.epoch,
            Self::Cluster(cluster) => cluster.epoch(),
        }
    }

    /// Has servers run again that have been replaced, and waits until all is as it should be. Returns whether a server was
    /// replaced meanwhile that nobody had struck, as where the machine was too busy for it.
    pub fn mend(&mut self) -> bool {
        match self {
            Self::Single(_) => false,
            Self::Sentinel(watched) => watched.mend(),
            Self::Cluster(cluster) => cluster.mend(),
        }
    }
}

/// This machine's time, in milliseconds.
fn now() -> u64 {
    SystemClock::new().now().as_millis()
}
