//! While its client has reached a bound or a limit, a request delays other clients by no more than the permits and slots
//! that it was granted. Property test with random rules, in memory and in Redis, with two gateways.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support;
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

use super::{Held, Service};

/// The rules of a route, and the load of one client.
#[derive(Clone, Debug)]
struct Case {
    max: usize,
    per_client: Option<usize>,
    queue: usize,
    /// The permits of each client in 59 minutes, and whether requests wait for them.
    limit: Option<(usize, bool)>,
    /// Whether it is a shared limit.
    is_shared: bool,
    /// The requests of the greedy client.
    requests: usize,
    in_redis: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let bounds = prop_oneof![
        (1..3_usize).prop_map(|bound| (Some(bound), None)),
        (1..3_usize, any::<bool>()).prop_map(|limit| (None, Some(limit))),
        (1..3_usize, (1..3_usize, any::<bool>())).prop_map(|(bound, limit)| (Some(bound), Some(limit))),
    ];
    let kinds = (any::<bool>(), any::<bool>());
    (3..6_usize, bounds, prop_oneof![Just(0), Just(4)], 1..24_usize, kinds).prop_map(
        |(max, (per_client, limit), queue, requests, (in_redis, is_shared))| Case {
            max,
            per_client,
            queue,
            limit,
            is_shared,
            requests,
            in_redis,
        },
    )
}

impl Case {
    /// Returns the keys of the route, and a line with its shared limit, if there is one.
    fn keys(&self) -> String {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let per_client = self.per_client.map(|most| format!(", per_client: {most}, client: 'header:x-key'"));
        let per_client = per_client.unwrap_or_default();
        let queue = if self.queue > 0 { format!(", queue: {}, max_wait: 1h", self.queue) } else { String::new() };
        let max = self.max;
        let limit = self.limit.map_or_else(String::new, |(permits, waits)| {
            let wait = if waits { ", max_wait: 1h, queue: 30" } else { "" };
            let keys = format!("mode: PER_CLIENT, client: 'header:x-key', rate: {permits}, interval: 59m{wait}");
            match self.is_shared {
                true => {
                    let name = format!("law-{}", NAMES.fetch_add(1, Ordering::Relaxed));
                    format!(", limits: [{name}]\nlimits: {{ {name}: {{ {keys} }} }}")
                }
                false => format!(", limits: [{{ name: l, {keys} }}]"),
            }
        });
        format!("concurrency: {{ max: {max}{per_client}{queue} }}{limit}")
    }
}

/// Waits until `least` of these requests and then no more are admitted or rejected. Returns the admitted and the waiting ones.
async fn settle(asked: Vec<JoinHandle<Held>>, least: usize) -> (Vec<Held>, Vec<JoinHandle<Held>>) {
    let finished = || asked.iter().filter(|request| request.is_finished()).count();
    let (mut before, mut rounds) = (finished(), 0);
    while before < least || rounds < 2 {
        sleep(Duration::from_millis(40)).await;
        rounds = if finished() == before { rounds + 1 } else { 0 };
        before = finished();
    }
    let (mut admitted, mut waiting) = (Vec::new(), Vec::new());
    for request in asked {
        match request.is_finished() {
            true => admitted.push(request.await.expect("a response")),
            false => waiting.push(request),
        }
    }
    admitted.retain(|response| response.status() == 200);
    (admitted, waiting)
}

async fn check(case: &Case, url: Option<String>) {
    let keys = case.keys();
    let one = Arc::new(Service::start(url.clone(), &keys));
    let gateways = [Arc::clone(&one), url.clone().map_or(one.clone(), |_| Arc::new(one.start_again(url, &keys)))];
    let gateway = |number: usize| &gateways[number % 2];
    let greedy = (0..case.requests).map(|number| gateway(number).spawn("greedy")).collect();
    let bounds = [Some(case.max), case.per_client, case.limit.map(|(permits, _)| permits), Some(case.requests)];
    let most = bounds.into_iter().flatten().min().expect("a bound");
    let (granted, _waiting) = settle(greedy, most).await;
    assert_eq!(granted.len(), most);

    // All other slots are free for others, at once.
    let mut held = Vec::new();
    for number in 0..case.max - granted.len() {
        let response = soon(gateway(number).ask(&format!("honest-{number}"))).await;
        assert_eq!(response.status(), 200, "request {number}, {} granted", granted.len());
        held.push(response);
    }
    // Then the route is full: others wait, or are rejected.
    let last = gateway(1).spawn("last");
    if case.queue == 0 {
        assert_eq!(soon(last).await.expect("a response").status(), 503);
        return;
    }
    let (none, last) = settle(vec![last], 0).await;
    assert_eq!((none.len(), last.len()), (0, 1), "more requests in flight than `max`");
    // And get the next slot of others.
    held.pop();
    for response in soon(join_all(last)).await {
        assert_eq!(response.expect("a response").status(), 200);
    }
}

#[test]
fn client_delays_others_only_by_its_granted_requests() {
    let redis = RedisServer::start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut runner = TestRunner::new(ProptestConfig {
        cases: support::case_count(48),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&cases(), |case| {
        let url = redis.as_ref().filter(|_| case.in_redis).map(RedisServer::url);
        runtime.block_on(check(&case, url));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
