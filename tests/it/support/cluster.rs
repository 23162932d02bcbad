//! A Redis Cluster on free ports. Dropping it stops the nodes and removes their files.

#![allow(dead_code, reason = "each user needs only some of the items")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Connection, InfoDict, RedisResult, cmd};
use tidegate::{Metrics, Store};
use tidegate_rules::settings::store::{RedisSettings, RedisUrl, StoreSettings};

use super::redis::{RedisServer, free_port_of_node, wait_for};
use super::tls::Authority;

const HASH_SLOTS: usize = 16_384;

/// Primaries that share the hash slots, each with one replica or none.
pub struct RedisCluster {
    /// The primaries, then their replicas in the same order.
    pub nodes: Vec<RedisServer>,
    /// The number of primaries in `nodes`.
    pub primaries: usize,
    /// The TLS port of each node; empty without TLS.
    tls_ports: Vec<u16>,
    folder: PathBuf,
}

impl RedisCluster {
    /// Starts three primaries, and waits until they form a cluster.
    pub fn start() -> Option<Self> {
        Self::start_with(3, false)
    }

    /// Starts `primaries` primaries, each with a replica if `replicas` is set.
    pub fn start_with(primaries: usize, replicas: bool) -> Option<Self> {
        let cluster = Self::spawn(primaries, if replicas { 2 * primaries } else { primaries }, None)?;
        cluster.join();
        Some(cluster)
    }

    /// Starts three primaries with this certificate. They use TLS among themselves and for clients.
    pub fn start_with_tls(authority: &Authority, certificate: &str) -> Option<Self> {
        let cluster = Self::spawn(3, 3, Some(&authority.redis_arguments(certificate, "no")?))?;
        cluster.join();
        Some(cluster)
    }

    /// Starts three nodes that are not joined to a cluster yet.
    pub fn start_alone() -> Option<Self> {
        Self::spawn(3, 3, None)
    }

    /// Creates a cluster without nodes; the caller adds `primaries` primaries and their replicas.
    pub fn without_nodes(primaries: usize) -> Self {
        Self { nodes: Vec::new(), primaries, tls_ports: Vec::new(), folder: folder() }
    }

    /// Creates and returns a folder for the data of a node.
    pub fn folder_of(&self, number: usize) -> String {
        let folder = self.folder.join(number.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        folder.display().to_string()
    }

    fn spawn(primaries: usize, count: usize, tls: Option<&[String]>) -> Option<Self> {
        let mut cluster = Self::without_nodes(primaries);
        for _ in 0..count {
            let node = cluster.start_node(tls, count > primaries)?;
            cluster.nodes.push(node);
        }
        Some(cluster)
    }

    fn start_node(&mut self, tls: Option<&[String]>, fails_over: bool) -> Option<RedisServer> {
        let file = format!("{}.conf", self.nodes.len());
        let settings = ["--cluster-config-file", &file, "--dir", self.folder.to_str()?];
        // On a busy machine a node may be silent for more than a second.
        let timeout = if fails_over { "1000" } else { "10000" };
        let more = ["--cluster-node-timeout", timeout, "--cluster-require-full-coverage", "no", "--appendonly", "no"];
        let replication = ["--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"];
        let settings = [&settings[..], &more, &replication].concat();
        let Some(tls) = tls else { return RedisServer::start_node(&settings) };
        // The nodes announce this port. Their bus port is derived from it.
        let port = free_port_of_node();
        self.tls_ports.push(port);
        let (port, mut all) = (port.to_string(), settings);
        all.extend(["--tls-cluster", "yes", "--tls-replication", "yes", "--tls-port", &port]);
        all.extend(tls.iter().map(String::as_str));
        RedisServer::start_node(&all)
    }

    /// Returns the ports that the nodes announce to each other.
    pub fn ports(&self) -> Vec<u16> {
        match self.tls_ports.is_empty() {
            true => self.nodes.iter().map(|node| node.port).collect(),
            false => self.tls_ports.clone(),
        }
    }

    /// Joins the nodes to a cluster, and waits until all of them are healthy.
    pub fn join(&self) {
        let share = HASH_SLOTS.div_ceil(self.primaries);
        for (number, node) in self.nodes.iter().enumerate() {
            let mut redis = node.connection();
            cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(number + 1).exec(&mut redis).expect("an epoch");
            if number < self.primaries {
                let slots: Vec<usize> = (number * share..((number + 1) * share).min(HASH_SLOTS)).collect();
                cmd("CLUSTER").arg("ADDSLOTS").arg(slots).exec(&mut redis).expect("slots");
            }
            for other in &self.ports()[..number] {
                cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(*other).exec(&mut redis).expect("met");
            }
        }
        let knows_all = |node: &RedisServer| known_nodes(node) == self.nodes.len();
        wait_for("the nodes know each other", || self.nodes.iter().all(knows_all));
        for number in self.primaries..self.nodes.len() {
            let primary = self.id(number - self.primaries);
            let replicate = || cmd("CLUSTER").arg("REPLICATE").arg(&primary).exec(&mut self.nodes[number].connection());
            wait_for("a replica accepts its primary", || replicate().is_ok());
        }
        wait_for("all nodes are healthy", || self.nodes.iter().all(|node| self.is_healthy(node)));
    }

    /// Returns `true` if the node sees all hash slots served and, for a replica, is connected to its primary.
    pub fn is_healthy(&self, node: &RedisServer) -> bool {
        let mut redis = node.connection();
        let info: String = cmd("CLUSTER").arg("INFO").query(&mut redis).expect("state");
        let replication: String = cmd("INFO").arg("replication").query(&mut redis).expect("state");
        let knows = format!("cluster_size:{}", self.primaries);
        info.contains("cluster_state:ok") && info.contains(&knows) && !replication.contains("master_link_status:down")
    }

    /// Returns the cluster id of a node.
    pub fn id(&self, number: usize) -> String {
        cmd("CLUSTER").arg("MYID").query(&mut self.nodes[number].connection()).expect("an id")
    }

    /// Returns the number of the primary that owns a hash slot after [`join`](Self::join).
    pub fn owner_of(&self, slot: u16) -> usize {
        usize::from(slot) / HASH_SLOTS.div_ceil(self.primaries)
    }

    /// Asks Redis for the hash slot of a key.
    pub fn hash_slot_of(&self, key: &str) -> u16 {
        cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut self.nodes[0].connection()).expect("a slot")
    }

