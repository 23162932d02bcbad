//! A master, its replica and three sentinels that watch them, on free ports, gone with their owner.

#![allow(dead_code, reason = "each user takes what it needs")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use deadpool_redis::redis::{RedisResult, cmd};

use super::redis::{RedisServer, wait_a_little};

/// What the sentinels call the master.
pub const MASTER: &str = "limits";

/// What makes a sentinel tell names.
pub const BY_NAME: &str = "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes";

const LOOPBACK: &str = "127.0.0.1";

/// What a sentinel says of somebody.
type About = HashMap<String, String>;

/// Redis Sentinel as it is run in earnest, but for its haste.
pub struct Watched {
    /// The first master, and its replica.
    pub servers: Vec<RedisServer>,
    /// Who watch them.
    pub sentinels: Vec<RedisServer>,
    folder: PathBuf,
}

impl Watched {
    /// Starts all of them, and waits until they know of each other.
    pub fn start() -> Option<Self> {
        Self::start_with(&[], LOOPBACK, "")
    }

    /// The same, but they tell names instead of addresses.
    pub fn start_by_name() -> Option<Self> {
        Self::start_with(&["--replica-announce-ip", "localhost"], "localhost", BY_NAME)
    }

    /// The same with servers that have more arguments and are at this host, and sentinels that are told more.
    pub fn start_with(servers: &[&str], host: &str, sentinels: &str) -> Option<Self> {
        let folder = folder();
        let master = server(&folder, "first", servers)?;
        let replicates = ["--replicaof", host, &master.port.to_string()];
        let replica = server(&folder, "second", &[&replicates, servers].concat())?;
        let mut watched = Self { servers: vec![master, replica], sentinels: Vec::new(), folder };
        for number in 0..3 {
            let sentinel = watched.sentinel_at(host, &format!("{number}"), watched.servers[0].port, sentinels)?;
            watched.sentinels.push(sentinel);
        }
        wait_for("they know of each other", || (0..3).all(|number| watched.knows_all(number)));
        Some(watched)
    }

    /// A server that nobody watches yet.
    pub fn of(server: RedisServer) -> Self {
        Self { servers: vec![server], sentinels: Vec::new(), folder: folder() }
    }

    /// Starts a sentinel, which takes this for the master.
    pub fn sentinel(&self, name: &str, master: u16, more: &str) -> Option<RedisServer> {
        self.sentinel_at(LOOPBACK, name, master, more)
    }

    /// The same, if that is at this host.
    pub fn sentinel_at(&self, host: &str, name: &str, master: u16, more: &str) -> Option<RedisServer> {
        let config = format!(
            "dir {}\n{more}\nsentinel monitor {MASTER} {host} {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 500\nsentinel failover-timeout {MASTER} 2000\n",
            self.folder.display()
        );
        RedisServer::start_sentinel(&self.folder.join(name), &config)
    }

    /// The `urls` of a rule file.
    pub fn urls(&self) -> String {
        let urls: Vec<_> = self.sentinels.iter().map(|sentinel| format!("'{}'", sentinel.url())).collect();
        urls.join(", ")
    }

    /// What a rule file says of the store.
    pub fn rule(&self) -> String {
        format!("{{ timeout: 2s, sentinel: {{ urls: [{}], master: {MASTER} }} }}", self.urls())
    }

    /// Starts a server again that has ended, as a replica, with these arguments and what it had written down.
    pub fn restart(&mut self, number: usize, master: u16, more: &[&str]) {
        let (port, dir) = (self.servers[number].port, self.folder.join(["first", "second"][number]));
        let replicates = ["--replicaof", LOOPBACK, &master.to_string()];
        let dir = ["--dir", dir.to_str().expect("a path in UTF-8"), "--repl-diskless-sync-delay", "0"];
        let server = RedisServer::start_with(Some(port), &[&dir[..], &replicates, more].concat());
        self.servers[number] = server.expect("a Redis");
    }

    /// Do all sentinels find a master and a replica of it that are well?
    pub fn is_well(&self) -> bool {
        (0..self.sentinels.len()).all(|number| {
            let (masters, replicas) = (self.told(number, "MASTERS"), self.told(number, "REPLICAS"));
            let is = |told: &About, what: &str| told.get("flags").is_some_and(|flags| flags == what);
            let has_link = |told: &About| told.get("master-link-status").is_some_and(|status| status == "ok");
            masters.iter().all(|master| is(master, "master"))
                && replicas.iter().any(|replica| is(replica, "slave") && has_link(replica))
        })
    }

    /// How often the master was replaced, as the sentinel knows that knows most.
    pub fn epoch(&self) -> u64 {
        let of =
            |number| self.told(number, "MASTERS").iter().filter_map(|it| it.get("config-epoch")?.parse().ok()).max();
        (0..self.sentinels.len()).filter_map(of).max().unwrap_or(0)
    }

    /// Has the master replaced, though nothing ails it.
    pub fn fail_over(&self) {
        wait_for("a failover begins", || self.try_fail_over().is_ok());
    }

    fn try_fail_over(&self) -> RedisResult<()> {
        cmd("SENTINEL").arg("FAILOVER").arg(MASTER).exec(&mut self.sentinels[0].connection())
    }

    fn knows_all(&self, number: usize) -> bool {
        self.told(number, "SENTINELS").len() == 2 && self.is_well()
    }

    /// What a sentinel says of masters, of their replicas, or of other sentinels.
    fn told(&self, number: usize, what: &str) -> Vec<About> {
        let mut ask = cmd("SENTINEL");
        ask.arg(what);
        if what != "MASTERS" {
            ask.arg(MASTER);
        }
        ask.query(&mut self.sentinels[number].connection()).expect("a list")
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.sentinels.clear();
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// A server with a folder of its own: whatever is replicated goes through a file there.
fn server(folder: &Path, name: &str, more: &[&str]) -> Option<RedisServer> {
    let folder = folder.join(name);
    fs::create_dir(&folder).expect("a folder");
    let dir = ["--dir", folder.to_str().expect("a path in UTF-8"), "--repl-diskless-sync-delay", "0"];
    RedisServer::start_with(None, &[&dir, more].concat())
}

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("tidegate-sentinel-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Waits for what other processes do among themselves.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if condition() {
            return;
        }
        wait_a_little();
    }
    panic!("it did not come true in half a minute: {what}");
}
