//! What a decision of the embedded store costs, alone and beside others: `cargo bench --bench embedded -- --quick`.
//!
//! A time is that in which each thread makes one decision, and the throughput that of all threads together. On a hot
//! bucket all threads want the same lock; spread over many, they hardly meet.

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use tidegate::clock::{Stopwatch, SystemClock};
use tidegate::limit::{Algorithm, Charge, ClientId, Limiter, MAX_RATE, Mode, Quota};
use tidegate::store::Memory;

const THREADS: [u32; 3] = [1, 2, 4];
const CLIENTS: u32 = 4_096;

/// So short that logs are short: what long ones cost is told by `decide`.
const INTERVAL: u64 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let limiter = |name: &str, mode| -> Result<Arc<Limiter>, Box<dyn Error>> {
        let quota = Quota::new(MAX_RATE.into(), INTERVAL, Algorithm::TokenBucket)?;
        Ok(Arc::new(Limiter { name: name.to_owned(), mode, quota }))
    };
    let total = charge(&limiter("{tidegate:bench}:total", Mode::Overall)?, None);
    let per_client = limiter("{tidegate:bench}:per-client", Mode::PerClient)?;
    let addresses = clients(&per_client, address);
    let values = clients(&per_client, value);
    let both: Vec<_> = addresses.iter().flatten().map(|one| vec![total.clone(), one.clone()]).collect();
    for threads in THREADS {
        bench(&mut criterion, "hot bucket", &[vec![total.clone()]], threads);
        bench(&mut criterion, "addresses", &addresses, threads);
        bench(&mut criterion, "values", &values, threads);
        bench(&mut criterion, "overall and per_client", &both, threads);
    }
    criterion.final_summary();
    Ok(())
}

/// Lets so many threads decide these requests over and over, each beginning elsewhere.
fn bench(criterion: &mut Criterion, name: &str, requests: &[Vec<Charge>], threads: u32) {
    let memory = Memory::new(Arc::new(SystemClock::new()), None);
    let decide = |thread: u32, times: u64| {
        let offset = requests.len() * thread as usize / threads as usize;
        let requests = requests.iter().cycle().skip(offset);
        for (request, _) in requests.zip(0..times) {
            _ = black_box(memory.take(request));
        }
    };
    let together = |times: u64| -> Duration {
        let stopwatch = Stopwatch::start();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || decide(thread, times));
            }
        });
        stopwatch.elapsed()
    };
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(threads.into()));
    group.bench_function(format!("{threads} threads"), |bench| bench.iter_custom(together));
    group.finish();
}

fn clients(limiter: &Arc<Limiter>, client: fn(u32) -> ClientId) -> Vec<Vec<Charge>> {
    (0..CLIENTS).map(|number| vec![charge(limiter, Some(client(number)))]).collect()
}

fn charge(limiter: &Arc<Limiter>, client: Option<ClientId>) -> Charge {
    Charge { limiter: Arc::clone(limiter), client, permits: 1, shadow: false }
}

fn address(number: u32) -> ClientId {
    ClientId::Address(IpAddr::V4(Ipv4Addr::from_bits(0xc000_0000 + number)).into())
}

fn value(number: u32) -> ClientId {
    ClientId::Value(format!("header x-api-key: 0123456789abcdef-{number:016x}").into_bytes().into())
}
