//! A Redis Cluster of three primaries with a replica each, and a proxy in front of each node.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use deadpool_redis::redis::cmd;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::super::cluster::RedisCluster;
use super::super::faults::Fault;
use super::super::proxy::FaultyProxy;
use super::super::redis::{RedisServer, free_port_of_node, wait_for};
use super::sentinel::{flush_scripts, hang, is_master, kill_connections, use_up_memory};
use super::{Loss, now};

const PRIMARIES: usize = 3;
/// Milliseconds after which nodes consider an unreachable node dead.
const NODE_TIMEOUT: &str = "2000";
/// Milliseconds after which a replica gives up a requested failover.
const FAILOVER_TIMEOUT: u64 = 5_000;
const HESITATION: Duration = Duration::from_millis(800);
/// A replica that lags at most this many bytes behind its primary counts as up to date.
const MAX_LAG: u64 = 20_000;

/// A cluster into which faults can be injected. Nodes have the numbers 0 to 5.
pub struct Cluster {
    cluster: RedisCluster,
    /// A proxy for each node, whose address the node announces.
    proxies: Vec<FaultyProxy>,
    ids: Vec<String>,
    /// The node that has been killed.
    dead: Option<usize>,
    /// The owners of slots after the last fault, with their configuration epochs: a failover assigns a new epoch.
    last_owners: BTreeMap<usize, u64>,
}

impl Cluster {
    pub fn start(network: &Runtime) -> Option<Self> {
        let (mut cluster, mut proxies) = (RedisCluster::without_nodes(PRIMARIES), Vec::new());
        for number in 0..2 * PRIMARIES {
            let port = free_port_of_node();
            let proxy = network.block_on(FaultyProxy::start(port));
            cluster.nodes.push(start_node(&cluster, number, port, proxy.port)?);
            proxies.push(proxy);
        }
        cluster.join();
        let ids = (0..2 * PRIMARIES).map(|number| cluster.id(number)).collect();
        let mut cluster = Self { cluster, proxies, ids, dead: None, last_owners: BTreeMap::new() };
        cluster.last_owners = cluster.owners_with_epochs(0);
        Some(cluster)
    }

    pub fn rule(&self) -> String {
        let urls: Vec<_> = self.proxies.iter().map(|proxy| format!("'redis://127.0.0.1:{}'", proxy.port)).collect();
        format!("cluster: [{}]", urls.join(", "))
    }

    /// Injects a fault into one of the owners of slots.
    pub async fn inject(&mut self, fault: Fault, lasts: Duration, victim: usize) -> Option<Loss> {
        let owners: Vec<usize> = self.owners(0).into_iter().collect();
        let (victim, next) = (owners[victim % owners.len()], owners[(victim + 1) % owners.len()]);
        let begin = now();
        let loss = self.inject_into(fault, lasts, victim, next).await;
        // Asks another node: a replaced node may not know the new owner yet.
        let (before, after) = (mem::take(&mut self.last_owners), self.owners_with_epochs(next));
        self.last_owners = after;
        let is_expected = loss.is_some() || matches!(fault, Fault::FailoverAsked | Fault::SlotsMoved);
        let changed = self.last_owners.iter().filter(|(node, epoch)| before.get(node) != Some(epoch)).count();
        // An unexpected failover may have lost data.
        if changed > usize::from(is_expected) { Some(Loss::Since(begin)) } else { loss }
    }

