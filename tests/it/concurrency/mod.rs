//! Bounds on requests in flight (`concurrency`): in a layer with both stores, in gateways, and across gateways.

mod cluster;
mod fairness;
mod flood;
mod gateways;
mod handover;
mod http2;
mod killed;
mod law;
mod limits;
mod upstream_load;

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::redis::cmd;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tidegate::{Config, Metrics, Peer, RateLimitLayer, RateLimitedBody, ReportHandle, RequestOutcome, Store};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::redis::RedisServer;

/// Shorter than the lease of a slot, which ends after 9 s.
const BELOW_A_LEASE: Duration = Duration::from_secs(8);

/// The response of a layer. Its request is in flight until the response is dropped or its body has ended.
type Held = Response<RateLimitedBody<Full<Bytes>>>;

/// A service behind a layer.
struct Service {
    layer: RateLimitLayer,
    metrics: Arc<Metrics>,
    route: u32,
}

/// Returns rules with one route. Lines after the keys of the route are keys of the file.
fn config(route: u32, keys: &str) -> Config {
    let (keys, others) = keys.split_once('\n').unwrap_or((keys, ""));
    let rules = format!("{others}\nroutes: [{{ name: r{route}, match: {{}}, {keys} }}]");
    Config::parse(&rules).unwrap_or_else(|problems| panic!("{problems}"))
}

impl Service {
    fn start(url: Option<String>, keys: &str) -> Self {
        static ROUTES: AtomicU32 = AtomicU32::new(0);
        Self::start_route(ROUTES.fetch_add(1, Ordering::Relaxed), url, keys)
    }

    /// Starts another service with the same rules and store.
    fn start_again(&self, url: Option<String>, keys: &str) -> Self {
        Self::start_route(self.route, url, keys)
    }

    fn start_route(route: u32, url: Option<String>, keys: &str) -> Self {
        let metrics = Arc::new(Metrics::new());
        let store = url.map_or_else(Store::memory, |url| {
            let redis = Store::redis_builder(&url).metrics(Arc::clone(&metrics)).timeout(Duration::from_secs(2));
            redis.open().expect("a store")
        });
        let layer = RateLimitLayer::builder().store(store).metrics(Arc::clone(&metrics));
        Self { layer: layer.from_config(&config(route, keys)).expect("a layer"), metrics, route }
    }

    /// Sends a request of this client, which is in flight until the response is dropped.
    async fn ask(&self, client: &str) -> Held {
        self.ask_with(Request::get("/"), client).await
    }

    async fn ask_with(&self, request: http::request::Builder, client: &str) -> Held {
        let request = request.header("host", "a").header("x-key", client).extension(Peer([127, 0, 0, 1].into()));
        let respond = |_| ready(Ok::<_, Infallible>(Response::new(Full::from("text"))));
        self.layer.layer(service_fn(respond)).oneshot(request.body(()).expect("a request")).await.expect("infallible")
    }

    /// Sends a request that may have to wait.
    fn spawn(self: &Arc<Self>, client: &str) -> JoinHandle<Held> {
        let (service, client) = (Arc::clone(self), client.to_owned());
        tokio::spawn(async move { service.ask(&client).await })
    }

