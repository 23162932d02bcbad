//! A request that waits for, or is rejected by, a limit of its client delays requests of other clients by no more than
//! the permits that it was granted: for random limits and times, with and without the requests of one client.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tidegate::{Config, Peer, RateLimitLayer, Store};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::case_count;
use crate::support::redis::RedisServer;

/// Permits of the limit of all clients in each interval.
const RATE: u64 = 5;
/// The client without which the requests of the others are compared.
const GREEDY: usize = 0;
/// Two routes with limits of each client, some of which they share, and a route without.
const PATHS: [&str; 3] = ["/own", "/same", "/other"];
const OTHER: usize = 2;

/// A request: when it arrives, in milliseconds, its client, and the position of its path.
type Arrival = (u64, usize, usize);

/// Random limits: shared limits, and the limits of the routes.
#[derive(Clone, Debug)]
struct Limits {
    shared: String,
    of_routes: String,
}

impl Limits {
    /// Returns a rule file, with this interval of the limit of all clients.
    fn rules(&self, interval: &str) -> Config {
        let Self { shared, of_routes } = self;
        let rules = format!(
            "limits:
  all: {{ mode: OVERALL, rate: {RATE}, interval: {interval}, max_wait: 1h, queue: 1000 }}
{shared}routes:
  - {{ name: own, match: {{ path: /own }}, limits: [{of_routes}] }}
  - {{ name: same, match: {{ path: /same }}, limits: [{of_routes}] }}
  - {{ name: other, match: {{}}, limits: [all] }}"
        );
        Config::parse(&rules).unwrap_or_else(|problems| panic!("{rules}\n{problems}"))
    }
}

/// Sends a request at its time. Returns when it was admitted, in milliseconds; `None` if it was rejected.
async fn send(layer: &RateLimitLayer, began: Instant, (at, client, path): Arrival) -> Option<u64> {
    let service = layer.layer(service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(())))));
    let request = Request::get(PATHS[path]).header("host", "a").header("who", client.to_string());
    let request = request.extension(Peer([127, 0, 0, 1].into())).body(()).expect("a request");
    sleep_until(began + Duration::from_millis(at)).await;
    let response = service.oneshot(request).await.expect("infallible");
    let admitted_at = u64::try_from(began.elapsed().as_millis()).expect("milliseconds");
    (response.status() == StatusCode::OK).then_some(admitted_at)
}

/// Returns for each request when it was admitted by a layer in virtual time; `None` if it was rejected.
fn run(limits: &Limits, arrivals: &[Arrival]) -> Vec<Option<u64>> {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let builder = RateLimitLayer::builder().store(Store::memory());
        let layer = builder.from_config(&limits.rules("1s")).expect("a layer");
        let began = Instant::now();
        join_all(arrivals.iter().map(|arrival| send(&layer, began, *arrival))).await
    })
}

