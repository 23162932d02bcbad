//! Limits that are shared with Java services: `cargo bench --bench shared`.
//!
//! It starts `redis-server`s of its own and measures what a call costs Redis ([`cost`]), what two programs of the library get
//! of a rate ([`processes`]), how soon a waiting one learns of a release ([`release`]), and, if REDISSON names a folder with
//! Redisson as `tests/interop/run` fetches it, what a Java service and a gateway leave each other ([`java`]). The results go
//! into `docs/redisson.md`.

#![allow(unreachable_pub, reason = "nothing outside a program sees what is in it")]

mod cost;
mod java;
mod page;
mod processes;
#[path = "../support/redis.rs"]
mod redis;
mod release;
mod subject;

use std::error::Error;

use self::java::Both;
use self::page::Page;
use self::redis::Redis;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Permits a second, of which programs get their shares.
const SHARED_RATES: [u64; 2] = [10_000, 100_000];
const JAVA_RATES: [u64; 2] = [10_000, 1_000_000];

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the page is what it is for")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [processes::ROLE, url] => return processes::ask(url).await,
        [release::ROLE, url] => return release::wait(url).await,
        _ => {}
    }
    let (server, other) = (Redis::start(&[]).await?, Redis::start(&[]).await?);
    let mut page = Page { version: redis::version(&mut server.connect()?)?, ..Page::default() };
    for rate in cost::RATES {
        page.costs.push((rate, cost::measure([&other, &server], rate).await?));
    }
    drop(other);
    for rate in SHARED_RATES {
        page.shares.push((rate, processes::measure(&server, rate).await?));
    }
    page.release = release::measure(&server).await?;
    if let Some(mut both) = Both::start(&server).await? {
        for rate in JAVA_RATES {
            page.java.push((rate, both.measure(rate).await?));
        }
    }
    println!("{page}");
    page.write()
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN)
}
