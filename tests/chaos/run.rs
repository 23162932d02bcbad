//! A run: gateways under load, one fault after the other, and calm between them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate::clock::{Clock, SystemClock};
use tokio::time::{Instant, sleep};

use super::faults::Fault;
use super::gateway::Gateway;
use super::journal::{self, Journal, Record};
use super::load::Load;
use super::losses::Lost;
use super::table;
use super::world::{Kind, Loss, World};

pub const GATEWAYS: usize = 3;

/// Until everything is as it should be, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(10);
/// How long nothing happens between two faults.
const CALM: Duration = Duration::from_millis(2_500);
const SHORT_CALM: Duration = Duration::from_millis(1_000);
/// How long a fault lasts; longer where there is time for that.
const SHORTEST_FAULT: Duration = Duration::from_millis(700);
const SHORT_FAULT: Duration = Duration::from_millis(1_500);
const LONG_FAULT: Duration = Duration::from_secs(5);
/// How long an outage lasts in which a gateway is replaced, and how often it hands over.
const REPLACEMENT: Duration = Duration::from_secs(4);
const HANDOVERS: u32 = 3;
const LONG: Duration = Duration::from_secs(180);

/// A run to be made.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub kind: Kind,
    /// The only fault there is, if only one is to be.
    pub only: Option<Fault>,
    pub duration: Duration,
    pub seed: u64,
    pub rate: u32,
    /// Of a decision.
    pub deadline: Duration,
}

/// What happened in a run.
pub struct Witnessed {
    pub records: Vec<Record>,
    pub rounds: Vec<Round>,
    /// Of each gateway: how often it found the store wanting.
    pub failures: Vec<f64>,
}

/// A fault and what followed. Times are those of this machine, in milliseconds.
#[derive(Clone, Debug)]
pub struct Round {
    pub fault: Fault,
    /// What may have been lost of what Redis granted.
    pub lost: Option<Lost>,
    /// What a gateway has forgotten of what it granted alone.
    pub forgotten: Option<Forgotten>,
    pub begin: u64,
    /// When Redis and the network were whole again.
    pub end: u64,
    /// When all was as before. Nothing if it never was.
    pub settled: Option<Settled>,
    /// When the next fault began.
    pub next: u64,
    /// What each gateway occupied then: memory in KiB, and descriptors.
    pub occupied: Vec<(u64, usize)>,
}

/// A gateway that was restarted forgets what it granted alone before, and does not charge it.
#[derive(Clone, Copy, Debug)]
pub struct Forgotten {
    pub gateway: usize,
    pub at: u64,
}

/// When all was as before.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// When each gateway asked Redis again, and had charged what it had granted alone.
    pub of_each: [u64; GATEWAYS],
    /// When nobody asked a server any more that was replaced while it lived.
    pub left: u64,
}

/// Numbers that look random, the same for the same seed.
struct Dice(u64);

