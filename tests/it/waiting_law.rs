//! A request that waits for, or is rejected by, a limit of its client delays requests of other clients by no more than
//! the permits that it was granted: for random limits and times, with and without the requests of one client.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use proptest::prelude::*;
use tidegate::{Config, Peer, RateLimitLayer, Store};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};
use tower::{Layer, ServiceExt, service_fn};

/// Permits of the limit of all clients in each second.
const RATE: u64 = 5;
/// The client without which the requests of the others are compared.
const GREEDY: usize = 0;

/// A request: when it arrives, in milliseconds, its client, and its route.
type Arrival = (u64, usize, bool);

/// Returns for each request when it was admitted; `None` if it was rejected.
fn run(limits: &str, arrivals: &[Arrival]) -> Vec<Option<u64>> {
    let rules = format!(
        "limits:
  all: {{ mode: OVERALL, rate: {RATE}, interval: 1s, max_wait: 1h, queue: 1000 }}
routes:
  - {{ name: own, match: {{ path: /own }}, limits: [{limits}] }}
  - {{ name: other, match: {{}}, limits: [all] }}"
    );
    let config = Config::parse(&rules).unwrap_or_else(|problems| panic!("{rules}\n{problems}"));
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let layer = RateLimitLayer::builder().store(Store::memory()).from_config(&config).expect("a layer");
        let began = Instant::now();
        let service = layer.layer(service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(())))));
        let requests = arrivals.iter().map(|(at, client, is_own)| {
            let path = if *is_own { "/own" } else { "/other" };
            let request = Request::get(path).header("host", "a").header("who", client.to_string());
            let request = request.extension(Peer([127, 0, 0, 1].into())).body(()).expect("a request");
            let (service, at) = (service.clone(), began + Duration::from_millis(*at));
            async move {
                sleep_until(at).await;
                let response = service.oneshot(request).await.expect("infallible");
                let admitted_at = u64::try_from(began.elapsed().as_millis()).expect("milliseconds");
                (response.status() == StatusCode::OK).then_some(admitted_at)
            }
        });
        join_all(requests).await
    })
}

fn limits() -> impl Strategy<Value = String> {
    let waits = prop_oneof![Just(""), Just(", max_wait: 3s"), Just(", max_wait: 1h, queue: 4")];
    let algorithm = prop_oneof![Just("token_bucket"), Just("gcra"), Just("sliding_window")];
    let each = (1u32..4, 1u32..4, algorithm, waits).prop_map(|(rate, seconds, algorithm, waits)| {
        format!(
            "mode: PER_CLIENT, client: 'header:who', rate: {rate}, interval: {seconds}s, algorithm: {algorithm}{waits}"
        )
    });
    (prop::collection::vec(each, 1..3), any::<bool>()).prop_map(|(each, all_first)| {
        let each: Vec<String> =
            each.iter().enumerate().map(|(number, limit)| format!("{{ name: each-{number}, {limit} }}")).collect();
        let each = each.join(", ");
        if all_first { format!("all, {each}") } else { format!("{each}, all") }
    })
}

/// Requests of the greedy client, and requests of others, who use the route without limits for each client too.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let greedy = prop::collection::vec((0..6_000u64, Just(GREEDY), Just(true)), 1..60);
    let others = prop::collection::vec((0..6_000u64, 1..4usize, any::<bool>()), 1..40);
    (greedy, others).prop_map(|(greedy, others)| [greedy, others].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn own_limit_delays_others_by_the_granted_permits((limits, arrivals) in (limits(), arrivals())) {
        let is_greedy = |(_, client, _): &Arrival| *client == GREEDY;
        let others: Vec<Arrival> = arrivals.iter().filter(|one| !is_greedy(one)).copied().collect();
        let (with, without) = (run(&limits, &arrivals), run(&limits, &others));
        let granted = arrivals.iter().zip(&with).filter(|(one, at)| is_greedy(one) && at.is_some()).count() as u64;
        let most = 1_000 * granted.div_ceil(RATE) + 20;
        let with = arrivals.iter().zip(with).filter(|(one, _)| !is_greedy(one)).map(|(_, at)| at);
        for ((arrival, with), without) in others.iter().zip(with).zip(without) {
            if !arrival.2 {
                let (with, without) = (with.expect("admitted"), without.expect("admitted"));
                prop_assert!(with <= without + most, "{arrival:?}: {with} instead of {without}, {granted} granted");
            }
        }
    }
}
