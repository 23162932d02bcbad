//! Clients that ask through a gateway whose upstream keeps closing its connections, and how many of them notice.
//!
//! ```text
//! cargo run --release --example stale
//! ```
//!
//! Four upstreams: one that closes after a tenth of its answers, one that closes connections that were idle for 0 to 5 ms,
//! one that resets after a tenth of its answers, and an nginx (left out where there is none) that is told ten times to
//! reload. It uses loopback alone, and exits 0 if every request was answered with 200.

mod load;
mod nginx;
mod origin;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tidegate::{Config, Gateway, ListenAddress};

use self::load::{Answers, Load};
use self::origin::Habit;

/// Count the requests that fail because an upstream closes its connections
#[derive(Debug, Parser)]
struct Arguments {
    /// How long to ask each upstream
    #[arg(long, default_value = "5")]
    seconds: u64,
    #[arg(long, default_value = "64")]
    connections: u16,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the table is what it is for")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { seconds, connections } = Arguments::parse();
    let load = Load { connections, lasts: Duration::from_secs(seconds), pauses: false };
    println!("| upstream | requests | other answers than 200 | none |\n|---|---:|---:|---:|");
    let mut is_good = true;
    for (name, habit) in [
        ("closes after 10 % of its answers", Habit::Closes),
        ("closes after 0 to 5 ms without a request", Habit::Tires),
        ("resets after 10 % of its answers", Habit::Resets),
    ] {
        let load = Load { pauses: habit == Habit::Tires, ..load };
        is_good &= show(name, through_a_gateway(origin::start(habit).await?, load).await?);
    }
    if let Some(nginx) = nginx::start().await? {
        let (answers, reloads) =
            tokio::join!(through_a_gateway(nginx.address, load), nginx.reload(10, load.lasts.mul_f64(0.09)));
        reloads?;
        is_good &= show("nginx, reloaded ten times", answers?);
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[expect(clippy::print_stdout, reason = "the table is what it is for")]
fn show(name: &str, Answers { good, bad, none }: Answers) -> bool {
    println!("| {name} | {} | {bad} | {none} |", good + bad + none);
    good > 0 && bad + none == 0
}

/// What the clients of a gateway before this upstream are answered.
async fn through_a_gateway(upstream: SocketAddr, load: Load) -> Result<Answers, Box<dyn Error>> {
    let rules = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\naccess_log: off\nstore: memory\n\
         upstreams: {{ api: {{ targets: [\"http://{upstream}\"] }} }}\n\
         routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]\n"
    );
    let gateway = Gateway::start(Config::parse_for_gateway(&rules)?, 2)?;
    let address = gateway.addresses().first().and_then(ListenAddress::tcp).ok_or("no address")?;
    let answers = load.ask(address).await;
    tokio::task::spawn_blocking(|| gateway.drain(Duration::from_secs(1))).await??;
    Ok(answers)
}
