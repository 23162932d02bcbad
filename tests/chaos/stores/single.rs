//! A single Redis, and a proxy between Redis and each gateway.

use std::time::Duration;

use deadpool_redis::redis::cmd;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::super::faults::Fault;
use super::super::proxy::FaultyProxy;
use super::super::run::GATEWAYS;
use super::server::{Server, USER};
use super::{Loss, now};

/// A single Redis into which faults can be injected.
pub struct SingleStore {
    server: Server,
    /// A proxy for each gateway.
    proxies: Vec<FaultyProxy>,
    /// The deadline of a decision.
    deadline: Duration,
}

impl SingleStore {
    pub fn start(server: Server, network: &Runtime, deadline: Duration) -> Self {
        let proxies = (0..GATEWAYS).map(|_| network.block_on(FaultyProxy::start(server.port))).collect();
        Self { server, proxies, deadline }
    }

    pub fn rule(&self, gateway: usize) -> String {
        self.server.rule(self.proxies[gateway].port)
    }

    /// Injects a fault. Faults of one gateway hit the one with the number `victim`.
    pub async fn inject(&mut self, fault: Fault, lasts: Duration, victim: usize) -> Option<Loss> {
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
                    server.execute(&["SCRIPT", "FLUSH"]);
                    // Fails before version 7, which has no functions.
                    _ = server.try_execute(&["FUNCTION", "FLUSH"]);
                    sleep(lasts / 5).await;
                }
            }
            Fault::ConnectionsKilled => {
                for _ in 0..5 {
                    server.execute(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    sleep(lasts / 5).await;
                }
            }
            Fault::Paused => pause(server, "ALL", lasts).await,
            Fault::WritesPaused => pause(server, "WRITE", lasts).await,
            Fault::Busy => busy(server, lasts).await,
            Fault::OutOfMemory => {
                server.execute(&["CONFIG", "SET", "maxmemory", "1"]);
                sleep(lasts).await;
                server.execute(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            Fault::ReadOnly => {
                server.execute(&["REPLICAOF", "127.0.0.1", "1"]);
                sleep(lasts).await;
                server.execute(&["REPLICAOF", "NO", "ONE"]);
            }
            Fault::PasswordChanged => {
                server.change_password();
                server.execute(&["CLIENT", "KILL", "USER", USER]);
                sleep(lasts).await;
                server.write_password_file();
            }
            Fault::NotPermitted => {
                server.execute(&["ACL", "SETUSER", USER, "-@scripting"]);
                sleep(lasts).await;
                server.execute(&["ACL", "SETUSER", USER, "+@all"]);
            }
            Fault::CertificateExpired => {
                server.present_expired();
                server.execute(&["CLIENT", "KILL", "USER", USER]);
                sleep(lasts).await;
                server.present_valid();
            }
            // All permits become available again, which equals a loss of data.
            Fault::ClockForward => {
                sleep(lasts).await;
                let begin = now();
                server.shift_clock(1);
                return Some(Loss::Since(begin));
            }
            // The store re-dates its data, and nothing is lost.
            Fault::ClockBack => {
                sleep(lasts).await;
                server.shift_clock(-1);
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
            fault => unreachable!("{}: not a fault of a single Redis", fault.title()),
        }
        None
    }
}

async fn for_all(proxies: &[FaultyProxy], lasts: Duration, inject: impl Fn(&FaultyProxy)) {
    proxies.iter().for_each(inject);
    sleep(lasts).await;
    proxies.iter().for_each(FaultyProxy::heal);
}

async fn pause(server: &Server, mode: &str, lasts: Duration) {
    server.execute(&["CLIENT", "PAUSE", &lasts.as_millis().to_string(), mode]);
    sleep(lasts).await;
}

async fn busy(server: &Server, lasts: Duration) {
    let (mut control, mut script) = (server.connection(), server.connection());
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "100"]).exec(&mut control).expect("set");
    let busy = std::thread::spawn(move || cmd("EVAL").arg("while true do end").arg(0).exec(&mut script));
    sleep(lasts).await;
    // Redis accepts commands only after `lua-time-limit`.
    while cmd("SCRIPT").arg("KILL").exec(&mut control).is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(busy.join().expect("a thread").is_err());
    cmd("CONFIG").arg(&["SET", "lua-time-limit", "5000"]).exec(&mut control).expect("set");
}
