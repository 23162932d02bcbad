//! Measures the lookup of a route among few and many routes: `cargo bench -p tidegate-steps --bench lookup -- --quick`.
//!
//! A quarter of the routes has a path with a parameter, a quarter has an exact path, a quarter has a prefix, and a
//! quarter has its own host and an exact path. The last lines compare 10,000 routes with 10, by the medians of
//! alternating rounds.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

use criterion::Criterion;
use http::{HeaderMap, Method};
use tidegate::internals::ApiKeyFile;
use tidegate_limit::clock::Stopwatch;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::{
    ClientNetworks, HostPattern, Matcher, PathPattern, Route, Routes, ValueCondition, ValueSource, ValueTest,
};

const SIZES: [usize; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 31;
const LOOKUPS: usize = 20_000;
const TARGETS: usize = 10_000;
const API_KEYS: usize = 100_000;

/// The routes that the requests match.
const MATCHES: [&str; 4] = ["first", "last", "none", "each in turn"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let tables = SIZES.into_iter().map(|size| Ok((size, routes(size)?))).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    for matched in MATCHES {
        for (size, routes) in &tables {
            let targets = targets(matched, *size);
            let mut targets = targets.iter().cycle();
            criterion.bench_function(&format!("{matched}/{size} routes"), |bench| {
                bench.iter(|| targets.next().map(|target| look_up(routes, target)));
            });
        }
    }
    measure_conditions(&mut criterion)?;
    api_keys(&mut criterion)?;
    criterion.final_summary();
    compare(&tables);
    Ok(())
}

/// Measures the time to read a file of keys, its memory, and a lookup.
fn api_keys(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let key = |number: usize| format!("k-{number:032x}");
    let entry = |number: usize| {
        let tier = ["free", "pro"][number % 2];
        format!(
            "{}: {{ id: owner-{number}, tier: {tier}, attributes: {{ rate: {number}, team: t{number} }} }}\n",
            key(number)
        )
    };
    let path = std::env::temp_dir().join(format!("tidegate-bench-keys-{}.yaml", std::process::id()));
    fs::write(&path, (0..API_KEYS).map(entry).collect::<String>())?;
    let (before, stopwatch) = (resident()?, Stopwatch::start());
    let keys = ApiKeyFile::read(&path)?;
    let (took, memory) = (stopwatch.elapsed(), resident()?.saturating_sub(before) >> 20);
    fs::remove_file(&path)?;
    #[expect(clippy::print_stdout, reason = "criterion has no row for memory")]
    {
        println!("{API_KEYS} API keys: read in {took:.0?}, {memory} MiB more");
    }
    let sent: Vec<_> = (0..TARGETS).map(|number| key(number * 7)).collect();
    let mut sent = sent.iter().cycle();
    criterion.bench_function(&format!("API key/{API_KEYS} keys"), |bench| {
        bench.iter(|| sent.next().map(|key| keys.contains(key.as_bytes())));
    });
    Ok(())
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> Result<usize, Box<dyn Error>> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    Ok(4096 * pages.split(' ').nth(1).ok_or("no resident memory")?.parse::<usize>()?)
}

fn routes(size: usize) -> Result<Routes, Box<dyn Error>> {
    let route = |number: usize| -> Result<Route, Box<dyn Error>> {
        let (host, path) = target(number);
        let path = match number % 4 {
            0 => path.replace("/7", "/{id}"),
            2 => path.replace("/a/b", "/**"),
            _ => path,
        };
        let hosts = (number % 4 == 3).then(|| HostPattern::parse(&host)).transpose()?.into_iter().collect();
        let matcher = Matcher { hosts, paths: vec![PathPattern::parse(&path)?], ..Matcher::default() };
        Ok(Route::new(number.to_string().into(), matcher))
    };
    Ok(Routes::new((0..size).map(route).collect::<Result<_, _>>()?))
}

/// Measures routes with lists of hosts and paths, and with conditions on a field, a parameter, a cookie and the address.
fn measure_conditions(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    const SIZE: usize = 5_000;
    let condition = |source, test| ValueCondition { source, test };
    let values = vec![
        condition(ValueSource::Header("x-env".parse()?), ValueTest::OneOf(vec![b"prod"[..].into()])),
        condition(ValueSource::Query("v".into()), ValueTest::OneOf(vec![b"2"[..].into()])),
        condition(ValueSource::Cookie("sid".into()), ValueTest::Present),
    ];
    let clients = Some(ClientNetworks::new(vec!["127.0.0.0/8".parse()?], Arc::default()));
    let route = |number: usize| -> Result<Route, Box<dyn Error>> {
        let (host, path) = target(number);
        let hosts = vec![HostPattern::parse(&host)?, HostPattern::parse("*.example.org")?];
        let paths = vec![PathPattern::parse(&path)?, PathPattern::parse(&format!("/{number}/**"))?];
        let matcher = Matcher { hosts, paths, values: values.clone(), clients: clients.clone(), ..Matcher::default() };
        Ok(Route::new(number.to_string().into(), matcher))
    };
    let routes = Routes::new((0..SIZE).map(route).collect::<Result<_, _>>()?);
    let fields = [("x-env", "prod"), ("cookie", "theme=dark; sid=31d4d96e407aad42")];
    let fields: HeaderMap = fields
        .iter()
        .map(|(name, value)| Ok((name.parse()?, value.parse()?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let targets = targets("each in turn", SIZE);
    for (name, query) in [("all conditions met", "page=1&v=2"), ("parameter not met", "page=1&v=3")] {
        let mut targets = targets.iter().cycle();
        criterion.bench_function(&format!("{name}/{SIZE} routes"), |bench| {
            bench.iter(|| targets.next().map(|target| look_up_with(&routes, target, Some(query), &fields)));
        });
    }
    Ok(())
}

/// Returns the host and the path of a request for route `number`.
fn target(number: usize) -> (String, String) {
    let end = ["items/7", "health", "a/b", "login"][number % 4];
    let host = if number % 4 == 3 { format!("host-{number}.example.com") } else { "api.example.com".to_owned() };
    (host, format!("/api/service-{number}/{end}"))
}

fn targets(matched: &str, size: usize) -> Vec<(String, String)> {
    match matched {
        "first" => vec![target(0)],
        "last" => vec![target(size - 1)],
        "none" => vec![("api.example.com".to_owned(), "/api/service-none/items/7".to_owned())],
        // A prime step, so that no two lookups in a row are neighbours.
        _ => (0..size).map(|turn| target(turn * 7_919 % size)).collect(),
    }
}

fn look_up(routes: &Routes, target: &(String, String)) -> Option<usize> {
    look_up_with(routes, target, None, &HeaderMap::new())
}

fn look_up_with(
    routes: &Routes,
    (host, path): &(String, String),
    query: Option<&str>,
    headers: &HeaderMap,
) -> Option<usize> {
    let peer = Ipv4Addr::LOCALHOST.into();
    let (host, path) = (host.as_str().into(), path.as_str().into());
    let facts = Facts {
        method: &Method::GET,
        host,
        path,
        query,
        headers,
        peer: Some(peer),
        peer_is_client: false,
        peer_is_trusted: false,
        tls: None,
        extensions: None,
        identity: None,
        time: None,
        body: None,
    };
    black_box(routes.find(black_box(&facts))).map(|(position, _)| position)
}

#[expect(clippy::print_stdout, reason = "the benchmark prints its result")]
fn compare(tables: &[(usize, Routes)]) {
    let ([few, .., many], rounds) = (tables, 0..ROUNDS) else { return };
    for matched in MATCHES {
        let measure = |(size, routes): &(usize, Routes)| {
            // Each request has a separate string even with few routes, so that both sides read as much memory.
            let targets: Vec<_> = targets(matched, *size).iter().cycle().take(TARGETS).cloned().collect();
            let stopwatch = Stopwatch::start();
            for target in targets.iter().cycle().take(LOOKUPS) {
                black_box(look_up(routes, target));
            }
            stopwatch.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64
        };
        let measured: Vec<(f64, f64)> = rounds.clone().map(|_| (measure(few), measure(many))).collect();
        let (few, many) = (median(measured.iter().map(|pair| pair.0)), median(measured.iter().map(|pair| pair.1)));
        println!("{matched:>12}: {few:.0} ns among 10 routes, {many:.0} ns among 10,000: {:.2} times", many / few);
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
