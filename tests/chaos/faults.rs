//! What goes wrong.

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tokio::time::sleep;

use super::proxy::FaultyProxy;
use super::server::{Server, USER};

/// A way in which Redis or the network fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Stopped,
    Killed,
    KilledEmpty,
    ScriptsFlushed,
    ConnectionsKilled,
    Paused,
    WritesPaused,
    Busy,
    OutOfMemory,
    ReadOnly,
    PasswordChanged,
    OneCutOff,
    OneSilent,
    AllSilent,
    HalfOpen,
    SlowNetwork,
    AsSlowAsTheDeadline,
}

/// All of them, in the order in which they come first.
pub const FAULTS: [Fault; 17] = [
    Fault::Stopped,
    Fault::ScriptsFlushed,
    Fault::Killed,
    Fault::ConnectionsKilled,
    Fault::OutOfMemory,
    Fault::OneCutOff,
    Fault::Paused,
    Fault::HalfOpen,
    Fault::KilledEmpty,
    Fault::Busy,
    Fault::PasswordChanged,
    Fault::OneSilent,
    Fault::SlowNetwork,
    Fault::WritesPaused,
    Fault::AsSlowAsTheDeadline,
    Fault::ReadOnly,
    Fault::AllSilent,
];

/// What can fail.
pub struct World {
    pub server: Server,
    /// One before Redis for each gateway.
    pub proxies: Vec<FaultyProxy>,
    /// How long a decision may take.
    pub deadline: Duration,
}

impl Fault {
    pub fn title(self) -> &'static str {
        match self {
            Self::Stopped => "Redis hangs (SIGSTOP)",
            Self::Killed => "Redis is killed and comes back with its data",
            Self::KilledEmpty => "Redis is killed and comes back empty",
            Self::ScriptsFlushed => "SCRIPT FLUSH, FUNCTION FLUSH",
            Self::ConnectionsKilled => "CLIENT KILL, five times",
            Self::Paused => "CLIENT PAUSE ALL",
            Self::WritesPaused => "CLIENT PAUSE WRITE",
            Self::Busy => "a script that does not end (BUSY)",
            Self::OutOfMemory => "no memory (OOM)",
            Self::ReadOnly => "a replica without a master (READONLY)",
            Self::PasswordChanged => "another password, told to the gateways at the end",
            Self::OneCutOff => "one gateway is cut off",
            Self::OneSilent => "the network of one gateway is silent",
            Self::AllSilent => "the network of all gateways is silent",
            Self::HalfOpen => "open connections go dead, new ones work",
            Self::SlowNetwork => "answers take 15 to 30 ms longer, at 200 kB a second",
            Self::AsSlowAsTheDeadline => "answers take 0.9 or 1.1 of the deadline longer",
        }
    }

    /// Lets it happen, for so long, to this gateway if it is one that it happens to. Returns when the data was lost, if it was.
    pub async fn strike(self, world: &mut World, lasts: Duration, victim: usize) -> Option<u64> {
        let World { server, proxies, deadline } = world;
        let deadline = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Stopped => {
                server.signal("STOP");
                sleep(lasts).await;
                server.signal("CONT");
            }
            Self::Killed => {
                server.kill();
                sleep(lasts).await;
                server.restart();
            }
            Self::KilledEmpty => {
                let killed = server.kill();
                sleep(lasts).await;
                server.restart_empty();
                return Some(killed);
            }
            Self::ScriptsFlushed => {
                for _ in 0..5 {
                    server.tell(&["SCRIPT", "FLUSH"]);
                    // No version before 7 has functions.
                    _ = server.ask(&["FUNCTION", "FLUSH"]);
                    sleep(lasts / 5).await;
                }
            }
            Self::ConnectionsKilled => {
                for _ in 0..5 {
                    server.tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    sleep(lasts / 5).await;
                }
            }
            Self::Paused => pause(server, "ALL", lasts).await,
            Self::WritesPaused => pause(server, "WRITE", lasts).await,
            Self::Busy => busy(server, lasts).await,
            Self::OutOfMemory => {
                server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
                sleep(lasts).await;
                server.tell(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            Self::ReadOnly => {
                server.tell(&["REPLICAOF", "127.0.0.1", "1"]);
                sleep(lasts).await;
                server.tell(&["REPLICAOF", "NO", "ONE"]);
            }
            Self::PasswordChanged => {
                server.change_password();
                server.tell(&["CLIENT", "KILL", "USER", USER]);
                sleep(lasts).await;
                server.tell_password();
            }
            Self::OneCutOff => {
                proxies[victim].cut();
                sleep(lasts).await;
                proxies[victim].heal();
            }
            Self::OneSilent => {
                proxies[victim].blackhole();
                sleep(lasts).await;
                proxies[victim].heal();
            }
            Self::AllSilent => for_all(proxies, lasts, FaultyProxy::blackhole).await,
            Self::HalfOpen => for_all(proxies, lasts, FaultyProxy::half_open).await,
            Self::SlowNetwork => {
                let slow = |proxy: &FaultyProxy| (proxy.delay(15, 30), proxy.throttle(200_000)).0;
                for_all(proxies, lasts, slow).await;
            }
            Self::AsSlowAsTheDeadline => {
                for_all(proxies, lasts, |proxy| proxy.delay(deadline * 9 / 10, deadline * 11 / 10)).await;
            }
        }
        None
    }
}

async fn for_all(proxies: &[FaultyProxy], lasts: Duration, does: impl Fn(&FaultyProxy)) {
    proxies.iter().for_each(does);
    sleep(lasts).await;
    proxies.iter().for_each(FaultyProxy::heal);
}

async fn pause(server: &Server, whom: &str, lasts: Duration) {
    server.tell(&["CLIENT", "PAUSE", &lasts.as_millis().to_string(), whom]);
    sleep(lasts).await;
}

async fn busy(server: &Server, lasts: Duration) {
    let (mut control, mut script) = (server.connection(), server.connection());
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "100"]).exec(&mut control).expect("set");
    let busy = std::thread::spawn(move || cmd("EVAL").arg("while true do end").arg(0).exec(&mut script));
    sleep(lasts).await;
    // Before it has been told to others that it is busy, it answers nobody.
    while cmd("SCRIPT").arg("KILL").exec(&mut control).is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(busy.join().expect("a thread").is_err());
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "5000"]).exec(&mut control).expect("set");
}
