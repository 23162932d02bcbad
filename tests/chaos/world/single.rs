//! One Redis, and the network between it and each gateway.

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::super::faults::Fault;
use super::super::proxy::FaultyProxy;
use super::super::run::GATEWAYS;
use super::server::{Server, USER};
use super::{Loss, now};

/// What can fail.
pub struct Single {
    server: Server,
    /// One before Redis for each gateway.
    proxies: Vec<FaultyProxy>,
    /// How long a decision may take.
    deadline: Duration,
}

impl Single {
    pub fn start(server: Server, network: &Runtime, deadline: Duration) -> Self {
        let proxies = (0..GATEWAYS).map(|_| network.block_on(FaultyProxy::start(server.port))).collect();
        Self { server, proxies, deadline }
    }

    pub fn rule(&self, gateway: usize) -> String {
        self.server.rule(self.proxies[gateway].port)
    }

    /// Lets it happen, for so long, to this gateway if it is one that it happens to.
    pub async fn strike(&mut self, fault: Fault, lasts: Duration, victim: usize) -> Option<Loss> {
        let Self { server, proxies, deadline } = self;
        let deadline = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        match fault {
            Fault::Stopped | Fault::HandedOver | Fault::GatewayRestarted => {
                server.signal("STOP");
                sleep(lasts).await;
                server.signal("CONT");
            }
            Fault::Killed => {
                server.kill();
                sleep(lasts).await;
                server.restart();
            }
            Fault::KilledEmpty => {
                let killed = server.kill();
                sleep(lasts).await;
                server.restart_empty();
                return Some(Loss::At(killed));
            }
            Fault::ScriptsFlushed => {
                for _ in 0..5 {
                    server.tell(&["SCRIPT", "FLUSH"]);
                    // No version before 7 has functions.
                    _ = server.ask(&["FUNCTION", "FLUSH"]);
                    sleep(lasts / 5).await;
                }
            }
            Fault::ConnectionsKilled => {
                for _ in 0..5 {
                    server.tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    sleep(lasts / 5).await;
                }
            }
            Fault::Paused => pause(server, "ALL", lasts).await,
            Fault::WritesPaused => pause(server, "WRITE", lasts).await,
            Fault::Busy => busy(server, lasts).await,
            Fault::OutOfMemory => {
                server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
                sleep(lasts).await;
                server.tell(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            Fault::ReadOnly => {
                server.tell(&["REPLICAOF", "127.0.0.1", "1"]);
                sleep(lasts).await;
                server.tell(&["REPLICAOF", "NO", "ONE"]);
            }
            Fault::PasswordChanged => {
                server.change_password();
                server.tell(&["CLIENT", "KILL", "USER", USER]);
                sleep(lasts).await;
                server.tell_password();
            }
            Fault::NotPermitted => {
                server.tell(&["ACL", "SETUSER", USER, "-@scripting"]);
                sleep(lasts).await;
                server.tell(&["ACL", "SETUSER", USER, "+@all"]);
            }
            Fault::CertificateExpired => {
                server.show_expired();
                server.tell(&["CLIENT", "KILL", "USER", USER]);
                sleep(lasts).await;
                server.show_valid();
            }
            // All that it holds is over then.
            Fault::ClockForward => {
                sleep(lasts).await;
                let begin = now();
                server.move_clock(1);
                return Some(Loss::Since(begin));
            }
            // What it holds is redated: nothing is lost.
            Fault::ClockBack => {
                sleep(lasts).await;
                server.move_clock(-1);
            }
            Fault::OneCutOff => {
                proxies[victim].cut();
                sleep(lasts).await;
                proxies[victim].heal();
            }
            Fault::OneSilent => {
                proxies[victim].blackhole();
                sleep(lasts).await;
                proxies[victim].heal();
            }
            Fault::AllSilent => for_all(proxies, lasts, FaultyProxy::blackhole).await,
            Fault::HalfOpen => for_all(proxies, lasts, FaultyProxy::half_open).await,
            Fault::SlowNetwork => {
                let slow = |proxy: &FaultyProxy| (proxy.delay(15, 30), proxy.throttle(200_000)).0;
                for_all(proxies, lasts, slow).await;
            }
            Fault::AsSlowAsTheDeadline => {
                for_all(proxies, lasts, |proxy| proxy.delay(deadline * 9 / 10, deadline * 11 / 10)).await;
            }
            fault => unreachable!("{}: not of one Redis", fault.title()),
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
