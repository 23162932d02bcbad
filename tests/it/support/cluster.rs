//! A Redis Cluster on free ports, gone with its owner.

#![allow(dead_code, reason = "each user takes what it needs")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Connection, InfoDict, RedisResult, cmd};
use tidegate::metrics::Metrics;
use tidegate::store::Store;
use tidegate::store::settings::{RedisSettings, RedisUrl, StoreSettings};

use super::redis::{RedisServer, free_port_of_node, wait_a_little};
use super::tls::Authority;

const SLOTS: usize = 16_384;

/// Some primaries that share the slots, and a replica of each if there are any.
pub struct RedisCluster {
    /// The primaries, then their replicas in the same order.
    pub nodes: Vec<RedisServer>,
    /// How many of them are primaries.
    pub primaries: usize,
    /// The ports at which they are reached by TLS; none if they are not.
    tls_ports: Vec<u16>,
    folder: PathBuf,
}

impl RedisCluster {
    /// Starts three primaries, and waits until they know of each other.
    pub fn start() -> Option<Self> {
        Self::start_with(3, false)
    }

    /// Starts so many primaries, each with a replica or none.
    pub fn start_with(primaries: usize, replicas: bool) -> Option<Self> {
        let cluster = Self::spawn(primaries, if replicas { 2 * primaries } else { primaries }, None)?;
        cluster.join();
        Some(cluster)
    }

    /// Starts three primaries that talk to each other by TLS, and to whoever comes by it, with this certificate.
    pub fn start_with_tls(authority: &Authority, certificate: &str) -> Option<Self> {
        let cluster = Self::spawn(3, 3, Some(&authority.server_settings(certificate, "no")?))?;
        cluster.join();
        Some(cluster)
    }

    /// Starts three nodes that do not know of each other yet.
    pub fn start_alone() -> Option<Self> {
        Self::spawn(3, 3, None)
    }

    /// Nobody yet, of whom so many will be primaries.
    pub fn of_nobody(primaries: usize) -> Self {
        Self { nodes: Vec::new(), primaries, tls_ports: Vec::new(), folder: folder() }
    }

    /// Where a node may keep its data.
    pub fn folder_of(&self, number: usize) -> String {
        let folder = self.folder.join(number.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        folder.display().to_string()
    }

    fn spawn(primaries: usize, count: usize, tls: Option<&[String]>) -> Option<Self> {
        let mut cluster = Self::of_nobody(primaries);
        for _ in 0..count {
            let node = cluster.node(tls)?;
            cluster.nodes.push(node);
        }
        Some(cluster)
    }

    fn node(&mut self, tls: Option<&[String]>) -> Option<RedisServer> {
        let file = format!("{}.conf", self.nodes.len());
        let settings = ["--cluster-config-file", &file, "--dir", self.folder.to_str()?];
        let more = ["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no", "--appendonly", "no"];
        let replication = ["--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"];
        let settings = [&settings[..], &more, &replication].concat();
        let Some(tls) = tls else { return RedisServer::start_node(&settings) };
        // Nodes name each other by that port, and talk to each other at one that goes by it.
        let port = free_port_of_node();
        self.tls_ports.push(port);
        let (port, mut all) = (port.to_string(), settings);
        all.extend(["--tls-cluster", "yes", "--tls-replication", "yes", "--tls-port", &port]);
        all.extend(tls.iter().map(String::as_str));
        RedisServer::start_node(&all)
    }

    /// The ports by which nodes name each other.
    pub fn ports(&self) -> Vec<u16> {
        match self.tls_ports.is_empty() {
            true => self.nodes.iter().map(|node| node.port).collect(),
            false => self.tls_ports.clone(),
        }
    }

    /// Makes a cluster of nodes that do not know of each other yet.
    pub fn join(&self) {
        let share = SLOTS.div_ceil(self.primaries);
        for (number, node) in self.nodes.iter().enumerate() {
            let mut redis = node.connection();
            cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(number + 1).exec(&mut redis).expect("an epoch");
            if number < self.primaries {
                let slots: Vec<usize> = (number * share..((number + 1) * share).min(SLOTS)).collect();
                cmd("CLUSTER").arg("ADDSLOTS").arg(slots).exec(&mut redis).expect("slots");
            }
            for other in &self.ports()[..number] {
                cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(*other).exec(&mut redis).expect("met");
            }
        }
        let knows_all = |node: &RedisServer| known_by(node) == self.nodes.len();
        wait_for("they know of each other", || self.nodes.iter().all(knows_all));
        for number in self.primaries..self.nodes.len() {
            let primary = self.id(number - self.primaries);
            let replicate = || cmd("CLUSTER").arg("REPLICATE").arg(&primary).exec(&mut self.nodes[number].connection());
            wait_for("it replicates", || replicate().is_ok());
        }
        wait_for("all is well", || self.nodes.iter().all(|node| self.is_well(node)));
    }

    /// Does it find all slots served, and have all that its primary has, if it is a replica?
    pub fn is_well(&self, node: &RedisServer) -> bool {
        let mut redis = node.connection();
        let info: String = cmd("CLUSTER").arg("INFO").query(&mut redis).expect("state");
        let replication: String = cmd("INFO").arg("replication").query(&mut redis).expect("state");
        let knows = format!("cluster_size:{}", self.primaries);
        info.contains("cluster_state:ok") && info.contains(&knows) && !replication.contains("master_link_status:down")
    }

    /// The id of a node.
    pub fn id(&self, number: usize) -> String {
        cmd("CLUSTER").arg("MYID").query(&mut self.nodes[number].connection()).expect("an id")
    }

    /// The number of the primary that has a slot at the start.
    pub fn owner_of(&self, slot: u16) -> usize {
        usize::from(slot) / SLOTS.div_ceil(self.primaries)
    }

    /// The slot of a key, as Redis says.
    pub fn slot_of(&self, key: &str) -> u16 {
        cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut self.nodes[0].connection()).expect("a slot")
    }

