//! A master and its replica with Sentinel. Gateways connect directly, without proxies.

use std::mem;
use std::time::Duration;

use deadpool_redis::redis::{Connection, Value, cmd};
use tokio::time::sleep;

use super::super::faults::Fault;
use super::super::redis::{RedisServer, wait_for};
use super::super::sentinel::{MASTER, SentinelSetup as Servers};
use super::{Loss, now};

/// Servers lose nothing in a restart: they write the append-only file before they reply.
const PERSISTENCE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "no"];
/// Less than the time after which sentinels consider a server dead.
const HESITATION: Duration = Duration::from_millis(300);
/// Less than two seconds, after which a sentinel enters TILT mode.
const SENTINELS_HANG: Duration = Duration::from_millis(1_500);

/// A master and its replica into which faults can be injected.
pub struct SentinelStore {
    servers: Servers,
    /// The server that has been killed.
    dead: Option<usize>,
    /// The master after the last fault.
    last_master: usize,
    /// The configuration epoch after the last fault.
    pub epoch: u64,
}

impl SentinelStore {
    pub fn start() -> Option<Self> {
        let servers = Servers::start_with(&PERSISTENCE, "127.0.0.1", "")?;
        Some(Self { epoch: servers.epoch(), servers, dead: None, last_master: 0 })
    }

    pub fn rule(&self) -> String {
        format!("sentinel: {{ urls: [{}], master: {MASTER} }}", self.servers.urls())
    }

    /// Injects a fault. More failovers than expected also lose data, even if the master is the old one again.
    pub async fn inject(&mut self, fault: Fault, lasts: Duration) -> Option<Loss> {
        let (begin, before) = (now(), self.epoch);
        let loss = self.inject_into(fault, lasts, self.master()).await;
        (self.last_master, self.epoch) = (self.master(), self.servers.epoch());
        match loss {
            Some(loss) if self.epoch <= before + 1 => Some(loss),
            _ => (self.epoch != before).then_some(Loss::Since(begin)),
        }
    }

    async fn inject_into(&mut self, fault: Fault, lasts: Duration, master: usize) -> Option<Loss> {
        let server = &self.servers.servers[master];
        match fault {
            Fault::Replaced => {
                server.signal("KILL");
                let killed = now() + 5;
                self.wait_for_failover(master);
                self.dead = Some(master);
                return Some(Loss::At(killed));
            }
            Fault::StoppedUntilReplaced => {
                server.signal("STOP");
                let stopped = now();
                self.wait_for_failover(master);
                // The server still believes that it is the master, and so may some sentinels.
                server.signal("CONT");
                return Some(Loss::Since(stopped));
            }
            Fault::FailoverAsked => {
                let begin = now();
                self.servers.fail_over();
                self.wait_for_failover(master);
                return Some(Loss::Since(begin));
            }
            Fault::Hesitates => hang(&[server], lasts.min(HESITATION)).await,
            Fault::SentinelHangs => hang(&[&self.servers.sentinels[0]], lasts.min(SENTINELS_HANG)).await,
            Fault::SentinelsHang => {
                let all: Vec<_> = self.servers.sentinels.iter().collect();
                hang(&all, lasts.min(SENTINELS_HANG)).await;
            }
            Fault::ScriptsFlushed => flush_scripts(&mut server.connection(), lasts).await,
            Fault::ConnectionsKilled => kill_connections(&[server], lasts).await,
            Fault::OutOfMemory => use_up_memory(server, lasts).await,
            Fault::Paused => {
                let lasts = lasts.min(HESITATION);
                execute(server, &["CLIENT", "PAUSE", &lasts.as_millis().to_string(), "ALL"]);
                sleep(lasts).await;
            }
            fault => unreachable!("{}: not a fault of a master with Sentinel", fault.title()),
        }
        None
    }

    /// Returns the number of the master from the view of the last sentinel.
    fn master(&self) -> usize {
        let port = self.master_port();
        self.servers.servers.iter().position(|server| server.port == port).expect("a known server")
    }

    fn master_port(&self) -> u16 {
        let sentinel = self.servers.sentinels.last().expect("a sentinel");
        let mut query = cmd("SENTINEL");
        query.arg("get-master-addr-by-name").arg(MASTER);
        let (_, port): (String, u16) = query.query(&mut sentinel.connection()).expect("a master");
        port
    }

    fn wait_for_failover(&self, master: usize) {
        let is_replaced = || {
            let new = self.master();
            new != master && is_master(&self.servers.servers[new])
        };
        wait_for("the master is replaced", is_replaced);
    }

    /// Returns `true` if every server except the master is a replica or has no connected gateway.
    pub fn is_replacement_complete(&self) -> bool {
        let replaced = |number: &usize| *number != self.last_master && Some(*number) != self.dead;
        let mut replaced = (0..self.servers.servers.len()).filter(replaced).map(|number| &self.servers.servers[number]);
        replaced.all(|server| !is_master(server) || !has_gateways(server))
    }

    pub fn repair(&mut self) -> bool {
        let master = self.master();
        if let Some(dead) = self.dead.take() {
            self.servers.restart(dead, self.servers.servers[master].port, &PERSISTENCE);
        }
        let port = self.servers.servers[master].port.to_string();
        for (number, server) in self.servers.servers.iter().enumerate() {
            // Sentinels would do this only within ten seconds.
            if number != master && is_master(server) {
                execute(server, &["REPLICAOF", "127.0.0.1", &port]);
            }
        }
        wait_for("the sentinels report no fault", || self.servers.is_healthy());
        let before = mem::replace(&mut self.epoch, self.servers.epoch());
        self.epoch != before
    }
}

pub fn is_master(server: &RedisServer) -> bool {
    let reply: Vec<Value> = cmd("ROLE").query(&mut server.connection()).expect("a role");
    matches!(reply.first(), Some(Value::BulkString(role)) if role == b"master")
}

/// Returns `true` if the server has connections of gateways: neither of sentinels nor of this test.
fn has_gateways(server: &RedisServer) -> bool {
    let list: String = cmd("CLIENT").arg(&["LIST", "TYPE", "normal"]).query(&mut server.connection()).expect("clients");
    list.lines().any(|line| !line.contains("name=sentinel") && !line.contains("cmd=client"))
}

/// Stops all of these processes for the duration `lasts`.
pub async fn hang(servers: &[&RedisServer], lasts: Duration) {
    servers.iter().for_each(|server| server.signal("STOP"));
    sleep(lasts).await;
    servers.iter().for_each(|server| server.signal("CONT"));
}

pub async fn flush_scripts(server: &mut Connection, lasts: Duration) {
    for _ in 0..5 {
        cmd("SCRIPT").arg("FLUSH").exec(server).expect("flushed");
        // Fails before version 7, which has no functions.
        _ = cmd("FUNCTION").arg("FLUSH").exec(server);
        sleep(lasts / 5).await;
    }
}

pub async fn kill_connections(servers: &[&RedisServer], lasts: Duration) {
    for _ in 0..5 {
        for server in servers {
            execute(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
        sleep(lasts / 5).await;
    }
}

pub async fn use_up_memory(server: &RedisServer, lasts: Duration) {
    execute(server, &["CONFIG", "SET", "maxmemory", "1"]);
    sleep(lasts).await;
    execute(server, &["CONFIG", "SET", "maxmemory", "0"]);
}

/// Executes a command that must succeed.
#[track_caller]
pub fn execute(server: &RedisServer, words: &[&str]) {
    let (name, arguments) = words.split_first().expect("a command");
    cmd(name).arg(arguments).exec(&mut server.connection()).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}