    async fn inject_into(&mut self, fault: Fault, lasts: Duration, victim: usize, next: usize) -> Option<Loss> {
        let (node, proxy) = (&self.cluster.nodes[victim], &self.proxies[victim]);
        match fault {
            Fault::Replaced => {
                self.wait_for_replica(victim);
                node.signal("KILL");
                let killed = now() + 5;
                self.dead = Some(victim);
                self.wait_for_failover(victim);
                return Some(Loss::At(killed));
            }
            Fault::StoppedUntilReplaced => {
                self.wait_for_replica(victim);
                node.signal("STOP");
                let stopped = now();
                self.wait_for_failover(victim);
                // The node believes that it is the primary until it learns about the new one.
                node.signal("CONT");
                return Some(Loss::Since(stopped));
            }
            Fault::Restarted => return self.restart(victim),
            Fault::Hesitates => {
                let begin = now();
                hang(&[node], lasts.min(HESITATION)).await;
                return (!self.owners(next).contains(&victim)).then_some(Loss::Since(begin));
            }
            Fault::FailoverAsked => self.fail_over(victim),
            Fault::SlotsMoved => self.move_slots(victim, next),
            Fault::NodeSilent => {
                proxy.blackhole();
                sleep(lasts).await;
                proxy.heal();
            }
            Fault::HalfOpen => {
                self.proxies.iter().for_each(FaultyProxy::half_open);
                sleep(lasts).await;
                self.proxies.iter().for_each(FaultyProxy::heal);
            }
            Fault::NodeSlow => {
                proxy.delay(15, 30);
                sleep(lasts).await;
                proxy.heal();
            }
            Fault::ConnectionsKilled => {
                let nodes: Vec<_> = self.owners(next).into_iter().map(|owner| &self.cluster.nodes[owner]).collect();
                kill_connections(&nodes, lasts).await;
            }
            Fault::ScriptsFlushed => flush_scripts(&mut node.connection(), lasts).await,
            Fault::OutOfMemory => use_up_memory(node, lasts).await,
            fault => unreachable!("{}: not a fault of a cluster", fault.title()),
        }
        None
    }

    /// Kills a primary and restarts it with its data. It remains the primary if it is back before its replica takes
    /// over.
    fn restart(&mut self, victim: usize) -> Option<Loss> {
        self.cluster.nodes[victim].signal("KILL");
        let killed = now() + 5;
        self.start_again(victim);
        let viewer = self.other_than(victim);
        let is_replaced = || !self.owners(viewer).contains(&victim);
        wait_for("the node is in the cluster again", || is_replaced() || self.is_ok(victim));
        is_replaced().then_some(Loss::At(killed))
    }

    fn start_again(&mut self, number: usize) {
        let (port, proxy) = (self.cluster.nodes[number].port, self.proxies[number].port);
        self.cluster.nodes[number] = start_node(&self.cluster, number, port, proxy).expect("a Redis");
    }

    /// Moves every other slot that has keys to another node.
    fn move_slots(&self, from: usize, to: usize) {
        let owners = self.owners(to);
        for slot in self.cluster.slots_with_keys(from).into_iter().step_by(2) {
            self.cluster.begin_move(slot, from, to);
            self.cluster.move_keys(slot, from, to);
            let others = owners.iter().copied().filter(|owner| *owner != to && *owner != from);
            self.cluster.announce_owner(slot, to, [to, from].into_iter().chain(others));
        }
    }

    /// Returns the owners of slots from the view of the node `viewer`.
    fn owners(&self, viewer: usize) -> BTreeSet<usize> {
        self.owners_with_epochs(viewer).into_keys().collect()
    }

    /// Returns the owners of slots and their configuration epochs from the view of the node `viewer`.
    fn owners_with_epochs(&self, viewer: usize) -> BTreeMap<usize, u64> {
        let reply = self.nodes(viewer);
        let words = reply.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let owners = words.filter(|words| words.len() > 8 && words[2].contains("master"));
        owners.filter_map(|words| Some((self.number(words[0])?, words[6].parse().ok()?))).collect()
    }

    /// Returns the replica of a primary.
    fn replica_of(&self, primary: usize) -> usize {
        self.known_replica_of(primary).expect("a replica")
    }

    fn known_replica_of(&self, primary: usize) -> Option<usize> {
        let reply = self.nodes(primary);
        let is_replica = |line: &&str| line.contains("slave") && line.split(' ').nth(3) == Some(&self.ids[primary]);
        let id = reply.lines().find(is_replica).and_then(|line| line.split(' ').next());
        id.and_then(|id| self.number(id))
    }

