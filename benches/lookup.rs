//! What it costs to find the route of a request, among few and among many: `cargo bench --bench lookup -- --quick`.
//!
//! Of three routes in four, one has a segment of any text, one ends exactly, and one is for all below; the fourth has a
//! host of its own. The last lines compare 10,000 routes with 10, by the medians of rounds that take turns.

use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;

use criterion::Criterion;
use http::{HeaderMap, Method};
use tidegate::internals::Facts;
use tidegate::internals::clock::Stopwatch;
use tidegate::internals::policy::RateLimitHeaders;
use tidegate::internals::route::{HostPattern, Matcher, PathPattern, Route, Routes};
use tidegate::internals::upgrade::Upgrades;

const SIZES: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 31;
const LOOKUPS: usize = 20_000;
const TEXTS: usize = 10_000;

/// Which routes requests are for.
const AIMS: [&str; 4] = ["first", "last", "none", "each in turn"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let tables = SIZES.into_iter().map(|size| Ok((size, routes(size)?))).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    for aim in AIMS {
        for (size, routes) in &tables {
            let targets = targets(aim, *size);
            let mut targets = targets.iter().cycle();
            criterion.bench_function(&format!("{aim}/{size} routes"), |bench| {
                bench.iter(|| targets.next().map(|target| look_up(routes, target)));
            });
        }
    }
    criterion.final_summary();
    compare(&tables);
    Ok(())
}

fn routes(size: usize) -> Result<Routes, Box<dyn Error>> {
    let route = |number: usize| -> Result<Route, Box<dyn Error>> {
        let (host, path) = target(number);
        let path = match number % 4 {
            0 => path.replace("/7", "/{id}"),
            2 => path.replace("/a/b", "/**"),
            _ => path,
        };
        let host = (number % 4 == 3).then(|| HostPattern::parse(&host)).transpose()?;
        let matcher = Matcher { host, path: Some(PathPattern::parse(&path)?), ..Matcher::default() };
        let (name, limits) = (number.to_string().into(), Vec::new());
        Ok(Route {
            name,
            matcher,
            limits,
            max_body: 0,
            upgrades: Upgrades::default(),
            rate_limit_headers: RateLimitHeaders::default(),
            upstream: None,
        })
    };
    Ok(Routes::new((0..size).map(route).collect::<Result<_, _>>()?))
}

/// The host and the path of a request for this route.
fn target(number: usize) -> (String, String) {
    let end = ["items/7", "health", "a/b", "login"][number % 4];
    let host = if number % 4 == 3 { format!("host-{number}.example.com") } else { "api.example.com".to_owned() };
    (host, format!("/api/service-{number}/{end}"))
}

fn targets(aim: &str, size: usize) -> Vec<(String, String)> {
    match aim {
        "first" => vec![target(0)],
        "last" => vec![target(size - 1)],
        "none" => vec![("api.example.com".to_owned(), "/api/service-none/items/7".to_owned())],
        // A prime step, so that no two lookups in a row are neighbours.
        _ => (0..size).map(|turn| target(turn * 7_919 % size)).collect(),
    }
}

fn look_up(routes: &Routes, (host, path): &(String, String)) -> Option<usize> {
    let (headers, peer) = (HeaderMap::new(), Ipv4Addr::LOCALHOST.into());
    let (host, path) = (host.as_str().into(), path.as_str().into());
    let facts = Facts {
        method: &Method::GET,
        host,
        path,
        query: None,
        headers: &headers,
        peer: Some(peer),
        peer_is_client: false,
        tls: None,
        key: None,
    };
    black_box(routes.find(black_box(&facts))).map(|(position, _)| position)
}

#[expect(clippy::print_stdout, reason = "the ratios are what it is for")]
fn compare(tables: &[(usize, Routes)]) {
    let ([few, .., many], rounds) = (tables, 0..ROUNDS) else { return };
    for aim in AIMS {
        let measure = |(size, routes): &(usize, Routes)| {
            // Among few routes, too, each request is a text of its own, which has to be fetched.
            let targets: Vec<_> = targets(aim, *size).iter().cycle().take(TEXTS).cloned().collect();
            let stopwatch = Stopwatch::start();
            for target in targets.iter().cycle().take(LOOKUPS) {
                black_box(look_up(routes, target));
            }
            stopwatch.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64
        };
        let measured: Vec<(f64, f64)> = rounds.clone().map(|_| (measure(few), measure(many))).collect();
        let (few, many) = (median(measured.iter().map(|one| one.0)), median(measured.iter().map(|one| one.1)));
        println!("{aim:>12}: {few:.0} ns among 10 routes, {many:.0} ns among 10,000: {:.2} times", many / few);
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
