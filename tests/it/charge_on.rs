//! Limits that are charged by the status of the response (`charge_on`), with and without `reserve`, on both stores.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deadpool_redis::redis::cmd;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use tidegate::{Config, NotSent, Peer, RateLimitLayer, Store};
use tidegate_limit::clock::Stopwatch;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::gateway::TestGateway;
use crate::support::redis::{RedisServer, wait_for};
use crate::support::wire::upstream::Origin;

/// A service behind a layer. It responds with the status in the field `want`, as soon as it has a permit of `go`.
struct Service {
    layer: RateLimitLayer,
    go: Arc<Semaphore>,
    arrived: UnboundedSender<()>,
    responded: Arc<Notify>,
}

impl Service {
    /// Starts a service whose responses wait until `go` has permits.
    fn held(store: Store, limits: &str) -> (Self, UnboundedReceiver<()>) {
        static ROUTES: AtomicU32 = AtomicU32::new(0);
        let route = ROUTES.fetch_add(1, Ordering::Relaxed);
        let rules = format!("routes: [{{ name: r{route}, match: {{}}, limits: [{limits}] }}]");
        let config = Config::parse(&rules).unwrap_or_else(|problems| panic!("{problems}"));
        let layer = RateLimitLayer::builder().store(store).from_config(&config).expect("a layer");
        let (arrived, arrivals) = unbounded_channel();
        (Self { layer, go: Arc::new(Semaphore::new(0)), arrived, responded: Arc::default() }, arrivals)
    }

    fn start(store: Store, limits: &str) -> Self {
        let (service, _) = Self::held(store, limits);
        service.go.add_permits(1_000);
        service
    }

    fn spawn(&self, status: &str) -> JoinHandle<Response<()>> {
        let request = Request::get("/").header("host", "a").header("want", status);
        let request = request.extension(Peer([127, 0, 0, 1].into())).body(()).expect("a request");
        let (go, arrived, responded) = (Arc::clone(&self.go), self.arrived.clone(), Arc::clone(&self.responded));
        let service = self.layer.layer(service_fn(move |request: Request<()>| {
            let (go, arrived, responded) = (Arc::clone(&go), arrived.clone(), Arc::clone(&responded));
            async move {
                _ = arrived.send(());
                go.acquire().await.expect("open").forget();
                responded.notify_one();
                let want = request.headers()["want"].to_str().expect("a status");
                let mut response = Response::builder().status(want.trim_end_matches('!'));
                if want.ends_with('!') {
                    response = response.extension(NotSent);
                }
                Ok::<_, Infallible>(response.body(()).expect("a response"))
            }
        }));
        tokio::spawn(async move { service.oneshot(request).await.expect("infallible").map(|_| ()) })
    }

    /// Sends a request. Returns the status and the remaining permits of the response.
    async fn ask(&self, status: &str) -> (u16, String) {
        let response = self.spawn(status).await.expect("a response");
        (response.status().as_u16(), remaining(&response))
    }

