//! Measures what a counted client costs (`admin.talkers`): `cargo bench -p tidegate-steps --bench talkers -- --quick`.
//!
//! The rows are a request without limits and without an access log, from many clients in turn. With the sketches off, the
//! gateway does not count. With 256 clients the sketches have a slot for each; with 100,000 clients they evict.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use criterion::Criterion;
use tidegate::internals::CountedClients;
use tokio::runtime::Builder;

const RULES: &str = "routes: [{ name: all, match: { path: /** } }]";
const CLIENTS: [u32; 2] = [256, 100_000];

/// The allocator of the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let runtime = Builder::new_current_thread().enable_time().build()?;
    for clients in CLIENTS {
        for (name, is_on) in [("off", false), ("on", true)] {
            let gateway = CountedClients::new(RULES, is_on)?;
            let mut addresses =
                (0..clients).cycle().map(|number| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number)));
            let mut serve = || addresses.next().map(|client| runtime.block_on(gateway.serve(client)));
            assert!(serve().is_some_and(|status| status.is_success()));
            criterion.bench_function(&format!("{clients} clients/{name}"), |bench| bench.iter(&mut serve));
            assert_eq!(gateway.counted(1) > 0, is_on, "only the sketches count");
        }
    }
    criterion.final_summary();
    Ok(())
}
