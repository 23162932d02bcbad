//! Measures the compression of responses: `cargo bench -p tidegate-steps --bench compress -- --quick`.
//!
//! The time is for a whole response, from the creation of its encoder to its last bytes, in pieces of 16 KiB.
//!
//! `cargo bench -p tidegate-steps --bench compress -- memory` measures the memory of an encoder instead: the growth of the
//! resident memory with as many responses as the gateway compresses at a time, each in the middle of 1 MiB.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::iter::from_fn;
use std::process::Command;

use criterion::{Criterion, Throughput};
use tidegate::internals::ResponseEncoder;
use tidegate_rules::route::Coding;

const LENGTHS: [usize; 4] = [1 << 10, 16 << 10, 128 << 10, 1 << 20];
const PIECE: usize = 16 << 10;

/// The allocator of the gateway.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|argument| argument == "memory") {
        return memory();
    }
    let mut criterion = Criterion::default().configure_from_args();
    for coding in Coding::ALL {
        let mut group = criterion.benchmark_group(coding.name());
        for length in LENGTHS {
            let page = page(length)?;
            compress(*coding, &page).ok_or("no encoder")?;
            group.throughput(Throughput::Bytes(u64::try_from(length)?));
            group.bench_function(format!("{} KiB", length >> 10), |bench| {
                bench.iter(|| compress(*coding, black_box(&page)));
            });
        }
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}

/// Compresses a page. Returns the number of bytes to send.
fn compress(coding: Coding, page: &[u8]) -> Option<usize> {
    let mut encoder = ResponseEncoder::new(coding)?;
    let mut sent = 0;
    for piece in page.chunks(PIECE) {
        sent += encoder.compress(piece).ok()?.len();
    }
    Some(sent + encoder.finish().ok()?.len())
}

/// Returns a list in JSON whose values are partly random.
fn page(length: usize) -> Result<Vec<u8>, std::fmt::Error> {
    let mut text = String::with_capacity(length + 100);
    let mut number = 0_u64;
    while text.len() < length {
        number += 1;
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (kind, price) = (random >> 60, random % 100_000);
        write!(text, r#"{{"id":{number},"token":"{random:016x}","name":"article of kind {kind}","price":{price}}},"#)?;
    }
    text.truncate(length);
    Ok(text.into_bytes())
}

/// Prints a line for each coding. Each is measured in a new process, so that no freed memory is reused.
#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
fn memory() -> Result<(), Box<dyn Error>> {
    let page = page(LENGTHS[3])?;
    let named = std::env::args().skip_while(|argument| argument != "memory").nth(1);
    let named = Coding::ALL.iter().find(|coding| named.as_deref() == Some(coding.name()));
    if let Some(coding) = named {
        let (count, bytes) = memory_of_encoders(*coding, &page[..LENGTHS[3] / 2])?;
        let sent = compress(*coding, &page).ok_or("no encoder")?;
        println!("| {} | {count} | {} | {} |", coding.name(), bytes / count / 1_024, sent / 1_024);
        return Ok(());
    }
    println!("| coding | responses at a time | KiB for each | KiB of the compressed MiB |\n|---|--:|--:|--:|");
    for coding in Coding::ALL {
        let output = Command::new(std::env::current_exe()?).args(["memory", coding.name()]).output()?;
        print!("{}", String::from_utf8(output.stdout)?);
    }
    Ok(())
}

/// Returns the number of encoders at a time, and the growth of the resident memory in bytes after each has read `begin`.
fn memory_of_encoders(coding: Coding, begin: &[u8]) -> Result<(usize, usize), Box<dyn Error>> {
    let before = resident_memory()?;
    let mut encoders: Vec<_> = from_fn(|| ResponseEncoder::new(coding)).collect();
    for encoder in &mut encoders {
        for piece in begin.chunks(PIECE) {
            encoder.compress(piece)?;
        }
    }
    Ok((encoders.len(), resident_memory()?.saturating_sub(before)))
}

/// Returns the resident memory of this process, in bytes.
fn resident_memory() -> Result<usize, Box<dyn Error>> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    Ok(4096 * pages.split(' ').nth(1).ok_or("no resident memory")?.parse::<usize>()?)
}