    /// Returns the hash slots of a primary that contain keys.
    pub fn slots_with_keys(&self, number: usize) -> Vec<u16> {
        let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut self.nodes[number].connection()).expect("keys");
        let mut slots: Vec<u16> = keys.iter().map(|key| self.hash_slot_of(key)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Returns `true` if the replica of this primary has no replication lag.
    pub fn has_replicated(&self, number: usize) -> bool {
        self.lag(number, number + self.primaries) == 0
    }

    /// Returns the replication lag of a replica, in bytes.
    pub fn lag(&self, primary: usize, replica: usize) -> u64 {
        let offset = |number: usize, field: &str| {
            let info: InfoDict =
                cmd("INFO").arg("replication").query(&mut self.nodes[number].connection()).expect("state");
            info.get::<u64>(field)
        };
        let has = offset(replica, "slave_repl_offset").unwrap_or(0);
        offset(primary, "master_repl_offset").unwrap_or(u64::MAX).saturating_sub(has)
    }

    /// Begins the migration of a hash slot from one primary to another.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.id(from), self.id(to));
        set_slot(&mut self.nodes[to].connection(), slot, "IMPORTING", &source).expect("importing");
        set_slot(&mut self.nodes[from].connection(), slot, "MIGRATING", &target).expect("migrating");
    }

    /// Moves all keys of a hash slot, ten in each call.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        self.move_keys_in_batches(10, slot, from, to);
    }

    /// Moves all keys of a hash slot, one in each call.
    pub fn move_keys_one_by_one(&self, slot: u16, from: usize, to: usize) {
        self.move_keys_in_batches(1, slot, from, to);
    }

    fn move_keys_in_batches(&self, batch: u32, slot: u16, from: usize, to: usize) {
        let (mut source, port) = (self.nodes[from].connection(), self.ports()[to]);
        loop {
            let keys: Vec<String> =
                cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(batch).query(&mut source).expect("keys");
            if keys.is_empty() {
                return;
            }
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5_000).arg("KEYS").arg(keys);
            migrate.exec(&mut source).expect("moved");
        }
    }

    /// Aborts the migration: the hash slot keeps its owner.
    pub fn abort_move(&self, slot: u16, from: usize, to: usize) {
        for number in [from, to] {
            let mut abort = cmd("CLUSTER");
            abort.arg("SETSLOT").arg(slot).arg("STABLE").exec(&mut self.nodes[number].connection()).expect("aborted");
        }
    }

    /// Finishes the migration: all primaries learn the new owner of the hash slot.
    pub fn finish_move(&self, slot: u16, from: usize, to: usize) {
        let others = (0..self.primaries).filter(|one| *one != to && *one != from);
        self.announce_owner(slot, to, [to, from].into_iter().chain(others));
    }

    /// Announces the owner of a hash slot to these nodes, in this order.
    pub fn announce_owner(&self, slot: u16, owner: usize, nodes: impl Iterator<Item = usize>) {
        let target = self.id(owner);
        for number in nodes {
            set_slot(&mut self.nodes[number].connection(), slot, "NODE", &target).expect("a new owner");
        }
    }

    /// Returns the `store` of a rule file for this cluster, with this timeout.
    pub fn rule(&self, timeout: &str) -> String {
        let urls: Vec<_> = self.nodes.iter().map(|node| format!("'{}'", node.url())).collect();
        format!("{{ cluster: [{}], timeout: {timeout} }}", urls.join(", "))
    }

    /// Opens a store in this cluster, with a timeout that a busy machine meets.
    pub fn store(&self) -> Store {
        self.store_with_timeout(Duration::from_secs(10))
    }

    /// Opens a store in this cluster with this timeout for a decision.
    pub fn store_with_timeout(&self, timeout: Duration) -> Store {
        let cluster = self.nodes.iter().map(|node| RedisUrl::new(node.url())).collect();
        let settings = RedisSettings { timeout, cluster, ..RedisSettings::new(RedisUrl::new(self.nodes[0].url())) };
        Store::open(&StoreSettings::Redis(settings), Arc::new(Metrics::new())).expect("a store")
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        self.nodes.clear();
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the number of error replies of a node with this error code.
pub fn errors(node: &RedisServer, code: &str) -> u64 {
    let stats: String = cmd("INFO").arg("errorstats").query(&mut node.connection()).expect("statistics");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
    line.map_or(0, |count| count.trim().parse().expect("a number"))
}

/// Returns the number of nodes that a node knows, including itself.
fn known_nodes(node: &RedisServer) -> usize {
    let nodes: String = cmd("CLUSTER").arg("NODES").query(&mut node.connection()).expect("nodes");
    nodes.lines().filter(|line| !line.contains("handshake")).count()
}

fn set_slot(redis: &mut Connection, slot: u16, state: &str, node: &str) -> RedisResult<()> {
    cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(node).exec(redis)
}

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tidegate-cluster-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}