    /// Sends requests until the store decides one of them; returns its result as `ask` does.
    async fn ask_until_decided(&self, status: &str) -> (u16, String) {
        let decided = async {
            loop {
                let answer = self.ask(status).await;
                if !answer.1.is_empty() {
                    return answer;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), decided).await.expect("the store decides")
    }
}

/// Returns the value of `r` in the field `RateLimit`.
fn remaining(response: &Response<()>) -> String {
    let field = response.headers().get("ratelimit").map_or("", |value| value.to_str().expect("text"));
    let after = field.split_once("r=").map_or("", |(_, after)| after);
    after.split(';').next().unwrap_or_default().to_owned()
}

/// Returns the stores to test: in memory, and in Redis.
fn stores() -> (Vec<Store>, Option<RedisServer>) {
    let redis = RedisServer::start();
    let stores = redis.iter().map(RedisServer::store).chain([Store::memory()]).collect();
    (stores, redis)
}

const LOGINS: &str = "{ name: l, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h, charge_on: [401, 500-599] }";
const RESERVED: &str =
    "{ name: l, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h, charge_on: 401, reserve: true }";

#[tokio::test]
async fn only_included_statuses_are_charged() {
    let (stores, _redis) = stores();
    for store in stores {
        for limit in [LOGINS, RESERVED] {
            let service = Service::start(store.clone(), limit);
            for _ in 0..5 {
                assert_eq!(service.ask("200").await, (200, "2".to_owned()), "{limit}");
            }
            assert_eq!(service.ask("401").await, (401, "1".to_owned()));
            assert_eq!(service.ask("404").await, (404, "1".to_owned()));
            assert_eq!(service.ask("401").await, (401, "0".to_owned()));
            for _ in 0..3 {
                assert_eq!(service.ask("200").await, (429, "0".to_owned()));
            }
        }
    }
}

#[tokio::test]
async fn every_algorithm_charges_by_outcome() {
    let (stores, _redis) = stores();
    let algorithms = ["token_bucket", "gcra", "fixed_window", "sliding_window"];
    for store in stores {
        for algorithm in algorithms {
            let limit = LOGINS.replace("rate: 2", &format!("rate: 2, algorithm: {algorithm}"));
            let service = Service::start(store.clone(), &limit);
            let statuses = ["200", "401", "200", "500", "200"];
            let mut answers = Vec::new();
            for status in statuses {
                answers.push(service.ask(status).await.0);
            }
            assert_eq!(answers, [200, 401, 200, 500, 429], "{limit}");
        }
    }
}

/// Requests in flight pass the check before any of them is charged. Costs beyond the rate are debt.
#[tokio::test]
async fn concurrent_attempts_are_all_charged() {
    let (stores, _redis) = stores();
    for store in stores {
        let limit = LOGINS.replace("rate: 2", "rate: 3, permits: 2").replace("1h", "2s");
        let (service, mut arrivals) = Service::held(store, &limit);
        let asked: Vec<_> = (0..5).map(|_| service.spawn("401")).collect();
        for _ in 0..5 {
            arrivals.recv().await.expect("a request");
        }
        service.go.add_permits(5);
        let mut left = Vec::new();
        for asked in asked {
            left.push(remaining(&asked.await.expect("a response")));
        }
        left.sort();
        assert_eq!(left, ["0", "0", "0", "0", "1"]);
        let response = service.spawn("200").await.expect("a response");
        assert_eq!((response.status().as_u16(), remaining(&response)), (429, "0".to_owned()));
        // Ten permits are charged, and three return each 2 s: two are unused after the third interval.
        let wait: u64 = response.headers()["retry-after"].to_str().expect("text").parse().expect("a wait");
        assert!((5..=6).contains(&wait), "{wait} s");
    }
}

/// Clients that repeat a failing request, each on its own connection.
#[tokio::test]
async fn failed_logins_exceed_the_rate_once_by_the_connections() {
    let (stores, _redis) = stores();
    let algorithms = ["token_bucket", "gcra", "sliding_window", "fixed_window"];
    for store in &stores {
        join_all(algorithms.map(|algorithm| assert_failures_are_bounded(store, algorithm))).await;
    }
}

/// Sends failing requests on 40 connections for four seconds, to a limit of 5 in a second.
async fn assert_failures_are_bounded(store: &Store, algorithm: &str) {
    const CONNECTIONS: u64 = 40;
    let interval = if algorithm == "fixed_window" { "second" } else { "1s" };
    let limit = format!(
        "{{ name: l, mode: PER_CLIENT, client: ip, rate: 5, interval: {interval}, algorithm: {algorithm}, charge_on: 401 }}"
    );
    let service = Arc::new(Service::start(store.clone(), &limit));
    let (failed, start) = (Arc::new(AtomicU32::new(0)), Stopwatch::start());
    let repeat = |_| {
        let (service, failed) = (Arc::clone(&service), Arc::clone(&failed));
        tokio::spawn(async move {
            let mut pauses = tokio::time::interval(Duration::from_millis(20));
            while start.elapsed() < Duration::from_secs(4) {
                match service.ask("401").await.0 {
                    401 => _ = failed.fetch_add(1, Ordering::Relaxed),
                    _ => _ = pauses.tick().await,
                }
            }
        })
    };
    join_all((0..CONNECTIONS).map(repeat)).await;
    let (failed, windows) = (failed.load(Ordering::Relaxed), start.elapsed().as_secs() + 2);
    let most = 5 * windows + CONNECTIONS;
    assert!(u64::from(failed) <= most, "{algorithm}: {failed} of {most}");
}

#[tokio::test]
async fn reserve_admits_no_attempt_above_the_rate() {
    let (stores, _redis) = stores();
    for store in stores {
        let (service, mut arrivals) = Service::held(store, RESERVED);
        let mut asked = Vec::new();
        for _ in 0..2 {
            asked.push(service.spawn("200"));
            arrivals.recv().await.expect("a request");
        }
        assert_eq!(service.ask("401").await, (429, "0".to_owned()));
        service.go.add_permits(2);
        for asked in asked {
            assert_eq!(asked.await.expect("a response").status(), StatusCode::OK);
        }
        service.go.add_permits(1);
        assert_eq!(service.ask("401").await, (401, "1".to_owned()));
    }
}

#[tokio::test]
async fn client_that_leaves_is_charged_only_with_reserve() {
    let (stores, _redis) = stores();
    for store in stores {
        for (limit, left) in [(LOGINS, "2"), (RESERVED, "1")] {
            let (service, mut arrivals) = Service::held(store.clone(), limit);
            let gone = service.spawn("401");
            arrivals.recv().await.expect("a request");
            gone.abort();
            assert!(gone.await.is_err_and(|error| error.is_cancelled()));
            service.go.add_permits(1);
            assert_eq!(service.ask("200").await, (200, left.to_owned()), "{limit}");
        }
    }
}

#[tokio::test]
async fn shadow_counts_outcomes_and_rejects_nothing() {
    let (stores, _redis) = stores();
    for store in stores {
        let live = "{ name: all, mode: PER_CLIENT, client: ip, rate: 9, interval: 1h }";
        let service = Service::start(store, &format!("{}, {live}", LOGINS.replace("rate: 2", "rate: 1, shadow: true")));
        for left in ["8", "7", "6"] {
            assert_eq!(service.ask("401").await, (401, left.to_owned()));
        }
    }
}

/// A response of the gateway itself counts like the response of an upstream, also if no upstream received the request:
/// then only the other limits refund it.
#[tokio::test]
async fn unsent_request_is_charged_by_its_status_only() {
    let (stores, _redis) = stores();
    for store in stores {
        let other = "{ name: all, mode: PER_CLIENT, client: host, rate: 1, interval: 1h }";
        let service = Service::start(store, &format!("{LOGINS}, {other}"));
        for answer in ["502!", "502!"] {
            assert_eq!(service.ask(answer).await.0, 502);
        }
        assert_eq!(service.ask("200").await, (429, "0".to_owned()));
    }
}

#[tokio::test]
async fn unreachable_upstream_counts_as_502() {
    let upstream = Origin::closed_port();
    let gateway = TestGateway::start(&format!(
        "upstreams: {{ api: {{ targets: 'http://{upstream}', retry: off, eject: off }} }}\n\
         routes: [{{ name: all, match: {{}}, upstream: api, limits: [{}] }}]",
        LOGINS.replace("401, ", ""),
    ));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(gateway.get("/", "").await.status());
    }
    assert_eq!(statuses, [502, 502, 429]);
}

