//! Redis Sentinel on free ports: a master, its replica and three sentinels.

#![allow(dead_code, reason = "each user needs only some of the items")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use deadpool_redis::redis::{RedisResult, cmd};

use super::redis::{RedisServer, wait_for};

/// The name of the master in the sentinels' configuration.
pub const MASTER: &str = "limits";

/// Settings that make a sentinel announce host names instead of addresses.
pub const WITH_HOSTNAMES: &str = "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes";

const LOOPBACK: &str = "127.0.0.1";

/// The fields of a server in a sentinel's reply.
type Fields = HashMap<String, String>;

/// A master, its replica and sentinels, with short timeouts. Dropping it stops them and removes their files.
pub struct SentinelSetup {
    /// The first master and its replica.
    pub servers: Vec<RedisServer>,
    /// The sentinels that monitor the master.
    pub sentinels: Vec<RedisServer>,
    folder: PathBuf,
}

impl SentinelSetup {
    /// Starts all servers and sentinels, and waits until they know each other.
    pub fn start() -> Option<Self> {
        Self::start_with(&[], LOOPBACK, "")
    }

    /// Starts servers and sentinels that announce host names instead of addresses.
    pub fn start_by_name() -> Option<Self> {
        Self::start_with(&["--replica-announce-ip", "localhost"], "localhost", WITH_HOSTNAMES)
    }

    /// Starts servers with further arguments at this host, and sentinels with further settings.
    pub fn start_with(servers: &[&str], host: &str, sentinels: &str) -> Option<Self> {
        let folder = folder();
        let master = server(&folder, "first", servers)?;
        let replicates = ["--replicaof", host, &master.port.to_string()];
        let replica = server(&folder, "second", &[&replicates, servers].concat())?;
        let mut setup = Self { servers: vec![master, replica], sentinels: Vec::new(), folder };
        for number in 0..3 {
            let sentinel = setup.start_sentinel_at(host, &format!("{number}"), setup.servers[0].port, sentinels)?;
            setup.sentinels.push(sentinel);
        }
        wait_for("the sentinels know each other", || (0..3).all(|number| setup.knows_all(number)));
        Some(setup)
    }

    /// Creates a setup from a server, without sentinels.
    pub fn without_sentinels(server: RedisServer) -> Self {
        Self { servers: vec![server], sentinels: Vec::new(), folder: folder() }
    }

    /// Starts a sentinel that monitors the master on this port.
    pub fn start_sentinel(&self, name: &str, master: u16, more: &str) -> Option<RedisServer> {
        self.start_sentinel_at(LOOPBACK, name, master, more)
    }

    /// Starts a sentinel that monitors the master at this host and port.
    pub fn start_sentinel_at(&self, host: &str, name: &str, master: u16, more: &str) -> Option<RedisServer> {
        let config = format!(
            "dir {}\n{more}\nsentinel monitor {MASTER} {host} {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 500\nsentinel failover-timeout {MASTER} 2000\n",
            self.folder.display()
        );
        RedisServer::start_sentinel(&self.folder.join(name), &config)
    }

    /// Returns the `urls` of a rule file.
    pub fn urls(&self) -> String {
        let urls: Vec<_> = self.sentinels.iter().map(|sentinel| format!("'{}'", sentinel.url())).collect();
        urls.join(", ")
    }

    /// Returns the `store` of a rule file for this setup.
    pub fn rule(&self) -> String {
        format!("{{ timeout: 2s, sentinel: {{ urls: [{}], master: {MASTER} }} }}", self.urls())
    }

    /// Starts a stopped server again as a replica, with its data and further arguments.
    pub fn restart(&mut self, number: usize, master: u16, more: &[&str]) {
        let (port, dir) = (self.servers[number].port, self.folder.join(["first", "second"][number]));
        let replicates = ["--replicaof", LOOPBACK, &master.to_string()];
        let dir = ["--dir", dir.to_str().expect("a path in UTF-8"), "--repl-diskless-sync-delay", "0"];
        let server = RedisServer::start_with(Some(port), &[&dir[..], &replicates, more].concat());
        self.servers[number] = server.expect("a Redis");
    }

    /// Returns `true` if all sentinels see a healthy master and a healthy replica.
    pub fn is_healthy(&self) -> bool {
        (0..self.sentinels.len()).all(|number| {
            let (masters, replicas) = (self.query(number, "MASTERS"), self.query(number, "REPLICAS"));
            let has_flags =
                |fields: &Fields, expected: &str| fields.get("flags").is_some_and(|flags| flags == expected);
            let is_linked = |fields: &Fields| fields.get("master-link-status").is_some_and(|status| status == "ok");
            masters.iter().all(|master| has_flags(master, "master"))
                && replicas.iter().any(|replica| has_flags(replica, "slave") && is_linked(replica))
        })
    }

    /// Returns the highest epoch of all sentinels. Each failover increments it.
    pub fn epoch(&self) -> u64 {
        let masters = (0..self.sentinels.len()).flat_map(|number| self.query(number, "MASTERS"));
        masters.filter_map(|master| master.get("config-epoch")?.parse().ok()).max().unwrap_or(0)
    }

    /// Starts a failover from a healthy master.
    pub fn fail_over(&self) {
        wait_for("a failover begins", || self.try_fail_over().is_ok());
    }

    fn try_fail_over(&self) -> RedisResult<()> {
        cmd("SENTINEL").arg("FAILOVER").arg(MASTER).exec(&mut self.sentinels[0].connection())
    }

    fn knows_all(&self, number: usize) -> bool {
        self.query(number, "SENTINELS").len() == 2 && self.is_healthy()
    }

    /// Queries a sentinel for `MASTERS`, `REPLICAS` or `SENTINELS`.
    fn query(&self, number: usize, kind: &str) -> Vec<Fields> {
        let mut query = cmd("SENTINEL");
        query.arg(kind);
        if kind != "MASTERS" {
            query.arg(MASTER);
        }
        query.query(&mut self.sentinels[number].connection()).expect("a list")
    }
}

impl Drop for SentinelSetup {
    fn drop(&mut self) {
        self.sentinels.clear();
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts a server with its own folder, which replication needs for its files.
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