    /// The slots of a primary in which there are keys.
    pub fn slots_with_keys(&self, number: usize) -> Vec<u16> {
        let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut self.nodes[number].connection()).expect("keys");
        let mut slots: Vec<u16> = keys.iter().map(|key| self.slot_of(key)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Has the replica of this primary all that it has?
    pub fn has_replicated(&self, number: usize) -> bool {
        self.lag(number, number + self.primaries) == 0
    }

    /// How much less a replica has, in bytes.
    pub fn lag(&self, primary: usize, replica: usize) -> u64 {
        let offset = |number: usize, field: &str| {
            let info: InfoDict =
                cmd("INFO").arg("replication").query(&mut self.nodes[number].connection()).expect("state");
            info.get::<u64>(field)
        };
        let has = offset(replica, "slave_repl_offset").unwrap_or(0);
        offset(primary, "master_repl_offset").unwrap_or(u64::MAX).saturating_sub(has)
    }

    /// Begins to move a slot from one primary to another.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.id(from), self.id(to));
        setslot(&mut self.nodes[to].connection(), slot, "IMPORTING", &source).expect("importing");
        setslot(&mut self.nodes[from].connection(), slot, "MIGRATING", &target).expect("migrating");
    }

    /// Moves all keys of a slot.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        self.move_keys_by(10, slot, from, to);
    }

    /// The same, each in a call of its own.
    pub fn move_one_by_one(&self, slot: u16, from: usize, to: usize) {
        self.move_keys_by(1, slot, from, to);
    }

    fn move_keys_by(&self, at_a_time: u32, slot: u16, from: usize, to: usize) {
        let (mut source, port) = (self.nodes[from].connection(), self.ports()[to]);
        loop {
            let keys: Vec<String> =
                cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(at_a_time).query(&mut source).expect("keys");
            if keys.is_empty() {
                return;
            }
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5_000).arg("KEYS").arg(keys);
            migrate.exec(&mut source).expect("moved");
        }
    }

    /// The slot stays where it is.
    pub fn give_up_move(&self, slot: u16, from: usize, to: usize) {
        for number in [from, to] {
            let mut stay = cmd("CLUSTER");
            stay.arg("SETSLOT").arg(slot).arg("STABLE").exec(&mut self.nodes[number].connection()).expect("it stays");
        }
    }

    /// From now on the slot is at the other primary.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let others = (0..self.primaries).filter(|one| *one != to && *one != from);
        self.give(slot, to, [to, from].into_iter().chain(others));
    }

    /// The same, told to all of these, in this order.
    pub fn give(&self, slot: u16, to: usize, told: impl Iterator<Item = usize>) {
        let target = self.id(to);
        for number in told {
            setslot(&mut self.nodes[number].connection(), slot, "NODE", &target).expect("a new owner");
        }
    }

    /// What a rule file says of it, with this timeout.
    pub fn rule(&self, timeout: &str) -> String {
        let urls: Vec<_> = self.nodes.iter().map(|node| format!("'{}'", node.url())).collect();
        format!("{{ cluster: [{}], timeout: {timeout} }}", urls.join(", "))
    }

    /// A store in it.
    pub fn store(&self) -> Store {
        self.store_with_timeout(Duration::from_secs(10))
    }

    /// A store in it whose decisions are waited for so long.
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

/// How often a node was asked to run a script.
pub fn calls(node: &RedisServer) -> u64 {
    let stats: String = cmd("INFO").arg("commandstats").query(&mut node.connection()).expect("statistics");
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    let is_script = |line: &&str| line.starts_with("cmdstat_eval") || line.starts_with("cmdstat_fcall");
    stats.lines().filter(is_script).filter_map(calls).sum()
}

/// How often a node answered with this error.
pub fn errors(node: &RedisServer, word: &str) -> u64 {
    let stats: String = cmd("INFO").arg("errorstats").query(&mut node.connection()).expect("statistics");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{word}:count=")));
    line.map_or(0, |count| count.trim().parse().expect("a number"))
}

/// How many nodes it knows, itself included.
fn known_by(node: &RedisServer) -> usize {
    let nodes: String = cmd("CLUSTER").arg("NODES").query(&mut node.connection()).expect("nodes");
    nodes.lines().filter(|line| !line.contains("handshake")).count()
}

fn setslot(redis: &mut Connection, slot: u16, what: &str, node: &str) -> RedisResult<()> {
    cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(what).arg(node).exec(redis)
}

/// Waits until it is so.
pub fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        wait_a_little();
    }
    panic!("not within half a minute: {what}");
}

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tidegate-cluster-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}
