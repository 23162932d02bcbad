//! A chaos run: injects one fault after the other into a store under load, and waits for the recovery from each.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate::Clock;
use tidegate_limit::clock::SystemClock;
use tokio::time::{Instant, sleep};

use super::faults::Fault;
use super::gateway::Gateway;
use super::journal::{self, Journal, Record};
use super::load::Load;
use super::losses::DataLoss;
use super::stores::{FaultyStore, Loss, StoreKind};
use super::table;

pub const GATEWAYS: usize = 3;

/// Recovery may take this long, even on a busy machine.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The pause between a recovery and the next fault, in a long and in a short run.
const LONG_PAUSE: Duration = Duration::from_millis(2_500);
const SHORT_PAUSE: Duration = Duration::from_millis(1_000);
/// The shortest fault, and the longest one in a long and in a short run.
const MIN_FAULT: Duration = Duration::from_millis(700);
const MAX_FAULT_OF_SHORT_RUN: Duration = Duration::from_millis(1_500);
const MAX_FAULT_OF_LONG_RUN: Duration = Duration::from_secs(5);
/// Length of an outage in which a gateway is replaced, and the number of its handovers.
const REPLACEMENT: Duration = Duration::from_secs(4);
const HANDOVERS: u32 = 3;
const LONG_RUN: Duration = Duration::from_secs(180);

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub kind: StoreKind,
    /// Injects only this fault.
    pub only: Option<Fault>,
    pub duration: Duration,
    pub seed: u64,
    pub rate: u32,
    /// The deadline of a decision.
    pub deadline: Duration,
}

/// The observations of a run.
pub struct RunOutcome {
    pub records: Vec<Record>,
    pub rounds: Vec<Round>,
    /// Number of store failures, by gateway.
    pub failures: Vec<f64>,
}

/// A fault and the recovery from it. Times are in milliseconds of this machine's clock.
#[derive(Clone, Debug)]
pub struct Round {
    pub fault: Fault,
    /// The loss of data, if Redis may have lost any.
    pub data_loss: Option<DataLoss>,
    /// The restart of a gateway, if there was one.
    pub restart: Option<ProcessRestart>,
    pub begin: u64,
    /// End of the fault.
    pub end: u64,
    /// `None` if the gateways did not recover in time.
    pub recovery: Option<Recovery>,
    /// Start of the next fault.
    pub next: u64,
    /// Memory in KiB and number of descriptors at the end of the round, by gateway.
    pub resources: Vec<(u64, usize)>,
}

/// The restart of a gateway, which forgets its uncharged local grants.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRestart {
    pub gateway: usize,
    pub at: u64,
}

/// Times of a recovery.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// When each gateway asked Redis again and had charged its local grants.
    pub gateways_at: [u64; GATEWAYS],
    /// When the gateways had left all servers that were replaced while they ran.
    pub servers_left_at: u64,
}

/// A seeded generator of pseudo-random numbers (SplitMix64).
struct Random(u64);

