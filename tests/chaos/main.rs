//! Three gateways under load while their store fails in every way that can be made here: one Redis, without
//! TLS and with it, one that sentinels watch, a cluster. A checker of its own then judges every grant, by what clients saw and when
//! Redis says that it decided.
//!
//! ```text
//! tests/chaos/run                             # 130 seconds
//! CHAOS_MINUTES=30 tests/chaos/run            # after all faults in order, they come as they like
//! tests/chaos/run --store cluster             # or single, tls, sentinel; CHAOS_SECONDS=60 is then for this one alone
//! tests/chaos/run --store single --only all-silent
//! CHAOS_SEED=17 tests/chaos/run               # the same faults in the same order
//! tests/chaos/run --release --far --write     # measures a Redis that is far away, for docs/reliability.md
//! ```
//!
//! It needs `redis-server`, and uses loopback alone. Exits 0 if no window held more than the limit's policy allows and nobody
//! was refused for want of a store, 1 if not.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

#[path = "../../examples/stress/run/checker.rs"]
#[allow(dead_code, reason = "it is also for a run without faults")]
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
#[path = "../it/support/listening.rs"]
mod listening;
mod load;
mod losses;
#[path = "../it/support/proxy.rs"]
mod proxy;
#[path = "../it/support/redis.rs"]
#[allow(dead_code, reason = "each user takes what it needs")]
mod redis;
mod report;
#[path = "../../examples/stress/run/rule_file.rs"]
mod rule_file;
mod run;
#[path = "../it/support/sentinel.rs"]
mod sentinel;
mod table;
#[path = "../it/support/tls.rs"]
#[allow(dead_code, reason = "each user takes what it needs")]
mod tls;
mod verdict;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use self::faults::Fault;
use self::report::Report;
use self::run::Run;
use self::world::Kind;

/// Break Redis and the network under load, and judge every grant
#[derive(Debug, Parser)]
struct Arguments {
    /// How long at least, all stores together
    #[arg(long, env = "CHAOS_SECONDS", default_value = "125")]
    seconds: u64,
    /// The same in minutes, instead
    #[arg(long, env = "CHAOS_MINUTES")]
    minutes: Option<u64>,
    /// The only store to try
    #[arg(long, env = "CHAOS_STORE")]
    store: Option<Kind>,
    /// The only fault to try
    #[arg(long, requires = "store")]
    only: Option<Fault>,
    /// What the order and the length of faults come from; any, unless given
    #[arg(long, env = "CHAOS_SEED")]
    seed: Option<u64>,
    /// Requests a second that all connections together send
    #[arg(long, env = "CHAOS_RATE", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// A decision's deadline, in milliseconds; unless given the default of 50, or 250 in a program that was not optimised
    #[arg(long, env = "CHAOS_DEADLINE", default_value = DEADLINE, value_parser = clap::value_parser!(u64).range(1..))]
    deadline: u64,
    /// Measure a Redis that is far away instead
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
    let seed = arguments.seed.unwrap_or_else(any_seed);
    println!("CHAOS_SEED={seed}");
    let mut broken = Vec::new();
    for (kind, duration) in arguments.parts() {
        let (deadline, rate) = (Duration::from_millis(arguments.deadline), arguments.rate);
        let run = Run { kind, only: arguments.only, duration, seed, rate, deadline };
        let Some(witnessed) = run::run(&run) else { return ExitCode::FAILURE };
        let report = Report::of(&run, &witnessed);
        println!("{report}");
        broken.extend(report.broken().into_iter().map(|what| format!("{}: {what}", kind.title())));
    }
    broken.iter().for_each(|what| println!("NOT GOOD: {what}."));
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Arguments {
    /// Which stores to try, and how long each; more of it for those with more faults.
    fn parts(&self) -> Vec<(Kind, Duration)> {
        let all = Duration::from_secs(self.minutes.map_or(self.seconds, |minutes| 60 * minutes));
        match self.store {
            Some(kind) => vec![(kind, all)],
            None => {
                let parts = [(Kind::Single, 37), (Kind::Tls, 17), (Kind::Sentinel, 18), (Kind::Cluster, 28)];
                parts.map(|(kind, percent)| (kind, all * percent / 100)).to_vec()
            }
        }
    }
}

fn far(write: bool) -> ExitCode {
    let Some(far) = far::measure() else { return ExitCode::FAILURE };
    println!("{far}");
    if write {
        document::write("reliability.md", "far", &far.to_string());
    }
    ExitCode::SUCCESS
}

fn any_seed() -> u64 {
    let mut bytes = [0; 4];
    _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes).into()
}
