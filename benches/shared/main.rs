//! Measures limits that are shared with Java services: `cargo bench --bench shared`.
//!
//! Starts `redis-server` and measures the CPU time of a call ([`cost`]), the shares of two processes that use the
//! library ([`processes`]), and the delay until a waiting caller notices a release ([`release`]). If `REDISSON` names a
//! folder with Redisson as `tests/interop/run` downloads it, also measures how a Java service and a gateway share a
//! limiter ([`java`]). Writes the results to `docs/redisson.md`.

#![allow(unreachable_pub, reason = "the modules of a program have no users outside it")]

mod cost;
mod java;
mod page;
mod processes;
#[path = "../support/redis.rs"]
mod redis;
mod release;
mod subject;

use std::error::Error;

use self::java::JavaAndGateway;
use self::page::Page;
use self::redis::Redis;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Permits per second of a limiter that two processes share.
const SHARED_RATES: [u64; 2] = [10_000, 100_000];
const JAVA_RATES: [u64; 2] = [10_000, 1_000_000];

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [processes::ROLE, url] => return processes::take_permits(url).await,
        [release::ROLE, url] => return release::wait(url).await,
        _ => {}
    }
    let (server, redisson_server) = (Redis::start(&[]).await?, Redis::start(&[]).await?);
    let mut page = Page { version: redis::version(&mut server.connect()?)?, ..Page::default() };
    for rate in cost::RATES {
        page.costs.push((rate, cost::measure([&redisson_server, &server], rate).await?));
    }
    drop(redisson_server);
    for rate in SHARED_RATES {
        page.shares.push((rate, processes::measure(&server, rate).await?));
    }
    page.release = release::measure(&server).await?;
    if let Some(mut java_and_gateway) = JavaAndGateway::start(&server).await? {
        for rate in JAVA_RATES {
            page.java.push((rate, java_and_gateway.measure(rate).await?));
        }
    }
    println!("{page}");
    page.write()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
