//! What the store in Redis can do without HTTP: `cargo bench --bench store`.
//!
//! Two processes with a store each ask one `redis-server` of the benchmark's own for permits, with more and more tasks
//! at the same time; in between, `redis-benchmark` runs Redisson's script on it, written down from its described
//! behaviour. Every grant is counted: if any window of an interval holds more than its rate, the benchmark fails.
//!
//! ```text
//! cargo bench --bench store               # two minutes
//! cargo bench --bench store -- --quick    # 20 seconds
//! cargo bench --bench store -- --write    # writes its section of docs/benchmarks.md, and the picture
//! ```
//!
//! It needs `redis-server` and `redis-benchmark`. Exits 0, or 1 if the law was broken, or 2 if nothing could be said.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]

mod chart;
mod counters;
mod document;
mod driver;
mod drivers;
mod histogram;
mod job;
mod law;
mod measured;
mod page;
#[path = "../support/redis.rs"]
mod redis;
mod redisson;
mod run;
mod scenario;
mod slice;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use self::page::Page;
use self::run::{Plan, Run};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Before the address of Redis: this process asks.
const DRIVE: &str = "--drive";

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stderr, reason = "people call it")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [word, url] if word == DRIVE => driver::drive(url).await.map(|()| true),
        _ => bench(&arguments).await,
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("store: {error}");
            ExitCode::from(2)
        }
    }
}

/// Measures; was the law kept?
#[expect(clippy::print_stdout, reason = "the tables are what it is for")]
async fn bench(arguments: &[String]) -> Result<bool> {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let (quick, write) = (has("--quick"), has("--write"));
    if quick && write {
        return Err("what a quick run says is not written down".into());
    }
    let plan = if quick { Plan::quick() } else { Plan::whole() };
    let mut run = Run::start(plan).await?;
    let measured = run.measure()?;
    let machine = run.machine()?;
    let (rounds, millis) = (run.plan.rounds, run.plan.millis);
    let page = Page { measured: &measured, machine: &machine, rounds, millis, has_curves: true };
    println!("{page}");
    if write {
        document::write(&Page { has_curves: false, ..page }, &measured)?;
    }
    Ok(measured.broken().next().is_none())
}
