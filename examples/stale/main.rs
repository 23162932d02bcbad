//! Counts the requests that fail because an upstream closes its connections.
//!
//! ```text
//! cargo run --release --example stale
//! ```
//!
//! Four upstreams: one closes the connection after a tenth of its responses, one closes connections that are idle for 0
//! to 5 ms, one resets the connection after a tenth of its responses, and an nginx is reloaded ten times (skipped if
//! nginx is not installed). Uses only the loopback interface. Exits with 0 if every request got a 200.

mod load;
mod nginx;
mod origin;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tidegate::{Gateway, ListenAddress};

use self::load::{Load, Outcomes};
use self::origin::CloseMode;

/// Count the requests that fail because an upstream closes its connections
#[derive(Debug, Parser)]
struct Arguments {
    /// Seconds of load for each upstream
    #[arg(long, default_value = "5")]
    seconds: u64,
    #[arg(long, default_value = "64")]
    connections: u16,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the program prints its result")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { seconds, connections } = Arguments::parse();
    let load = Load { connections, duration: Duration::from_secs(seconds), pauses: false };
    println!("| upstream | requests | responses other than 200 | no response |\n|---|---:|---:|---:|");
    let mut is_good = true;
    for (name, mode) in [
        ("closes after 10 % of its responses", CloseMode::Closes),
        ("closes after 0 to 5 ms without a request", CloseMode::Idle),
        ("resets after 10 % of its responses", CloseMode::Resets),
    ] {
        let load = Load { pauses: mode == CloseMode::Idle, ..load };
        is_good &= print_row(name, run_through_gateway(origin::start(mode).await?, load).await?);
    }
    if let Some(nginx) = nginx::start().await? {
        let (outcomes, reloads) =
            tokio::join!(run_through_gateway(nginx.address, load), nginx.reload(10, load.duration.mul_f64(0.09)));
        reloads?;
        is_good &= print_row("nginx, reloaded ten times", outcomes?);
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[expect(clippy::print_stdout, reason = "the program prints its result")]
fn print_row(name: &str, Outcomes { ok, not_ok, missing }: Outcomes) -> bool {
    println!("| {name} | {} | {not_ok} | {missing} |", ok + not_ok + missing);
    ok > 0 && not_ok + missing == 0
}

/// Runs the load through a gateway with this upstream.
async fn run_through_gateway(upstream: SocketAddr, load: Load) -> Result<Outcomes, Box<dyn Error>> {
    let rules = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\naccess_log: off\nstore: memory\n\
         upstreams: {{ api: {{ targets: [\"http://{upstream}\"] }} }}\n\
         routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]\n"
    );
    let gateway = Gateway::start(Gateway::parse_config(&rules)?, 2)?;
    let address = gateway.addresses().first().and_then(ListenAddress::tcp).ok_or("no address")?;
    let outcomes = load.run(address).await;
    tokio::task::spawn_blocking(|| gateway.drain(Duration::from_secs(1))).await??;
    Ok(outcomes)
}
