//! What a decision of the embedded store costs, alone and beside others: `cargo bench --bench embedded -- --quick`.
//!
//! A time is that in which each thread makes one decision, and the throughput that of all threads together. On a hot
//! bucket all threads want the same lock; spread over many, they hardly meet.
//!
//! `cargo bench --bench embedded -- memory` tells instead what a client occupies that has asked once: what a million of them
//! add to the resident memory of the process, with the gateway's allocator.

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use tidegate::Mode;
use tidegate::internals::clock::{Stopwatch, SystemClock};
use tidegate::internals::limit::calendar::{Calendar, Unit};
use tidegate::internals::limit::{Algorithm, Charge, ClientId, Limiter, MAX_RATE, Quota};
use tidegate::internals::store::Memory;

const THREADS: [u32; 3] = [1, 2, 4];
const CLIENTS: u32 = 4_096;
const MILLION: usize = 1_000_000;

/// So short that logs are short: what long ones cost is told by `decide`.
const INTERVAL: u64 = 20;

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|argument| argument == "memory") {
        return memory();
    }
    let mut criterion = Criterion::default().configure_from_args();
    let limiter = |name: &str, mode| -> Result<Arc<Limiter>, Box<dyn Error>> {
        let quota = Quota::new(MAX_RATE.into(), INTERVAL, Algorithm::TokenBucket)?;
        Ok(Arc::new(Limiter::new(name.to_owned(), mode, quota)))
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

/// One line for each algorithm and kind of client, each told by a process of its own: no memory that was used before.
#[expect(clippy::print_stdout, reason = "the table is what it is for")]
fn memory() -> Result<(), Box<dyn Error>> {
    if let Some(row) = std::env::args().skip_while(|argument| argument != "memory").nth(1) {
        let (_, quota, client) = rows()?.swap_remove(row.parse()?);
        println!("{} |", occupied(quota, client)? / MILLION);
        return Ok(());
    }
    println!("| a million clients of | bytes for each |\n|---|--:|");
    for (row, (name, ..)) in rows()?.into_iter().enumerate() {
        let told = Command::new(std::env::current_exe()?).args(["memory", &row.to_string()]).output()?;
        print!("| {name} | {}", String::from_utf8(told.stdout)?);
    }
    Ok(())
}

type Row = (String, Quota, fn(u32) -> ClientId);

fn rows() -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows: Vec<Row> = Vec::new();
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::Gcra { burst: 100 },
        Algorithm::SlidingWindow { segments: 10 },
        Algorithm::FixedWindow(Calendar::new(Unit::Day, "UTC")?),
    ] {
        for (kind, client) in [("address", address as fn(u32) -> ClientId), ("value", value)] {
            let name = format!("{}, by {kind}", algorithm.name());
            rows.push((name, Quota::new(100, 86_400_000, algorithm)?, client));
        }
    }
    Ok(rows)
}

/// What a million clients that ask once add to the resident memory.
fn occupied(quota: Quota, client: fn(u32) -> ClientId) -> Result<usize, Box<dyn Error>> {
    let limiter = Limiter::new("{tidegate:bench}:per-client".to_owned(), Mode::PerClient, quota);
    let limiter = Arc::new(limiter);
    let before = resident()?;
    let memory = Memory::new(Arc::new(SystemClock::new()), None);
    for number in 0..u32::try_from(MILLION)? {
        _ = memory.take(&[charge(&limiter, Some(client(number)))])?;
    }
    assert_eq!(memory.len(), MILLION, "each has a bucket of its own");
    Ok(resident()?.saturating_sub(before))
}

/// The resident memory of this process, in bytes.
fn resident() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