/// Executes a run. Returns `None` if Redis is not installed.
pub fn run(run: &Run) -> Option<RunOutcome> {
    let folder = std::env::temp_dir().join(format!("tidegate-chaos-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let outcome = run_in(&folder, run);
    match std::thread::panicking() {
        true => println!("see {}", folder.display()),
        false => fs::remove_dir_all(&folder).expect("removed"),
    }
    outcome
}

fn run_in(folder: &Path, run: &Run) -> Option<RunOutcome> {
    let network = runtime(1);
    let mut store = FaultyStore::start(run.kind, folder, &network, run.deadline)?;
    let (journal, records) = journal::start();
    let mut gateways = start_gateways(folder, &store, &journal, run.deadline);

    let clients = runtime(2);
    let addresses = gateways.iter().map(|gateway| gateway.address).collect();
    let load = clients.block_on(async { Load::start(addresses, run.rate, journal) });
    // Faults wait for processes. In a separate runtime they do not block clients or proxies.
    let (rounds, failures) = runtime(1).block_on(inject_faults(&mut store, &mut gateways, run));
    clients.block_on(load.stop());
    drop(gateways);
    Some(RunOutcome { records: records.join().expect("a journal"), rounds, failures })
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

fn start_gateways(folder: &Path, store: &FaultyStore, journal: &Journal, deadline: Duration) -> Vec<Gateway> {
    let start = |number| {
        let rules = folder.join(format!("gateway-{number}.yaml"));
        fs::write(&rules, table::rule_file(&store.rule(number), deadline)).expect("written");
        Gateway::start(&rules, journal.clone())
    };
    (0..GATEWAYS).map(start).collect()
}

/// Injects each fault once, and then random ones until the duration has elapsed. Returns the rounds and the store failures of
/// each gateway.
async fn inject_faults(store: &mut FaultyStore, gateways: &mut [Gateway], run: &Run) -> (Vec<Round>, Vec<f64>) {
    let (clock, end) = (SystemClock::new(), Instant::now() + run.duration);
    let now = || clock.now().as_millis();
    wait_for_recovery(store, gateways, true).await.expect("gateways that know each other");
    let (faults, is_long) = (Fault::all_of(run.kind), run.duration >= LONG_RUN);
    let (longest, pause) =
        if is_long { (MAX_FAULT_OF_LONG_RUN, LONG_PAUSE) } else { (MAX_FAULT_OF_SHORT_RUN, SHORT_PAUSE) };
    sleep(pause).await;
    let (mut random, mut rounds) = (Random(run.seed), Vec::<Round>::new());
    while Instant::now() < end {
        let any = random.below(faults.len());
        let fault = run.only.unwrap_or_else(|| faults.get(rounds.len()).copied().unwrap_or(faults[any]));
        let lasts = MIN_FAULT + (longest - MIN_FAULT) * u32::try_from(random.below(100)).expect("less") / 100;
        let victim = random.below(GATEWAYS);
        let (begin, epoch) = (now(), store.epoch());
        let lasts = if fault.replaces_gateway() { REPLACEMENT } else { lasts };
        let replacement = replace(&mut gateways[victim], fault);
        let (loss, restarted) = tokio::join!(store.inject(fault, lasts, victim), replacement);
        let restart = restarted.map(|at| ProcessRestart { gateway: victim, at });
        let ended = now();
        gateways[victim].wait_for_drains();
        let recovery = wait_for_recovery(store, gateways, false).await;
        sleep(pause).await;
        let had_failover = store.repair();
        // A server that was replaced while it ran can grant until all gateways have left it.
        let left = recovery.map_or_else(now, |recovery| recovery.servers_left_at);
        let span = match loss {
            _ if had_failover => Some((begin, now())),
            Some(Loss::Since(since)) => Some((since, left)),
            Some(Loss::At(at)) => Some((at, at)),
            None => None,
        };
        let times = store.epoch().saturating_sub(epoch).max(1);
        let data_loss = span.map(|(since, until)| DataLoss { since, until, times });
        let resources = gateways.iter().map(Gateway::resources).collect();
        rounds.push(Round { fault, data_loss, restart, begin, end: ended, recovery, next: now(), resources });
    }
    let mut failures = Vec::new();
    for gateway in gateways {
        failures.push(gateway.counter("tidegate_store_failures_total").await);
    }
    (rounds, failures)
}

/// Replaces a gateway, if the fault includes that. Returns the exit time of the old process if it was restarted without
/// a handover.
async fn replace(gateway: &mut Gateway, fault: Fault) -> Option<u64> {
    match fault {
        Fault::HandedOver => {
            for _ in 0..HANDOVERS {
                sleep(REPLACEMENT / (HANDOVERS + 2)).await;
                gateway.hand_over();
            }
            None
        }
        Fault::GatewayRestarted => {
            sleep(REPLACEMENT / 3).await;
            Some(gateway.restart())
        }
        _ => None,
    }
}

/// Waits until each gateway asks Redis and owes it nothing, and until replaced servers have no gateways. With
/// `all_known`, also waits until each gateway counts all gateways. Returns `None` if that takes too long.
async fn wait_for_recovery(store: &FaultyStore, gateways: &mut [Gateway], all_known: bool) -> Option<Recovery> {
    let (clock, end) = (SystemClock::new(), Instant::now() + RECOVERY_TIMEOUT);
    let (mut recovered_at, mut left) = ([None; GATEWAYS], None);
    while Instant::now() < end {
        left = left.or_else(|| store.is_replacement_complete().then(|| clock.now().as_millis()));
        let missing = gateways.iter_mut().zip(&mut recovered_at).filter(|(_, recovered_at)| recovered_at.is_none());
        for (gateway, recovered_at) in missing {
            // The time before the query: what is granted during the query does not count as recovered.
            let (asked, status) = (clock.now().as_millis(), gateway.store_status().await);
            let is_known = !all_known || status.gateways == GATEWAYS as u64;
            *recovered_at = (status.is_up && status.owed == 0 && is_known).then_some(asked);
        }
        if let (Some(left), true) = (left, recovered_at.iter().all(Option::is_some)) {
            let gateways_at = recovered_at.map(Option::unwrap_or_default);
            return Some(Recovery { gateways_at, servers_left_at: left });
        }
        sleep(POLL_INTERVAL).await;
    }
    None
}

// === impl Round ===

impl Round {
    /// Returns `true` if several servers may have granted at that time.
    pub fn has_lost(&self, at: u64) -> bool {
        self.data_loss.is_some_and(|loss| loss.since < at && at <= loss.until)
    }

    /// Returns when the last gateway had recovered, and had left the replaced servers.
    pub fn recovered_at(&self) -> Option<u64> {
        let recovery = self.recovery?;
        recovery.gateways_at.into_iter().max().max(self.data_loss.map(|_| recovery.servers_left_at))
    }
}

// === impl Random ===

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
        }
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("a small number")
    }
}