    fn nodes(&self, viewer: usize) -> String {
        cmd("CLUSTER").arg("NODES").query(&mut self.cluster.nodes[viewer].connection()).expect("nodes")
    }

    fn number(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|known| known == id)
    }

    fn other_than(&self, node: usize) -> usize {
        (node + 1) % self.ids.len()
    }

    fn is_ok(&self, node: usize) -> bool {
        let info: String = cmd("CLUSTER").arg("INFO").query(&mut self.cluster.nodes[node].connection()).expect("state");
        info.contains("cluster_state:ok")
    }

    /// Requests a failover to the replica. Nothing is lost: the primary pauses until its replica is up to date.
    /// Requests it again if the replica gives up for lack of votes.
    fn fail_over(&self, victim: usize) {
        let (replica, requested) = (self.replica_of(victim), Cell::new(None::<u64>));
        let request = || cmd("CLUSTER").arg("FAILOVER").exec(&mut self.cluster.nodes[replica].connection());
        wait_for("the requested failover is complete", || {
            if requested.get().is_none_or(|requested| now() > requested + FAILOVER_TIMEOUT) && request().is_ok() {
                requested.set(Some(now()));
            }
            self.is_replaced(victim)
        });
    }

    /// Waits until the replica has taken over by itself.
    fn wait_for_failover(&self, victim: usize) {
        wait_for("the replica has taken over", || self.is_replaced(victim));
    }

    /// Returns `true` if all other nodes know that the replica has taken over.
    fn is_replaced(&self, victim: usize) -> bool {
        let others = (0..self.ids.len()).filter(|node| *node != victim);
        others.map(|node| self.owners(node)).all(|owners| owners.len() == PRIMARIES && !owners.contains(&victim))
    }

    /// Waits until the replica is nearly up to date.
    fn wait_for_replica(&self, primary: usize) {
        let replica = self.replica_of(primary);
        wait_for("the replica is up to date", || self.cluster.lag(primary, replica) < MAX_LAG);
    }

    /// Returns the highest configuration epoch.
    pub fn epoch(&self) -> u64 {
        self.last_owners.values().copied().max().unwrap_or(0)
    }

    /// Returns `true` if every node that owns no slots is a replica.
    pub fn is_replacement_complete(&self) -> bool {
        let replaced = |number: &usize| !self.last_owners.contains_key(number) && Some(*number) != self.dead;
        (0..self.ids.len()).filter(replaced).all(|number| !is_master(&self.cluster.nodes[number]))
    }

    pub fn repair(&mut self) -> bool {
        if let Some(dead) = self.dead.take() {
            self.start_again(dead);
        }
        let is_healthy = || self.cluster.nodes.iter().all(|node| self.cluster.is_healthy(node));
        wait_for("the cluster is healthy", || is_healthy() && self.all_agree());
        let (before, after) = (mem::take(&mut self.last_owners), self.owners_with_epochs(0));
        self.last_owners = after;
        self.last_owners != before
    }

    /// Returns `true` if all nodes agree on the owners of slots, and each owner has a replica.
    fn all_agree(&self) -> bool {
        let owners = self.owners(0);
        let others = (1..self.ids.len()).all(|node| self.owners(node) == owners);
        others && owners.len() == PRIMARIES && owners.iter().all(|owner| self.known_replica_of(*owner).is_some())
    }
}

fn start_node(cluster: &RedisCluster, number: usize, port: u16, announced: u16) -> Option<RedisServer> {
    let folder = cluster.folder_of(number);
    let (announced, bus) = (announced.to_string(), (port + 10_000).to_string());
    let node = ["--cluster-enabled", "yes", "--dir", &folder, "--cluster-node-timeout", NODE_TIMEOUT];
    let address = ["--cluster-announce-port", &announced, "--cluster-announce-bus-port", &bus];
    let failover = ["--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0"];
    let replication = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "3", "--repl-ping-replica-period", "1"];
    let persistence = ["--appendonly", "yes", "--appendfsync", "no"];
    RedisServer::start_with(Some(port), &[&node[..], &address, &failover, &replication, &persistence].concat())
}