/// Makes it; nothing where there is no Redis.
pub fn run(run: &Run) -> Option<Witnessed> {
    let folder = std::env::temp_dir().join(format!("tidegate-chaos-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let witnessed = witness(run, &folder);
    match std::thread::panicking() {
        true => println!("see {}", folder.display()),
        false => fs::remove_dir_all(&folder).expect("removed"),
    }
    witnessed
}

fn witness(run: &Run, folder: &Path) -> Option<Witnessed> {
    let network = runtime(1);
    let mut world = World::start(run.kind, folder, &network, run.deadline)?;
    let (journal, records) = journal::begin();
    let mut gateways = start(folder, &world, &journal, run.deadline);

    let clients = runtime(2);
    let addresses = gateways.iter().map(|gateway| gateway.address).collect();
    let load = clients.block_on(async { Load::start(addresses, run.rate, journal) });
    // Whoever strikes waits for processes, and holds up nobody who asks or forwards.
    let (rounds, failures) = runtime(1).block_on(strike(&mut world, &mut gateways, run));
    clients.block_on(load.end());
    drop(gateways);
    Some(Witnessed { records: records.join().expect("a journal"), rounds, failures })
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

fn start(folder: &Path, world: &World, journal: &Journal, deadline: Duration) -> Vec<Gateway> {
    let start = |number| {
        let rules = folder.join(format!("gateway-{number}.yaml"));
        fs::write(&rules, table::rule_file(&world.rule(number), deadline)).expect("written");
        Gateway::start(&rules, journal.clone())
    };
    (0..GATEWAYS).map(start).collect()
}

/// Lets every fault happen once, and then any, until the time is over.
async fn strike(world: &mut World, gateways: &mut [Gateway], run: &Run) -> (Vec<Round>, Vec<f64>) {
    let (clock, end) = (SystemClock::new(), Instant::now() + run.duration);
    let now = || clock.now().as_millis();
    settled(world, gateways, true).await.expect("gateways that know each other");
    let (faults, is_long) = (Fault::of(run.kind), run.duration >= LONG);
    let (longest, calm) = if is_long { (LONG_FAULT, CALM) } else { (SHORT_FAULT, SHORT_CALM) };
    sleep(calm).await;
    let (mut dice, mut rounds) = (Dice(run.seed), Vec::<Round>::new());
    while Instant::now() < end {
        let any = dice.below(faults.len());
        let fault = run.only.unwrap_or_else(|| faults.get(rounds.len()).copied().unwrap_or(faults[any]));
        let lasts = SHORTEST_FAULT + (longest - SHORTEST_FAULT) * u32::try_from(dice.below(100)).expect("less") / 100;
        let victim = dice.below(GATEWAYS);
        let (begin, epoch) = (now(), world.epoch());
        let lasts = if fault.replaces_gateway() { REPLACEMENT } else { lasts };
        let replaced = replace(&mut gateways[victim], fault);
        let (loss, restarted) = tokio::join!(world.strike(fault, lasts, victim), replaced);
        let forgotten = restarted.map(|at| Forgotten { gateway: victim, at });
        let ended = now();
        gateways[victim].wait_for_drains();
        let settled = settled(world, gateways, false).await;
        sleep(calm).await;
        let is_replaced = world.mend();
        // A server that was replaced while it lived grants until everybody has left it.
        let left = settled.map_or_else(now, |settled| settled.left);
        let span = match loss {
            _ if is_replaced => Some((begin, now())),
            Some(Loss::Since(since)) => Some((since, left)),
            Some(Loss::At(at)) => Some((at, at)),
            None => None,
        };
        let times = world.epoch().saturating_sub(epoch).max(1);
        let lost = span.map(|(since, until)| Lost { since, until, times });
        let occupied = gateways.iter().map(Gateway::occupies).collect();
        rounds.push(Round { fault, lost, forgotten, begin, end: ended, settled, next: now(), occupied });
    }
    let mut failures = Vec::new();
    for gateway in gateways {
        failures.push(gateway.counter("tidegate_store_failures_total").await);
    }
    (rounds, failures)
}

/// Replaces a gateway, if that belongs to the fault. Returns when the old process had ended, if the new one knows nothing of it.
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

/// Waits until each gateway asks Redis and owes it nothing, and, if need be, knows how many they are, and until nobody asks a server
/// that was replaced; says when all that was so.
async fn settled(world: &World, gateways: &mut [Gateway], all_known: bool) -> Option<Settled> {
    let (clock, end) = (SystemClock::new(), Instant::now() + PATIENCE);
    let (mut settled, mut left) = ([None; GATEWAYS], None);
    while Instant::now() < end {
        left = left.or_else(|| world.is_left().then(|| clock.now().as_millis()));
        for (gateway, settled) in gateways.iter_mut().zip(&mut settled).filter(|(_, settled)| settled.is_none()) {
            // What is granted while it is asked is not meant.
            let (asked, standing) = (clock.now().as_millis(), gateway.standing().await);
            let is_known = !all_known || standing.gateways == GATEWAYS as u64;
            *settled = (standing.is_up && standing.owed == 0 && is_known).then_some(asked);
        }
        if let (Some(left), true) = (left, settled.iter().all(Option::is_some)) {
            return Some(Settled { of_each: settled.map(Option::unwrap_or_default), left });
        }
        sleep(GLANCE).await;
    }
    None
}

// === impl Round ===

impl Round {
    /// May what was granted then have been granted by several servers side by side?
    pub fn is_lost(&self, at: u64) -> bool {
        self.lost.is_some_and(|lost| lost.since < at && at <= lost.until)
    }

    /// When the last gateway had settled, and had left servers that were replaced.
    pub fn all_settled(&self) -> Option<u64> {
        let settled = self.settled?;
        settled.of_each.into_iter().max().max(self.lost.map(|_| settled.left))
    }
}

// === impl Dice ===

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
        }
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("a small number")
    }
}
