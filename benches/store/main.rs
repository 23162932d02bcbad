//! Measures the store in Redis without HTTP: `cargo bench --bench store`.
//!
//! Two processes, each with a store, send decisions to one `redis-server` at rising concurrency. In alternation,
//! `redis-benchmark` calls an acquire script for Redisson, written from its documented behaviour. All grants are
//! checked: the benchmark fails if any window of one interval has more grants than the rate.
//!
//! ```text
//! cargo bench --bench store               # two minutes
//! cargo bench --bench store -- --quick    # 20 seconds
//! cargo bench --bench store -- --write    # writes its section of docs/benchmarks.md and the picture
//! ```
//!
//! Needs `redis-server` and `redis-benchmark`. Exits with 0, with 1 if a limit was exceeded, or with 2 after an error.

#![allow(unreachable_pub, reason = "the modules of a program have no users outside it")]

mod chart;
mod counters;
mod document;
mod driver;
mod drivers;
mod histogram;
mod job;
mod measured;
mod page;
#[path = "../support/redis.rs"]
mod redis;
mod redisson;
mod run;
mod scenario;
mod slice;
mod window;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use self::page::Page;
use self::run::{Plan, Run};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The argument, followed by the address of Redis, that starts a driver.
const DRIVER_FLAG: &str = "--driver";

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stderr, reason = "the program is called from a terminal")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [word, url] if word == DRIVER_FLAG => driver::run(url).await.map(|()| true),
        _ => bench(&arguments).await,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("store: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the benchmark. Returns `true` if no limit was exceeded.
#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
async fn bench(arguments: &[String]) -> Result<bool> {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let (quick, write) = (has("--quick"), has("--write"));
    if quick && write {
        return Err("`--write` needs a whole run: remove `--quick`".into());
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
    Ok(measured.exceeded_limits().next().is_none())
}
