//! Counts the allocations of a forwarded request: `cargo bench --bench allocations`.
//!
//! The allocator of one process counts, over HTTP/1 keep-alive connections: first through a minimal proxy built from
//! hyper, then through the gateway. The client and the origin do not allocate, so all allocations are the proxy's, and
//! the difference is what the gateway adds.

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

/// Requests before the measurement, after which buffers and tables have reached their size.
const WARM_UP: u32 = 500;
const REQUESTS: u32 = 5_000;

/// Allocations and bytes of one request.
struct Cost {
    allocations: f64,
    bytes: f64,
}

#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
fn main() -> Result<()> {
    let origin = origin::start()?;
    let bare = cost(bare::start(origin)?)?;
    println!("| a request through | allocations | bytes | more than the minimal proxy |\n|---|--:|--:|--:|");
    println!("| a minimal proxy | {:.1} | {:.0} | |", bare.allocations, bare.bytes);
    for (name, limits) in [("the gateway, no limits", ""), ("the gateway, two limits in the embedded store", LIMITS)] {
        let gateway = Gateway::start(config(origin, limits)?, 1)?;
        let address = gateway.addresses().first().and_then(ListenAddress::tcp).ok_or("no address")?;
        let cost = cost(address)?;
        let more = cost.allocations - bare.allocations;
        println!("| {name} | {:.1} | {:.0} | {more:.1} |", cost.allocations, cost.bytes);
        gateway.drain(Duration::from_secs(1))?;
    }
    Ok(())
}

fn cost(address: SocketAddr) -> Result<Cost> {
    let mut client = Client::connect(address)?;
    client.send_requests(WARM_UP)?;
    let region = Region::new(ALLOCATOR);
    client.send_requests(REQUESTS)?;
    let change = region.change();
    let per_request = |count: usize| count as f64 / f64::from(REQUESTS);
    Ok(Cost {
        allocations: per_request(change.allocations + change.reallocations),
        bytes: per_request(change.bytes_allocated),
    })
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
    Ok(Gateway::parse_config(&text)?)
}
