//! A master and its replica, which sentinels watch. Gateways reach them without anything between.

use std::mem;
use std::time::Duration;

use deadpool_redis::redis::{Connection, Value, cmd};
use tokio::time::sleep;

use super::super::faults::Fault;
use super::super::redis::RedisServer;
use super::super::sentinel::{MASTER, Watched as Servers, wait_for};
use super::{Loss, now};

/// All that a server has ever answered is there when it starts again.
const KEEPS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "no"];
/// Sentinels wait for so long until they take a server for dead; and get confused if they stand still for two seconds.
const HESITATION: Duration = Duration::from_millis(300);
const SENTINELS_HANG: Duration = Duration::from_millis(1_500);

/// What can fail.
pub struct Watched {
    servers: Servers,
    /// The server that has been killed.
    dead: Option<usize>,
    /// The master after the last fault, and how often it had been replaced then.
    last: usize,
    pub epoch: u64,
}

impl Watched {
    pub fn start() -> Option<Self> {
        let servers = Servers::start_with(&KEEPS, "127.0.0.1", "")?;
        Some(Self { epoch: servers.epoch(), servers, dead: None, last: 0 })
    }

    pub fn rule(&self) -> String {
        format!("sentinel: {{ urls: [{}], master: {MASTER} }}", self.servers.urls())
    }

    /// Lets it happen, for so long. A master that is replaced more often than it was meant to be has lost data, too, and may be
    /// the master again.
    pub async fn strike(&mut self, fault: Fault, lasts: Duration) -> Option<Loss> {
        let (begin, before) = (now(), self.epoch);
        let loss = self.strike_at(fault, lasts, self.master()).await;
        (self.last, self.epoch) = (self.master(), self.servers.epoch());
        match loss {
            Some(loss) if self.epoch <= before + 1 => Some(loss),
            _ => (self.epoch != before).then_some(Loss::Since(begin)),
        }
    }

    async fn strike_at(&mut self, fault: Fault, lasts: Duration, master: usize) -> Option<Loss> {
        let server = &self.servers.servers[master];
        match fault {
            Fault::Replaced => {
                server.signal("KILL");
                let killed = now() + 5;
                self.wait_for_another(master);
                self.dead = Some(master);
                return Some(Loss::At(killed));
            }
            Fault::StoppedUntilReplaced => {
                server.signal("STOP");
                let stopped = now();
                self.wait_for_another(master);
                // It takes itself for the master, and so do sentinels that have not heard of the other one yet.
                server.signal("CONT");
                return Some(Loss::Since(stopped));
            }
            Fault::FailoverAsked => {
                let begin = now();
                self.servers.fail_over();
                self.wait_for_another(master);
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
                tell(server, &["CLIENT", "PAUSE", &lasts.as_millis().to_string(), "ALL"]);
                sleep(lasts).await;
            }
            fault => unreachable!("{}: not of a master that sentinels watch", fault.title()),
        }
        None
    }

    /// The number of the master, as the last sentinel says.
    fn master(&self) -> usize {
        let told = self.told();
        self.servers.servers.iter().position(|server| server.port == told).expect("one of ours")
    }

    fn told(&self) -> u16 {
        let mut ask = cmd("SENTINEL");
        let sentinel = self.servers.sentinels.last().expect("a sentinel");
        let told: (String, u16) =
            ask.arg("get-master-addr-by-name").arg(MASTER).query(&mut sentinel.connection()).expect("a master");
        told.1
    }

    fn wait_for_another(&self, master: usize) {
        let is_replaced = || {
            let new = self.master();
            new != master && is_master(&self.servers.servers[new])
        };
        wait_for("the master is replaced", is_replaced);
    }

    /// Is each server but the master a replica, or asked by no gateway?
    pub fn is_left(&self) -> bool {
        let replaced = |number: &usize| *number != self.last && Some(*number) != self.dead;
        let mut replaced = (0..self.servers.servers.len()).filter(replaced).map(|number| &self.servers.servers[number]);
        replaced.all(|server| !is_master(server) || !has_gateways(server))
    }

    pub fn mend(&mut self) -> bool {
        let master = self.master();
        if let Some(dead) = self.dead.take() {
            self.servers.restart(dead, self.servers.servers[master].port, &KEEPS);
        }
        let port = self.servers.servers[master].port.to_string();
        for (number, server) in self.servers.servers.iter().enumerate() {
            // Sentinels would tell it within ten seconds.
            if number != master && is_master(server) {
                tell(server, &["REPLICAOF", "127.0.0.1", &port]);
            }
        }
        wait_for("sentinels find all well", || self.servers.is_well());
        let before = mem::replace(&mut self.epoch, self.servers.epoch());
        self.epoch != before
    }
}

pub fn is_master(server: &RedisServer) -> bool {
    let told: Vec<Value> = cmd("ROLE").query(&mut server.connection()).expect("a role");
    matches!(told.first(), Some(Value::BulkString(role)) if role == b"master")
}

/// Is it connected to anybody but sentinels and us?
fn has_gateways(server: &RedisServer) -> bool {
    let list: String = cmd("CLIENT").arg(&["LIST", "TYPE", "normal"]).query(&mut server.connection()).expect("clients");
    list.lines().any(|line| !line.contains("name=sentinel") && !line.contains("cmd=client"))
}

/// Has all of them stand still for so long.
pub async fn hang(servers: &[&RedisServer], lasts: Duration) {
    servers.iter().for_each(|server| server.signal("STOP"));
    sleep(lasts).await;
    servers.iter().for_each(|server| server.signal("CONT"));
}

pub async fn flush_scripts(server: &mut Connection, lasts: Duration) {
    for _ in 0..5 {
        cmd("SCRIPT").arg("FLUSH").exec(server).expect("flushed");
        // No version before 7 has functions.
        _ = cmd("FUNCTION").arg("FLUSH").exec(server);
        sleep(lasts / 5).await;
    }
}

pub async fn kill_connections(servers: &[&RedisServer], lasts: Duration) {
    for _ in 0..5 {
        for server in servers {
            tell(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
        sleep(lasts / 5).await;
    }
}

pub async fn use_up_memory(server: &RedisServer, lasts: Duration) {
    tell(server, &["CONFIG", "SET", "maxmemory", "1"]);
    sleep(lasts).await;
    tell(server, &["CONFIG", "SET", "maxmemory", "0"]);
}

/// Tells it to do something, and that it does.
pub fn tell(server: &RedisServer, words: &[&str]) {
    let (name, arguments) = words.split_first().expect("a command");
    cmd(name).arg(arguments).exec(&mut server.connection()).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}
