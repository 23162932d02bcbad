//! What a forwarded request allocates: `cargo bench --bench allocations`.
//!
//! Counted in one process, by its allocator, over keep-alive connections of HTTP/1: first through a bare proxy of hyper's
//! parts, which forwards and does nothing else, then through the gateway. The client and the origin allocate nothing, so
//! all that is counted is the proxy's, and the difference is ours.

mod bare;
mod client;
mod origin;

use std::alloc::System;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate::{Config, Gateway, ListenAddress};

use self::client::Client;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Buffers and tables have grown to their size after so many.
const WARM_UP: u32 = 500;
const REQUESTS: u32 = 5_000;

/// Allocations and bytes of one request.
struct Cost {
    allocations: f64,
    bytes: f64,
}

#[expect(clippy::print_stdout, reason = "the table is what it is for")]
fn main() -> Result<()> {
    let origin = origin::start()?;
    let bare = cost(bare::start(origin)?)?;
    println!("| a request through | allocations | bytes | beyond the bare proxy |\n|---|--:|--:|--:|");
    println!("| a bare proxy | {:.1} | {:.0} | |", bare.allocations, bare.bytes);
    for (name, limits) in [("the gateway, no limits", ""), ("the gateway, two limits in the embedded store", LIMITS)] {
        let gateway = Gateway::start(config(origin, limits)?, 1)?;
        let address = gateway.addresses().first().and_then(ListenAddress::tcp).ok_or("no address")?;
        let cost = cost(address)?;
        let beyond = cost.allocations - bare.allocations;
        println!("| {name} | {:.1} | {:.0} | {beyond:.1} |", cost.allocations, cost.bytes);
        gateway.drain(Duration::from_secs(1))?;
    }
    Ok(())
}

fn cost(address: SocketAddr) -> Result<Cost> {
    let mut client = Client::connect(address)?;
    client.ask(WARM_UP)?;
    let region = Region::new(ALLOCATOR);
    client.ask(REQUESTS)?;
    let change = region.change();
    let of_one = |count: usize| count as f64 / f64::from(REQUESTS);
    Ok(Cost { allocations: of_one(change.allocations + change.reallocations), bytes: of_one(change.bytes_allocated) })
}

const LIMITS: &str = "
    limits:
      - { name: total, mode: OVERALL, rate: 1000000, interval: 1s }
      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 1000000, interval: 1s }
";

fn config(origin: SocketAddr, limits: &str) -> Result<Config> {
    let text = format!(
        "
listen: 127.0.0.1:0
admin: 127.0.0.1:0
access_log: off
store: memory
upstreams:
  api:
    targets: [\"http://{origin}\"]
routes:
  - name: all
    match: {{ path: /** }}
    upstream: api{limits}"
    );
    Ok(Config::parse_for_gateway(&text)?)
}
