//! What a decision costs the nodes of a cluster at their limit, beside one Redis: a measurement, made if `MEASURE` is set.
//!
//! All servers are on one core, and the workers, on the other cores, ask for more than it can do. So each server lets calls
//! wait as one does that is at its limit, and its CPU for each decision is what its capacity is made of. Three nodes
//! that share a core also take each other's caches; so one node is measured by itself too, with the busiest one's share.

mod cost;

use std::sync::Arc;

use tidegate::limit::{Algorithm, Charge, ClientId, Limiter, Mode, Quota};

use self::cost::{Cost, Worker, pin, workers};
use crate::support::cluster::RedisCluster;
use crate::support::redis::{RedisServer, fresh_name};

/// How often it is measured, everything in turn, so that all meet the same noise.
const ROUNDS: u32 = 7;
const NODES: u32 = 3;

/// Workers, how many decisions they ask for at a time, and how many times as many three nodes are asked for: by Little's law
/// those that decide three times as much have three times as much to decide at a time.
const LOADS: [[usize; 3]; 8] =
    [[1, 64, 1], [1, 64, 3], [1, 512, 1], [1, 512, 3], [1, 2_048, 1], [1, 2_048, 3], [2, 512, 3], [4, 512, 3]];

/// Servers that are measured: one Redis, three nodes of a cluster, and one that is a cluster alone.
struct Servers {
    single: [RedisServer; 1],
    three: RedisCluster,
    alone: RedisCluster,
}

/// A limit on some servers.
struct Case<'s> {
    what: String,
    nodes: &'s [RedisServer],
    workers: Vec<Worker>,
    at_a_time: usize,
    limiter: Arc<Limiter>,
    /// Which part of all decisions these servers make.
    share: f64,
    cost: Cost,
}

#[test]
#[expect(clippy::print_stdout, reason = "a measurement")]
fn what_three_nodes_cost() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if std::env::var_os("MEASURE").is_none() || cores < 2 {
        return;
    }
    let Some(servers) = Servers::start() else { return };
    pin(std::process::id(), &format!("0-{}", cores - 2));
    servers.all().for_each(|server| pin(server.id(), &(cores - 1).to_string()));
    for load in LOADS {
        let [workers, at_a_time, times] = load;
        println!(
            "{workers} workers, {at_a_time} decisions at a time of one Redis, {} of three nodes",
            times * at_a_time
        );
        compare(&servers, load, "PER_CLIENT", &[64, 24, 12], each);
        compare(&servers, load, "OVERALL", &[8, 12], all);
    }
}

/// Measures a limit on one Redis, and in each of these numbers of parts on a cluster.
#[expect(clippy::print_stdout, reason = "a measurement")]
fn compare(servers: &Servers, load: [usize; 3], what: &str, parts: &[u32], limit: fn(u32) -> Arc<Limiter>) {
    let [count, at_a_time, times] = load;
    let case = |what: String, (nodes, store), limiter, at_a_time, share| Case {
        what,
        nodes,
        workers: workers(count, store),
        at_a_time,
        limiter,
        share,
        cost: Cost::default(),
    };
    let (single, three, alone) = (servers.single[0].store(), servers.three.store(), servers.alone.store());
    let mut cases = vec![
        case(format!("{what}, one Redis"), (&servers.single[..], &single), limit(1), at_a_time, 1.0),
        case("a cluster of one node".to_owned(), (&servers.alone.nodes[..], &alone), limit(1), at_a_time, 1.0),
    ];
    for parts in parts {
        let (whole, of_three) = (limit(*parts), times * at_a_time);
        let is_per_client = whole.mode == Mode::PerClient;
        let nodes = (&servers.three.nodes[..], &three);
        cases.push(case(format!("{parts} parts, three nodes on a core"), nodes, whole, of_three, 1.0));
        if is_per_client {
            let busiest = parts.div_ceil(NODES);
            let (of_one, nodes) = (of_three * busiest as usize / *parts as usize, (&servers.alone.nodes[..], &alone));
            let share = f64::from(busiest) / f64::from(*parts);
            cases.push(case(format!("{parts} parts, busiest node by itself"), nodes, limit(busiest), of_one, share));
        }
    }
    for _ in 0..ROUNDS {
        cases.iter_mut().for_each(Case::measure);
    }
    for case in &cases {
        println!("  {}: {:.2} x, {}", case.what, case.cost.times_in(&cases[0].cost) / case.share, case.cost);
    }
}

impl Servers {
    fn start() -> Option<Self> {
        let (single, three) = ([RedisServer::start()?], RedisCluster::start()?);
        Some(Self { single, three, alone: RedisCluster::start_with(1, false)? })
    }

    fn all(&self) -> impl Iterator<Item = &RedisServer> {
        self.single.iter().chain(&self.three.nodes).chain(&self.alone.nodes)
    }
}

impl Case<'_> {
    fn measure(&mut self) {
        let limiter = Arc::clone(&self.limiter);
        self.cost.measure(&self.workers, self.nodes, self.at_a_time, move |request| charge(&limiter, request));
    }
}

fn quota() -> Quota {
    Quota::new(1_000_000, 3_600_000, Algorithm::TokenBucket).expect("a quota")
}

fn each(partitions: u32) -> Arc<Limiter> {
    Arc::new(Limiter::new(fresh_name(), Mode::PerClient, quota()).partitioned(partitions))
}

fn all(shards: u32) -> Arc<Limiter> {
    Arc::new(Limiter::new(fresh_name(), Mode::Overall, quota()).sharded(shards))
}

/// What a request asks for: a permit, of one of 10,000 clients if the limit has clients.
fn charge(limiter: &Arc<Limiter>, request: usize) -> Vec<Charge> {
    let of_client = || ClientId::Value((request % 10_000).to_be_bytes().into());
    let client = (limiter.mode == Mode::PerClient).then(of_client);
    vec![Charge { limiter: Arc::clone(limiter), client, permits: 1, shadow: false }]
}
