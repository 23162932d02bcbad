//! Measures the cost of a decision in the embedded store, with one and with several threads: `cargo bench
//! -p tidegate-steps --bench embedded -- --quick`.
//!
//! The time is how long it takes until each thread has made one decision. The throughput is the decisions of all
//! threads together. On a hot bucket all threads need the same lock. Decisions for many clients rarely contend.
//!
//! `cargo bench -p tidegate-steps --bench embedded -- memory` measures the memory per client instead: the growth of the
//! resident memory with a million clients that send one request each, with the gateway's allocator.

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use tidegate::redisson::Mode;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::clock::{Stopwatch, SystemClock};
use tidegate_limit::{Algorithm, MAX_RATE, Quota};
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tidegate_store::Memory;

const THREADS: [u32; 3] = [1, 2, 4];
const CLIENTS: u32 = 4_096;
const MILLION: usize = 1_000_000;

/// A short interval keeps the logs short. `decide` measures the cost of long logs.
const INTERVAL: u64 = 20;

/// The allocator of the gateway.
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
    let both: Vec<_> = addresses.iter().flatten().map(|own| vec![total.clone(), own.clone()]).collect();
    for threads in THREADS {
        bench(&mut criterion, "hot bucket", &[vec![total.clone()]], threads);
        bench(&mut criterion, "addresses", &addresses, threads);
        bench(&mut criterion, "values", &values, threads);
        bench(&mut criterion, "overall and per_client", &both, threads);
    }
    criterion.final_summary();
    Ok(())
}

/// Measures `threads` threads that decide these requests repeatedly. Each thread starts at another request.
fn bench(criterion: &mut Criterion, name: &str, requests: &[Vec<Charge>], threads: u32) {
    let memory = Memory::new(Arc::new(SystemClock::new()), None);
    let decide = |thread: u32, times: u64| {
        let offset = requests.len() * thread as usize / threads as usize;
        let requests = requests.iter().cycle().skip(offset);
        for (request, _) in requests.zip(0..times) {
            _ = black_box(memory.take(request));
        }
    };
    let run_threads = |times: u64| -> Duration {
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
    group.bench_function(format!("{threads} threads"), |bench| bench.iter_custom(run_threads));
    group.finish();
}

fn clients(limiter: &Arc<Limiter>, client: fn(u32) -> ClientId) -> Vec<Vec<Charge>> {
    (0..CLIENTS).map(|number| vec![charge(limiter, Some(client(number)))]).collect()
}

fn charge(limiter: &Arc<Limiter>, client: Option<ClientId>) -> Charge {
    Charge::new(Arc::clone(limiter), client, 1)
}

fn address(number: u32) -> ClientId {
    ClientId::Address(IpAddr::V4(Ipv4Addr::from_bits(0xc000_0000 + number)).into())
}

fn value(number: u32) -> ClientId {
    ClientId::Value(format!("header x-api-key: 0123456789abcdef-{number:016x}").into_bytes().into())
}

/// Prints a line for each algorithm and kind of client. Each is measured in a new process, so that no freed memory is
/// reused.
#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
fn memory() -> Result<(), Box<dyn Error>> {
    if let Some(row) = std::env::args().skip_while(|argument| argument != "memory").nth(1) {
        let (_, quota, client) = rows()?.swap_remove(row.parse()?);
        println!("{} |", memory_of_clients(quota, client)? / MILLION);
        return Ok(());
    }
    println!("| a million clients of | bytes for each |\n|---|--:|");
    for (row, (name, ..)) in rows()?.into_iter().enumerate() {
        let output = Command::new(std::env::current_exe()?).args(["memory", &row.to_string()]).output()?;
        print!("| {name} | {}", String::from_utf8(output.stdout)?);
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

/// Returns the growth of the resident memory with a million clients that send one request each, in bytes.
fn memory_of_clients(quota: Quota, client: fn(u32) -> ClientId) -> Result<usize, Box<dyn Error>> {
    let limiter = Limiter::new("{tidegate:bench}:per-client".to_owned(), Mode::PerClient, quota);
    let limiter = Arc::new(limiter);
    let before = resident_memory()?;
    let memory = Memory::new(Arc::new(SystemClock::new()), None);
    for number in 0..u32::try_from(MILLION)? {
        _ = memory.take(&[charge(&limiter, Some(client(number)))])?;
    }
    assert_eq!(memory.len(), MILLION, "each client has its own bucket");
    Ok(resident_memory()?.saturating_sub(before))
}

/// Returns the resident memory of this process, in bytes.
fn resident_memory() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
