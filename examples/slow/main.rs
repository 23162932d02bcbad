//! 10,000 slow connections of each kind, from one address and from many, while an honest client asks fifty times a second:
//! whether it is always answered, how long that takes beside calm times, and what memory the gateway needs. HTTP/2
//! clients that leave the responses of 100 streams in the socket are 100.
//!
//! ```text
//! cargo run --release --example slow
//! cargo run --release --example slow -- --connections 2000 --hold 3
//! cargo run --release --example slow -- --kind unread
//! ```
//!
//! The gateway and its origin are processes of their own, this program again. It uses loopback alone, is over within two
//! minutes, and exits 1 if the honest client was not always answered.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a table is what it is for")]

mod attack;
mod child;
mod descriptors;
mod honest;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tokio::time::sleep;

use self::attack::{Attack, Kind};
use self::child::{Child, Role};
use self::honest::{Honest, Times};

/// Ask honestly while thousands are slow
#[derive(Debug, Parser)]
struct Arguments {
    /// How many slow connections at once
    #[arg(long, default_value = "10000")]
    connections: usize,
    /// For how long they are held, in seconds
    #[arg(long, default_value = "6")]
    hold: u64,
    /// Open slow connections of this kind only
    #[arg(long)]
    kind: Option<Kind>,
    /// Be one of the other processes
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// Where the origins are: that of the slow ones, and that of the honest client
    #[arg(long, hide = true)]
    origin: Vec<std::net::SocketAddr>,
}

/// A line of the table.
struct Row {
    what: String,
    /// While they were opened, as fast as it goes, and the second after; and then while they were held.
    opening: Times,
    times: Times,
    /// Open when all had been tried, and what became of the others.
    open: usize,
    ended: usize,
    /// Most memory of the gateway meanwhile, in KiB.
    memory: u64,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let descriptors = descriptors::raise()?;
    if let Some(role) = arguments.role {
        child::run(role, &arguments.origin)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Some descriptors are for everything else. The gateway needs one to the origin beside each client's, for some kinds.
    let most = descriptors.saturating_sub(500);
    let connections = arguments.connections.min(most);
    if connections < arguments.connections {
        eprintln!("only {connections} connections: a process may have {descriptors} descriptors");
    }
    if descriptors < 2 * connections + 500 {
        eprintln!("the gateway may have {descriptors} descriptors: too few for as many connections to its origin");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(measure(arguments.kind, connections, Duration::from_secs(arguments.hold)))?;
    let all_answered = rows.iter().all(|row| row.times.failed + row.opening.failed == 0);
    table(&rows);
    Ok(if all_answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(only: Option<Kind>, connections: usize, hold: Duration) -> Result<Vec<Row>, Box<dyn Error>> {
    let origins = [Child::start(Role::Origin, &[])?, Child::start(Role::Origin, &[])?];
    let gateway = Child::start(Role::Gateway, &origins.each_ref().map(|origin| origin.address))?;
    let honest = Honest::start(gateway.address);
    sleep(Duration::from_secs(1)).await;
    honest.take();
    sleep(Duration::from_secs(8)).await;
    let mut rows = vec![Row {
        what: "calm".into(),
        opening: Times::default(),
        times: honest.take(),
        open: 0,
        ended: 0,
        memory: gateway.memory(),
    }];
    let kinds = Kind::value_variants().iter().filter(|kind| only.is_none_or(|only| only == **kind));
    for kind in kinds {
        for (from, addresses) in [("one address", 1), ("250 addresses", 250)] {
            let addresses: Vec<IpAddr> =
                (0..addresses).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 1, last + 1))).collect();
            let attack = Attack::start(*kind, gateway.address, &addresses, kind.connections(connections)).await;
            // What the last of them ask for is answered meanwhile.
            sleep(Duration::from_secs(1)).await;
            let (opening, mut memory) = (honest.take(), gateway.memory());
            let end = tokio::time::Instant::now() + hold;
            while tokio::time::Instant::now() < end {
                sleep(Duration::from_millis(200)).await;
                memory = memory.max(gateway.memory());
            }
            let (open, ended) = attack.stop();
            let (what, times) = (format!("{kind:?}, {from}"), honest.take());
            rows.push(Row { what, opening, times, open, ended, memory });
            // Until the gateway has let go of them, so that kinds do not add up.
            sleep(Duration::from_secs(1)).await;
            honest.take();
        }
    }
    Ok(rows)
}

fn table(rows: &[Row]) {
    println!(
        "| slow connections | open | refused or ended | asked | answered | p50 | p99 | p99 beside calm | slowest while they were opened, and a second after | memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let calm = rows.first().map_or(Duration::ZERO, |row| row.times.percentile(99));
    for Row { what, opening, times, open, ended, memory } in rows {
        let beside = times.percentile(99).as_secs_f64() / calm.as_secs_f64().max(1e-9);
        let millis = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1_000.0);
        println!(
            "| {what} | {open} | {ended} | {} | {} | {} | {} | {beside:.1} | {} | {} MiB |",
            times.asked() + opening.asked(),
            times.answered.len() + opening.answered.len(),
            millis(times.percentile(50)),
            millis(times.percentile(99)),
            millis(opening.percentile(100)),
            memory / 1024
        );
    }
}