    /// Waits until this number of requests wait.
    async fn until_waiting(&self, count: usize) {
        let line = format!("tidegate_requests_waiting{{route=\"r{}\"}} {count}\n", self.route);
        while !self.metrics.render().contains(&line) {
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the stores to test: the URLs of a Redis with and without functions, and `None` for a store in memory.
fn stores() -> (Vec<Option<String>>, Vec<RedisServer>) {
    let servers: Vec<_> =
        [RedisServer::start(), RedisServer::start_without_functions()].into_iter().flatten().collect();
    (servers.iter().map(|redis| Some(redis.url())).chain([None]).collect(), servers)
}

/// Returns the number of script calls. Announcements of gateways, two in five seconds, are among them.
fn script_calls(redis: &RedisServer) -> u64 {
    let stats: String = cmd("INFO").arg("commandstats").query(&mut redis.connection()).expect("statistics");
    let calls = |line: &str| {
        let (command, fields) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = fields.split(',').next()?.parse::<u64>().ok()?;
        ["eval", "evalsha", "fcall"].contains(&command).then_some(calls)
    };
    stats.lines().filter_map(calls).sum()
}

fn field(response: &Held, name: &str) -> String {
    let values = response.headers().get_all(name).iter().map(|value| value.to_str().expect("text"));
    values.collect::<Vec<_>>().join(", ")
}

async fn body(response: Held) -> String {
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

#[tokio::test]
async fn requests_above_max_are_rejected_with_503() {
    let (stores, _redis) = stores();
    for store in stores {
        let service = Service::start(store, "concurrency: { max: 2 }");
        let (first, _second) = (service.ask("a").await, service.ask("b").await);
        assert_eq!(first.status(), 200);
        let rejected = service.ask("c").await;
        assert_eq!((rejected.status().as_u16(), field(&rejected, "retry-after").as_str()), (503, "1"));
        assert_eq!(field(&rejected, "ratelimit-policy"), "");
        let problem: serde_json::Value = serde_json::from_str(&body(rejected).await).expect("JSON");
        assert_eq!(problem["violated-policies"][0], "concurrency");
        assert_eq!(problem["status"], 503);
        // A slot is free when the body has ended, also if the response still exists.
        let (_head, rest) = first.into_parts();
        let mut rest = std::pin::pin!(rest);
        while rest.as_mut().frame().await.is_some() {}
        let _third = service.ask("c").await;
        assert_eq!(service.ask("d").await.status(), 503);
    }
}

#[tokio::test]
async fn requests_above_per_client_are_rejected_with_429() {
    let (stores, _redis) = stores();
    for store in stores {
        let keys = "concurrency: { max: 5, per_client: 2, client: 'header:x-key' }";
        let service = Service::start(store, keys);
        let first = service.ask("a").await;
        assert_eq!(field(&first, "ratelimit-policy"), "\"concurrency\";q=2;qu=\"concurrent-requests\"");
        assert_eq!(field(&first, "ratelimit"), "\"concurrency\";r=1");
        let second = service.ask("a").await;
        assert_eq!(field(&second, "ratelimit"), "\"concurrency\";r=0");
        let rejected = service.ask("a").await;
        assert_eq!((rejected.status().as_u16(), field(&rejected, "retry-after").as_str()), (429, "1"));
        assert_eq!(field(&rejected, "ratelimit"), "\"concurrency\";r=0");
        assert!(body(rejected).await.contains("\"violated-policies\":[\"concurrency\"]"));
        let _other = [service.ask("b").await, service.ask("b").await, service.ask("c").await];
        assert_eq!(service.ask("d").await.status(), 503, "the rejected request held a slot of the route");
        drop(first);
        assert_eq!(service.ask("a").await.status(), 200);
    }
}

#[tokio::test]
async fn grpc_calls_get_the_matching_status() {
    let service = Service::start(None, "concurrency: { max: 2, per_client: 1, client: 'header:x-key' }");
    let call = || Request::post("/a.B/C").header("content-type", "application/grpc");
    let _held = service.ask_with(call(), "a").await;
    assert_eq!(field(&service.ask_with(call(), "a").await, "grpc-status"), "8");
    let _held = service.ask_with(call(), "b").await;
    assert_eq!(field(&service.ask_with(call(), "c").await, "grpc-status"), "14");
}

#[tokio::test]
async fn requests_without_the_client_value_count_by_address() {
    let service = Service::start(None, "concurrency: { per_client: 1, client: 'header:x-missing' }");
    let _held = service.ask("a").await;
    assert_eq!(service.ask("b").await.status(), 429);
}

#[tokio::test]
async fn rejection_by_one_kind_of_bound_takes_nothing_from_the_other() {
    let (stores, _redis) = stores();
    for store in stores {
        let keys =
            "concurrency: { max: 1 }, limits: [{ name: l, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }]";
        let service = Service::start(store, keys);
        let held = service.ask("a").await;
        assert!(field(&held, "ratelimit").starts_with("\"l\";r=1;"));
        for _ in 0..3 {
            assert_eq!(service.ask("a").await.status(), 503);
        }
        drop(held);
        assert!(field(&service.ask("a").await, "ratelimit").starts_with("\"l\";r=0;"));
        for _ in 0..3 {
            assert_eq!(service.ask("a").await.status(), 429, "a request that a limit rejected holds a slot");
        }
    }
}

#[tokio::test]
async fn waiting_requests_are_served_first_come_first_served() {
    let (stores, _redis) = stores();
    for store in stores {
        let service = Arc::new(Service::start(store, "concurrency: { max: 1, queue: 2, max_wait: 1m }"));
        let held = service.ask("a").await;
        let first = service.spawn("b");
        service.until_waiting(1).await;
        let second = service.spawn("c");
        service.until_waiting(2).await;
        assert_eq!(service.ask("d").await.status(), 503, "the queue is full");
        drop(held);
        let first = first.await.expect("a response");
        assert_eq!(first.status(), 200);
        assert!(!second.is_finished());
        drop(first);
        assert_eq!(second.await.expect("a response").status(), 200);
    }
}

/// Regression test: the task that sends releases ended with the last request, before its release was sent.
#[tokio::test]
async fn last_request_of_a_removed_store_frees_its_slot() {
    let Some(redis) = RedisServer::start() else { return };
    let service = Service::start(Some(redis.url()), "concurrency: { max: 2 }");
    let (slots, mut connection) = (format!("{{tidegate:r{}}}:@in_flight", service.route), redis.connection());
    let held = service.ask("a").await;
    drop(service);
    let mut count = || cmd("ZCARD").arg(&slots).query::<u32>(&mut connection).expect("a number");
    assert_eq!(count(), 1);
    drop(held);
    let until_free = async {
        while count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(BELOW_A_LEASE, until_free).await.expect("the slot is free before its lease ends");
}

/// A request that waits for its client does not delay requests of other clients.
#[tokio::test]
async fn client_at_its_bound_does_not_block_the_queue() {
    let service = Arc::new(Service::start(
        None,
        "concurrency: { max: 2, per_client: 1, client: 'header:x-key', queue: 9, max_wait: 1m }",
    ));
    let (held_a, held_b) = (service.ask("a").await, service.ask("b").await);
    let again = service.spawn("a");
    service.until_waiting(1).await;
    assert_eq!(service.ask("a").await.status(), 429, "a client has as many waiting requests as slots");
    let other = service.spawn("c");
    service.until_waiting(2).await;
    drop(held_b);
    let _other = other.await.expect("a response");
    assert!(!again.is_finished());
    drop(held_a);
    assert_eq!(again.await.expect("a response").status(), 200);
}

#[tokio::test(start_paused = true)]
async fn wait_ends_after_max_wait_and_at_shutdown() {
    let service = Arc::new(Service::start(None, "concurrency: { max: 1, queue: 9, max_wait: 5s }"));
    let _held = service.ask("a").await;
    let began = tokio::time::Instant::now();
    assert_eq!(service.ask("b").await.status(), 503);
    assert_eq!(began.elapsed().as_secs(), 5);
    let waiting = service.spawn("c");
    service.until_waiting(1).await;
    service.layer.stop_waiting();
    assert_eq!(waiting.await.expect("a response").status(), 503);
    assert!(began.elapsed().as_secs() < 10);
}

#[tokio::test]
async fn disconnected_client_leaves_the_queue_and_its_slot() {
    let (stores, _redis) = stores();
    for store in stores {
        let service = Arc::new(Service::start(store, "concurrency: { max: 1, queue: 2, max_wait: 1m }"));
        let held = service.ask("a").await;
        let gone = service.spawn("b");
        service.until_waiting(1).await;
        let patient = service.spawn("c");
        service.until_waiting(2).await;
        gone.abort();
        service.until_waiting(1).await;
        drop(held);
        assert_eq!(patient.await.expect("a response").status(), 200);
    }
}

#[tokio::test]
async fn changed_bound_applies_to_slots_in_use() {
    let (stores, _redis) = stores();
    for store in stores {
        let service = Service::start(store, "concurrency: { max: 3 }");
        let held = [service.ask("a").await, service.ask("b").await];
        service.layer.replace_rules(&config(service.route, "concurrency: { max: 2 }"));
        assert_eq!(service.ask("c").await.status(), 503);
        service.layer.replace_rules(&config(service.route, "concurrency: { max: 4 }"));
        let _more = [service.ask("c").await, service.ask("d").await];
        assert_eq!(service.ask("e").await.status(), 503);
        drop(held);
    }
}

#[tokio::test]
async fn rejection_is_reported_and_counted() {
    let service = Service::start(None, "concurrency: { max: 1 }");
    let held = service.ask("a").await;
    let report = ReportHandle::default();
    service.ask_with(Request::get("/").extension(report.clone()), "b").await;
    let report = report.get().expect("a report");
    assert_eq!((report.outcome, report.limit.as_deref()), (RequestOutcome::Limited, Some("concurrency")));
    let has = |line: &str| {
        let text = service.metrics.render();
        let line = format!("tidegate_{}\n", line.replace("ROUTE", &format!("route=\"r{}\"", service.route)));
        assert!(text.contains(&line), "no {line} in {text}");
    };
    has("requests_in_flight{ROUTE} 1");
    has("concurrency_rejected_total{ROUTE,bound=\"max\"} 1");
    drop(held);
    has("requests_in_flight{ROUTE} 0");
}
