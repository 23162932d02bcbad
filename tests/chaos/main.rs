//! Injects faults into the store of three gateways under load: a single Redis with and without TLS, a master with
//! Sentinel, and a cluster. Afterwards an independent checker checks every grant, by the clients' view and by the time
//! at which Redis decided. Without `--store`, it first checks that a client over its limit does not delay others.
//!
//! ```text
//! tests/chaos/run                             # 130 seconds
//! CHAOS_MINUTES=30 tests/chaos/run            # all faults in order, then in random order
//! tests/chaos/run --store cluster             # or single, tls, sentinel; gets all of CHAOS_SECONDS
//! tests/chaos/run --store single --only all-silent
//! CHAOS_SEED=17 tests/chaos/run               # the same faults in the same order
//! tests/chaos/run --release --far --write     # measures a remote Redis, and updates docs/reliability.md
//! ```
//!
//! Needs `redis-server`, and uses only the loopback interface. Exits with 0 if no window held more than the limit's
//! policy allows and no request was rejected for lack of a store, otherwise with 1.

#![allow(unreachable_pub, reason = "a program has no public API")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue fails")]
#![allow(clippy::print_stdout, reason = "the program prints tables")]

#[path = "../../examples/stress/run/checker.rs"]
#[allow(dead_code, reason = "parts are only for runs without faults")]
mod checker;
#[path = "../../examples/stress/run/client.rs"]
mod client;
#[path = "../it/support/cluster.rs"]
mod cluster;
mod document;
mod far;
mod faults;
mod gateway;
mod journal;
mod law;
#[path = "../it/support/listening.rs"]
mod listening;
mod load;
mod losses;
#[path = "../it/support/proxy.rs"]
mod proxy;
#[path = "../it/support/redis.rs"]
#[allow(dead_code, reason = "not every user needs all of it")]
mod redis;
mod report;
#[path = "../../examples/stress/run/rule_file.rs"]
mod rule_file;
mod run;
#[path = "../it/support/sentinel.rs"]
mod sentinel;
mod stores;
mod table;
#[path = "../it/support/tls.rs"]
#[allow(dead_code, reason = "not every user needs all of it")]
mod tls;
mod verdict;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::faults::Fault;
use self::report::Report;
use self::run::Run;
use self::stores::StoreKind;

/// Inject faults into Redis and the network under load, and check every grant
#[derive(Debug, Parser)]
struct Arguments {
    /// Minimum duration, for all stores together
    #[arg(long, env = "CHAOS_SECONDS", default_value = "125")]
    seconds: u64,
    /// The duration in minutes instead
    #[arg(long, env = "CHAOS_MINUTES")]
    minutes: Option<u64>,
    /// Test only this store
    #[arg(long, env = "CHAOS_STORE")]
    store: Option<StoreKind>,
    /// Inject only this fault
    #[arg(long, requires = "store")]
    only: Option<Fault>,
    /// Seed for the order and the length of faults; random by default
    #[arg(long, env = "CHAOS_SEED")]
    seed: Option<u64>,
    /// Requests per second of all connections together
    #[arg(long, env = "CHAOS_RATE", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Deadline of a decision, in milliseconds; 50 by default, or 250 in a debug build
    #[arg(long, env = "CHAOS_DEADLINE", default_value = DEADLINE, value_parser = clap::value_parser!(u64).range(1..))]
    deadline: u64,
    /// Measure a remote Redis instead
    #[arg(long)]
    far: bool,
    /// With --far: write the table into docs/reliability.md
    #[arg(long, requires = "far")]
    write: bool,
}

const DEADLINE: &str = if cfg!(debug_assertions) { "250" } else { "50" };

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.far {
        return far(arguments.write);
    }
    let seed = arguments.seed.unwrap_or_else(random_seed);
    println!("CHAOS_SEED={seed}");
    let mut failures = Vec::new();
    if arguments.store.is_none() {
        let Some(report) = law::measure(arguments.deadline) else { return ExitCode::FAILURE };
        println!("{report}");
        failures.extend(report.failures());
    }
    for (kind, duration) in arguments.durations() {
        let (deadline, rate) = (Duration::from_millis(arguments.deadline), arguments.rate);
        let run = Run { kind, only: arguments.only, duration, seed, rate, deadline };
        let Some(outcome) = run::run(&run) else { return ExitCode::FAILURE };
        let report = Report::new(&run, &outcome);
        println!("{report}");
        failures.extend(report.failures().into_iter().map(|failure| format!("{}: {failure}", kind.title())));
    }
    failures.iter().for_each(|failure| println!("FAILED: {failure}."));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Arguments {
    /// Returns the stores to test, each with its share of the time. Stores with more faults get more time.
    fn durations(&self) -> Vec<(StoreKind, Duration)> {
        let total = Duration::from_secs(self.minutes.map_or(self.seconds, |minutes| 60 * minutes));
        match self.store {
            Some(kind) => vec![(kind, total)],
            None => {
                let shares = [
                    (StoreKind::Single, 37),
                    (StoreKind::Tls, 17),
                    (StoreKind::Sentinel, 18),
                    (StoreKind::Cluster, 28),
                ];
                shares.map(|(kind, percent)| (kind, total * percent / 100)).to_vec()
            }
        }
    }
}

fn far(write: bool) -> ExitCode {
    let Some(report) = far::measure() else { return ExitCode::FAILURE };
    println!("{report}");
    if write {
        document::write("reliability.md", "far", &report.to_string());
    }
    ExitCode::SUCCESS
}

fn random_seed() -> u64 {
    let mut bytes = [0; 4];
    _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes).into()
}
