//! Opens 10,000 slow connections of each kind, from one address and from 250, while an honest client sends 50 requests
//! per second. Measures whether all honest requests succeed, their response times compared with a calm gateway, and the
//! memory of the gateway. The kind `unread` has only 100 connections, each with 100 HTTP/2 streams.
//!
//! ```text
//! cargo run --release --example slow
//! cargo run --release --example slow -- --connections 2000 --hold 3
//! cargo run --release --example slow -- --kind unread
//! ```
//!
//! The gateway and the origins are separate processes of this program. Uses only the loopback interface, and takes at
//! most two minutes. Exits with 1 if an honest request failed.

#![allow(unreachable_pub, reason = "the modules of a program have no users outside it")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the program prints its result")]

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
use self::honest::{HonestClient, Results};

/// Measure a client while thousands of connections are slow
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of concurrent slow connections
    #[arg(long, default_value = "10000")]
    connections: usize,
    /// Seconds for which the connections are held
    #[arg(long, default_value = "6")]
    hold: u64,
    /// Open slow connections of this kind only
    #[arg(long)]
    kind: Option<Kind>,
    /// Run as one of the other processes
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// Addresses of the origins: for slow connections, and for the honest client
    #[arg(long, hide = true)]
    origin: Vec<std::net::SocketAddr>,
}

/// A line of the table.
struct Row {
    name: String,
    /// The results while the connections were opened and in the second after, and then while they were held.
    opening: Results,
    results: Results,
    /// Connections that were open at the end, and connections that were refused or closed.
    open: usize,
    ended: usize,
    /// The largest memory of the gateway, in KiB.
    memory: u64,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let descriptors = descriptors::raise()?;
    if let Some(role) = arguments.role {
        child::run(role, &arguments.origin)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Other files need some descriptors. With some kinds, the gateway needs one for the client and one for the origin.
    let most = descriptors.saturating_sub(500);
    let connections = arguments.connections.min(most);
    if connections < arguments.connections {
        eprintln!("opening only {connections} connections: the limit is {descriptors} descriptors");
    }
    if descriptors < 2 * connections + 500 {
        eprintln!(
            "the gateway has too few descriptors for a connection to the origin per client: the limit is {descriptors}"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(measure(arguments.kind, connections, Duration::from_secs(arguments.hold)))?;
    let all_succeeded = rows.iter().all(|row| row.results.failed + row.opening.failed == 0);
    table(&rows);
    Ok(if all_succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(only: Option<Kind>, connections: usize, hold: Duration) -> Result<Vec<Row>, Box<dyn Error>> {
    let origins = [Child::start(Role::Origin, &[])?, Child::start(Role::Origin, &[])?];
    let gateway = Child::start(Role::Gateway, &origins.each_ref().map(|origin| origin.address))?;
    let honest = HonestClient::start(gateway.address);
    sleep(Duration::from_secs(1)).await;
    honest.take();
    sleep(Duration::from_secs(8)).await;
    let mut rows = vec![Row {
        name: "calm".into(),
        opening: Results::default(),
        results: honest.take(),
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
            // Responses to the last of these connections are still sent.
            sleep(Duration::from_secs(1)).await;
            let (opening, mut memory) = (honest.take(), gateway.memory());
            let end = tokio::time::Instant::now() + hold;
            while tokio::time::Instant::now() < end {
                sleep(Duration::from_millis(200)).await;
                memory = memory.max(gateway.memory());
            }
            let (open, ended) = attack.stop();
            let (name, results) = (format!("{kind:?}, {from}"), honest.take());
            rows.push(Row { name, opening, results, open, ended, memory });
            // Waits until the gateway has closed these connections, so that kinds do not add up.
            sleep(Duration::from_secs(1)).await;
            honest.take();
        }
    }
    Ok(rows)
}

fn table(rows: &[Row]) {
    println!(
        "| slow connections | open | refused or closed | requests | succeeded | p50 | p99 | p99 / calm p99 \
         | slowest during and shortly after opening | memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let calm = rows.first().map_or(Duration::ZERO, |row| row.results.percentile(99));
    for Row { name, opening, results, open, ended, memory } in rows {
        let ratio = results.percentile(99).as_secs_f64() / calm.as_secs_f64().max(1e-9);
        let millis = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1_000.0);
        println!(
            "| {name} | {open} | {ended} | {} | {} | {} | {} | {ratio:.1} | {} | {} MiB |",
            results.requests() + opening.requests(),
            results.response_times.len() + opening.response_times.len(),
            millis(results.percentile(50)),
            millis(results.percentile(99)),
            millis(opening.percentile(100)),
            memory / 1024
        );
    }
}
