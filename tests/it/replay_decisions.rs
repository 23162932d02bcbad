//! A replay decides as a layer that receives the same requests at the same times.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::support::case_count;

use http::{Request, Response, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use tidegate::internals::{TracedRequest, replay_trace};
use tidegate::{Config, ManualClock, Peer, RateLimitLayer, Store, Timestamp};
use tokio::time::{Instant, sleep_until};
use tower::{Layer, ServiceExt, service_fn};

/// The start of all traces: not the start of a second, minute or day.
const START: u64 = 1_795_521_600_137;

/// The gap before a request in milliseconds, its client, its path, and the status of its response.
type Step = (u64, u8, u8, u16);

fn algorithm() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "interval: 1s",
        "interval: 4s, algorithm: gcra, burst: 4",
        "interval: 3s, algorithm: sliding_window, segments: 3",
        "interval: second, algorithm: fixed_window, timezone: UTC",
        "interval: 2s, algorithm: leaky_bucket, queue: 2",
        "interval: 2s, charge_on: 401",
        "interval: 2s, charge_on: 401, reserve: true",
        "interval: 1s, shadow: true",
    ])
}

/// The algorithms whose permits return at times that do not depend on the time of day, which differs.
fn waiting_algorithm() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["algorithm: token_bucket", "algorithm: gcra, burst: 1", "algorithm: gcra, burst: 3"])
}

fn limit(name: &'static str) -> impl Strategy<Value = String> {
    let mode = prop::sample::select(vec!["mode: OVERALL", "mode: PER_CLIENT, client: ip"]);
    (mode, 4_u32..7, algorithm())
        .prop_map(move |(mode, rate, keys)| format!("{{ name: {name}, {mode}, rate: {rate}, {keys} }}"))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![Just(0), 1..40_u64, 100..1_500_u64];
    vec((gap, 0..3_u8, 0..2_u8, prop::sample::select(vec![200, 401])), 1..80)
}

fn rules(limits: &[String]) -> String {
    let (first, all) = (&limits[0], limits.join(", "));
    let second = format!("{{ name: b, match: {{ path: /b }}, limits: [{first}] }}");
    format!("routes: [{{ name: a, match: {{ path: /a }}, limits: [{all}] }}, {second}]")
}

fn client(client: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, client).into()
}

fn path(path: u8) -> &'static str {
    if path == 0 { "/a" } else { "/b" }
}

fn traced(steps: &[Step]) -> Vec<TracedRequest<'static>> {
    let mut time = START;
    let traced = steps.iter().map(|(gap, from, to, status)| {
        time += gap;
        TracedRequest { time, client: client(*from), target: path(*to), status: *status }
    });
    traced.collect()
}

/// Sends a request to the layer. Returns `true` if it is admitted.
async fn ask(layer: &RateLimitLayer, traced: TracedRequest<'static>) -> bool {
    let service = layer.layer(service_fn(move |_: Request<()>| async move {
        Ok::<_, Infallible>(Response::builder().status(traced.status).body(()).expect("a response"))
    }));
    let request = Request::get(traced.target).header("host", "a").extension(Peer(traced.client));
    let response = service.oneshot(request.body(()).expect("a request")).await.expect("infallible");
    response.status() != StatusCode::TOO_MANY_REQUESTS
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(future)
}

fn layer(rules: &str, store: Store) -> RateLimitLayer {
    let config = Config::parse(rules).unwrap_or_else(|problems| panic!("{problems}"));
    RateLimitLayer::builder().store(store).from_config(&config).expect("a layer")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(case_count(128)))]

    #[test]
    fn replay_decides_as_the_layer(limits in (limit("l"), limit("m")), steps in steps()) {
        let (rules, trace) = (rules(&[limits.0, limits.1]), traced(&steps));
        let clock = Arc::new(ManualClock::default());
        let layer = layer(&rules, Store::memory_builder().clock(Arc::clone(&clock) as _).open());
        let mut decided = Vec::new();
        run(async {
            for traced in &trace {
                clock.set(Timestamp::from_millis(traced.time));
                decided.push(ask(&layer, *traced).await);
            }
        });
        prop_assert_eq!(replay_trace(&rules, &trace).expect("rules"), decided);
    }

    /// The layer runs in virtual time. No two requests have the same millisecond within a second, so that no request
    /// arrives in the millisecond in which permits return.
    #[test]
    fn replay_waits_as_the_layer(
        rates in (1_u32..4, 1_u32..4),
        algorithms in (waiting_algorithm(), waiting_algorithm()),
        queue in 1..4_u32,
        waits in (1..4_u64, 1..4_u64),
        seconds in vec((prop::sample::select(vec![0, 0, 0, 1, 2]), 0..3_u8, 0..2_u8), 1..80),
    ) {
        let limits = [
            format!("{{ name: l, mode: OVERALL, rate: {}, interval: 1s, max_wait: {}s, queue: {queue}, {} }}", rates.0, waits.0, algorithms.0),
            format!("{{ name: m, mode: PER_CLIENT, client: ip, rate: {}, interval: 2s, max_wait: {}s, {} }}", rates.1, waits.1, algorithms.1),
        ];
        let steps: Vec<Step> = seconds.iter().map(|(gap, from, to)| (gap * 1_000 + 1, *from, *to, 200)).collect();
        let (rules, trace) = (rules(&limits), traced(&steps));
        let decided = run(async {
            let (layer, began) = (layer(&rules, Store::memory()), Instant::now());
            let mut asking = Vec::new();
            for traced in &trace {
                let (layer, traced) = (layer.clone(), *traced);
                sleep_until(began + Duration::from_millis(traced.time - START)).await;
                asking.push(tokio::spawn(async move { ask(&layer, traced).await }));
                tokio::task::yield_now().await;
            }
            let mut decided = Vec::new();
            for one in asking {
                decided.push(one.await.expect("decided"));
            }
            decided
        });
        prop_assert_eq!(replay_trace(&rules, &trace).expect("rules"), decided);
    }
}