/// Sends requests to two gateways in turn. Returns the time of the last admission of others, in milliseconds, and the
/// permits that the greedy client was granted until then.
async fn run_in_redis(gateways: &[RateLimitLayer; 2], arrivals: &[Arrival]) -> (u64, u64) {
    let (began, granted) = (Instant::now(), AtomicU64::new(0));
    let gateway = |number: usize| &gateways[number % 2];
    let [greedy, others] = [true, false].map(|is_greedy| {
        let is_it = move |(_, (_, client, _)): &(usize, &Arrival)| (*client == GREEDY) == is_greedy;
        arrivals.iter().enumerate().filter(is_it)
    });
    let greedy = greedy.map(|(number, arrival)| {
        let granted = &granted;
        async move {
            if send(gateway(number), began, *arrival).await.is_some() {
                granted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let greedy = async {
        join_all(greedy).await;
        pending::<()>().await;
    };
    let others = join_all(others.map(|(number, arrival)| send(gateway(number), began, *arrival)));
    let admitted = tokio::select! {
        admitted = others => admitted,
        () = greedy => Vec::new(),
    };
    let last = admitted.into_iter().map(|at| at.expect("admitted")).max().expect("others");
    (last, granted.into_inner())
}

fn limits() -> impl Strategy<Value = Limits> {
    let waits = prop_oneof![Just(""), Just(", max_wait: 3s"), Just(", max_wait: 1h, queue: 4")];
    let algorithm = prop_oneof![Just("token_bucket"), Just("gcra"), Just("sliding_window")];
    let each = (1u32..4, 1u32..4, algorithm, waits).prop_map(|(rate, seconds, algorithm, waits)| {
        format!(
            "mode: PER_CLIENT, client: 'header:who', rate: {rate}, interval: {seconds}s, algorithm: {algorithm}{waits}"
        )
    });
    (prop::collection::vec((each, any::<bool>()), 1..3), any::<bool>()).prop_map(|(each, all_first)| {
        let (mut shared, mut of_routes) = (String::new(), Vec::new());
        for (number, (limit, is_shared)) in each.into_iter().enumerate() {
            if is_shared {
                shared += &format!("  each-{number}: {{ {limit} }}\n");
                of_routes.push(format!("each-{number}"));
            } else {
                of_routes.push(format!("{{ name: each-{number}, {limit} }}"));
            }
        }
        of_routes.insert(if all_first { 0 } else { of_routes.len() }, "all".to_owned());
        Limits { shared, of_routes: of_routes.join(", ") }
    })
}

/// Requests of the greedy client, and requests of others, who use the route without limits for each client too.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let greedy = prop::collection::vec((0..6_000u64, Just(GREEDY), 0..OTHER), 1..60);
    let others = prop::collection::vec((0..6_000u64, 1..4usize, 0..=OTHER), 1..40);
    (greedy, others).prop_map(|(greedy, others)| [greedy, others].concat())
}

/// More requests at once than there are permits. Requests of others use only the route without limits for each client.
fn burst() -> impl Strategy<Value = Vec<Arrival>> {
    let greedy = prop::collection::vec((0..300u64, Just(GREEDY), 0..OTHER), 20..40);
    let others = prop::collection::vec((0..300u64, 1..4usize, Just(OTHER)), 10..20);
    (greedy, others).prop_map(|(greedy, others)| [greedy, others].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: case_count(64), ..ProptestConfig::default() })]

    #[test]
    fn own_limit_delays_others_by_the_granted_permits((limits, arrivals) in (limits(), arrivals())) {
        let is_greedy = |(_, client, _): &Arrival| *client == GREEDY;
        let others: Vec<Arrival> = arrivals.iter().filter(|one| !is_greedy(one)).copied().collect();
        let (with, without) = (run(&limits, &arrivals), run(&limits, &others));
        let granted = arrivals.iter().zip(&with).filter(|(one, at)| is_greedy(one) && at.is_some()).count() as u64;
        let most = 1_000 * granted.div_ceil(RATE) + 20;
        let with = arrivals.iter().zip(with).filter(|(one, _)| !is_greedy(one)).map(|(_, at)| at);
        for ((arrival, with), without) in others.iter().zip(with).zip(without) {
            if arrival.2 == OTHER {
                let (with, without) = (with.expect("admitted"), without.expect("admitted"));
                prop_assert!(with <= without + most, "{arrival:?}: {with} instead of {without}, {granted} granted");
            }
        }
    }
}

#[test]
fn own_limit_delays_others_in_redis_by_the_granted_permits() {
    const INTERVAL: u64 = 200;
    /// For a busy machine. A greedy request that held a place of others would wait for seconds.
    const SLACK: u64 = 1_500;
    let Some(redis) = RedisServer::start() else { return };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let (cases, number) = (
        ProptestConfig {
            cases: case_count(16),
            max_shrink_iters: 8,
            failure_persistence: None,
            ..ProptestConfig::default()
        },
        AtomicU64::new(0),
    );
    let result = TestRunner::new(cases).run(&(limits(), burst()), |(limits, arrivals)| {
        let prefix = format!("law-{}", number.fetch_add(1, Ordering::Relaxed));
        let config = limits.rules(&format!("{INTERVAL}ms"));
        let (last, granted) = runtime.block_on(async {
            let gateways = [(); 2].map(|()| {
                let store = Store::redis_builder(&redis.url()).prefix(&prefix).timeout(Duration::from_secs(2));
                let builder = RateLimitLayer::builder().store(store.open().expect("a store"));
                builder.from_config(&config).expect("a layer")
            });
            run_in_redis(&gateways, &arrivals).await
        });
        let others = arrivals.iter().filter(|(_, client, _)| *client != GREEDY).count() as u64;
        let most = 300 + INTERVAL * (others + granted).div_ceil(RATE) + SLACK;
        prop_assert!(last <= most, "{last} ms instead of {most}: {granted} granted, {others} of others");
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