/// While Redis is unreachable, the gateway's share of the limit is checked and charged.
#[tokio::test]
async fn local_share_is_charged_by_outcome_during_an_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let url = redis.url();
    drop(redis);
    let store = Store::redis(&url).expect("a store");
    let service = Service::start(store, LOGINS);
    let mut statuses = Vec::new();
    for status in ["200", "401", "200", "401", "200"] {
        statuses.push(service.ask(status).await.0);
    }
    assert_eq!(statuses, [200, 401, 200, 401, 429]);
}

/// Regression test: the charge by the response was part of the request, so that it ended when the client left.
#[tokio::test]
async fn client_that_leaves_does_not_interrupt_the_charge() {
    let Some(redis) = RedisServer::start() else { return };
    let charged = "{ name: ok, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h, charge_on: 200 }";
    let (service, mut arrivals) = Service::held(redis.store(), &format!("{charged}, {RESERVED}"));
    let gone = service.spawn("200");
    arrivals.recv().await.expect("a request");
    redis.signal("STOP");
    service.go.add_permits(1_000);
    service.responded.notified().await;
    gone.abort();
    assert!(gone.await.is_err_and(|error| error.is_cancelled()));
    redis.signal("CONT");
    let charged = async { while service.ask("404").await.1 != "1" {} };
    tokio::time::timeout(Duration::from_secs(60), charged).await.expect("the request was not charged");
}

/// After a timeout, Redis may have charged the outcome.
#[tokio::test]
async fn outcome_is_charged_at_most_once() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store_with_timeout(Duration::from_secs(2));
    let (service, mut arrivals) = Service::held(store, LOGINS);
    let failed = service.spawn("401");
    arrivals.recv().await.expect("a request");
    redis.signal("STOP");
    service.go.add_permits(1_000);
    assert_eq!(remaining(&failed.await.expect("a response")), "");
    redis.signal("CONT");
    let mut connection = redis.connection();
    let mut has_bucket = || {
        let keys: Vec<String> = cmd("KEYS").arg("*}:l:*").query(&mut connection).expect("keys");
        !keys.is_empty()
    };
    wait_for("Redis has charged the request", &mut has_bucket);
    assert_eq!(service.ask_until_decided("200").await, (200, "1".to_owned()));
}

/// While Redis is unreachable, an outcome becomes a debt, whatever `on_store_failure` says about requests.
#[tokio::test]
async fn outcome_is_charged_after_an_outage() {
    for on_store_failure in ["local", "allow", "deny"] {
        let Some(redis) = RedisServer::start() else { return };
        let port = redis.port;
        let store = redis.store_with_timeout(Duration::from_secs(2));
        let limit = LOGINS.replace("rate: 2", &format!("rate: 2, on_store_failure: {on_store_failure}"));
        let (service, mut arrivals) = Service::held(store.clone(), &limit);
        let failed = service.spawn("401");
        arrivals.recv().await.expect("a request");
        drop(redis);
        while store.is_up().await {}
        service.go.add_permits(1_000);
        let response = failed.await.expect("a response");
        assert_eq!((response.status().as_u16(), remaining(&response)), (401, String::new()));
        let _redis = RedisServer::start_on(port).expect("a server");
        assert_eq!(service.ask_until_decided("200").await, (200, "1".to_owned()), "{on_store_failure}");
    }
}
