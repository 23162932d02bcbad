//! Requests that wait for their permits (`max_wait`), in virtual time.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use http::request::Builder;
use http::{Request, Response, StatusCode};
use tidegate::{Config, Peer, RateLimitLayer, Store};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, ServiceExt, service_fn};

/// A service behind a layer, which records the name and the arrival time of each request.
struct Service {
    layer: RateLimitLayer,
    began: Instant,
    served: UnboundedSender<(String, u128)>,
}

impl Service {
    fn start(limits: &str) -> (Self, UnboundedReceiver<(String, u128)>) {
        let rules = format!("routes: [{{ name: all, match: {{}}, limits: [{limits}] }}]");
        let config = Config::parse(&rules).unwrap_or_else(|problems| panic!("{problems}"));
        let began = Instant::now();
        let layer = RateLimitLayer::builder().store(Store::memory()).from_config(&config).expect("a layer");
        let (served, serving) = unbounded_channel();
        (Self { layer, began, served }, serving)
    }

    /// Sends a request and runs it until it waits or completes.
    async fn ask(&self, who: &str) -> JoinHandle<Response<()>> {
        self.send(Request::get("/"), who).await
    }

    /// Like [`ask`](Self::ask), for a gRPC call with this timeout.
    async fn call(&self, who: &str, timeout: &str) -> JoinHandle<Response<()>> {
        let call = Request::post("/").header("content-type", "application/grpc").header("te", "trailers");
        self.send(call.header("grpc-timeout", timeout), who).await
    }

    async fn send(&self, request: Builder, who: &str) -> JoinHandle<Response<()>> {
        let request = request.header("host", "a").header("who", who).extension(Peer([127, 0, 0, 1].into()));
        let request = request.body(()).expect("a request");
        let (served, began) = (self.served.clone(), self.began);
        let service = self.layer.layer(service_fn(move |request: Request<()>| {
            let who = request.headers()["who"].to_str().expect("a name").to_owned();
            served.send((who, began.elapsed().as_millis())).expect("heard");
            ready(Ok::<_, Infallible>(Response::new(())))
        }));
        let asking = tokio::spawn(async move { service.oneshot(request).await.expect("infallible").map(|_| ()) });
        sleep(Duration::from_millis(1)).await;
        asking
    }
}

fn all_served(served: &mut UnboundedReceiver<(String, u128)>) -> Vec<(String, u128)> {
    std::iter::from_fn(|| served.try_recv().ok()).collect()
}

const ONE_A_SECOND: &str = "{ name: l, mode: OVERALL, rate: 1, interval: 1s, max_wait: 10s, queue: 3 }";

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_served_in_arrival_order() {
    let (service, mut served) = Service::start(ONE_A_SECOND);
    let asking = [service.ask("a").await, service.ask("b").await, service.ask("c").await, service.ask("d").await];
    for asking in asking {
        assert_eq!(asking.await.expect("answered").status(), StatusCode::OK);
    }
    let order = all_served(&mut served);
    assert_eq!(order.iter().map(|(who, _)| who.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    let gaps: Vec<u128> = order.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(gaps.iter().all(|gap| (1_000..1_010).contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn new_request_does_not_overtake_waiting_ones() {
    let (service, mut served) = Service::start(ONE_A_SECOND);
    let first = service.ask("first").await;
    let waiting = service.ask("waiting").await;
    // The permit returns just as the new request arrives.
    advance(Duration::from_millis(998)).await;
    let newcomer = service.ask("newcomer").await;
    for asking in [first, waiting, newcomer] {
        assert_eq!(asking.await.expect("answered").status(), StatusCode::OK);
    }
    let order: Vec<String> = all_served(&mut served).into_iter().map(|(who, _)| who).collect();
    assert_eq!(order, ["first", "waiting", "newcomer"]);
}

#[tokio::test(start_paused = true)]
async fn disconnected_client_leaves_the_queue_uncharged() {
    let (service, mut served) = Service::start(ONE_A_SECOND);
    let _first = service.ask("first").await;
    let gone = service.ask("gone").await;
    let patient = service.ask("patient").await;
    gone.abort();
    assert_eq!(patient.await.expect("answered").status(), StatusCode::OK);
    let order = all_served(&mut served);
    assert_eq!(order[1].0, "patient");
    assert!(order[1].1 < 1_010, "the cancelled request delayed the next one: {order:?}");
}

#[tokio::test(start_paused = true)]
async fn long_wait_or_full_queue_is_rejected_immediately() {
    let (service, _served) = Service::start("{ name: l, mode: OVERALL, rate: 1, interval: 1h, max_wait: 59m }");
    let _first = service.ask("first").await;
    let refused = service.ask("refused").await.await.expect("answered");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "3600");

    let (service, _served) = Service::start(ONE_A_SECOND);
    let mut asking = Vec::new();
    for who in ["served", "1", "2", "3"] {
        asking.push(service.ask(who).await);
    }
    let refused = service.ask("one too many").await;
    assert!(refused.is_finished(), "a request joined a full queue");
    let refused = refused.await.expect("answered");
    assert_eq!(
        (refused.status(), &refused.headers()["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
    );
    assert!(asking.iter().skip(1).all(|asking| !asking.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn request_that_cannot_meet_max_wait_is_rejected_immediately() {
    let (service, _served) = Service::start("{ name: l, mode: OVERALL, rate: 1, interval: 1s, max_wait: 1500ms }");
    let mut answers = Vec::new();
    for who in ["a", "b", "c"] {
        answers.push(service.ask(who).await);
    }
    let mut statuses = Vec::new();
    for answer in answers {
        statuses.push(answer.await.expect("answered").status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429]);
    assert!((1_000..1_100).contains(&service.began.elapsed().as_millis()));
}

#[tokio::test(start_paused = true)]
async fn request_waits_only_if_all_refusing_limits_allow_it() {
    let patient = "{ name: patient, mode: OVERALL, rate: 1, interval: 1s, max_wait: 10s }";
    let (service, _served) =
        Service::start(&format!("{patient}, {{ name: strict, mode: OVERALL, rate: 1, interval: 1s }}"));
    let _first = service.ask("first").await;
    let refused = service.ask("refused").await;
    assert!(refused.is_finished());
    assert_eq!(refused.await.expect("answered").status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn shutdown_of_a_service_rejects_waiting_requests() {
    let (service, _served) = Service::start(ONE_A_SECOND);
    let _first = service.ask("first").await;
    let waiting = [service.ask("a").await, service.ask("b").await];
    service.layer.stop_waiting();
    for waiting in waiting {
        assert_eq!(waiting.await.expect("answered").status(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(service.began.elapsed() < Duration::from_millis(100));
    assert!(service.ask("late").await.is_finished());
}

const OF_EACH: &str = "mode: PER_CLIENT, client: 'header:who'";

/// Regression test: requests that their client's limit refused kept their places in the queue of all clients.
#[tokio::test(start_paused = true)]
async fn client_over_its_limit_does_not_delay_others() {
    let (service, _served) = Service::start(&format!(
        "{{ name: each, {OF_EACH}, rate: 1, interval: 1s, max_wait: 2s }},
         {{ name: all, mode: OVERALL, rate: 20, interval: 1s, max_wait: 2s }}"
    ));
    let mut greedy = Vec::new();
    for _ in 0..21 {
        greedy.push(service.ask("greedy").await);
    }
    // In the second 1, all permits of the limit of all clients are in use.
    for second in 0..4 {
        for honest in 0..19 {
            let honest = service.ask(&format!("honest {honest}")).await;
            assert!(honest.is_finished(), "it waits in second {second}");
            assert_eq!(honest.await.expect("answered").status(), StatusCode::OK);
        }
        sleep(Duration::from_millis(1_001)).await;
    }
    let admitted =
        greedy.into_iter().map(|greedy| async { greedy.await.expect("answered").status() == StatusCode::OK });
    let admitted = futures_util::future::join_all(admitted).await;
    assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 3, "one each second, for two seconds");
}

/// Regression test: requests beyond their client's limit filled the queue of all clients.
#[tokio::test(start_paused = true)]
async fn client_has_as_many_waiting_requests_as_free_permits() {
    for (may_wait, waits) in [("", false), (", max_wait: 9s, queue: 50", true)] {
        let (service, mut served) = Service::start(&format!(
            "{{ name: all, mode: OVERALL, rate: 1, interval: 1s, max_wait: 9s, queue: 4 }},
             {{ name: each, {OF_EACH}, rate: 2, interval: 1h{may_wait} }}"
        ));
        let _first = service.ask("first").await;
        let mut greedy = Vec::new();
        for _ in 0..12 {
            greedy.push(service.ask("greedy").await);
        }
        let rejected = greedy.iter().filter(|greedy| greedy.is_finished()).count();
        assert_eq!(rejected, if waits { 0 } else { 10 });
        for honest in ["b", "c"] {
            assert!(!service.ask(honest).await.is_finished(), "the queue is full");
        }
        sleep(Duration::from_secs(4)).await;
        let order: Vec<String> = all_served(&mut served).into_iter().map(|(who, _)| who).collect();
        assert_eq!(order, ["first", "greedy", "greedy", "b", "c"]);
    }
}

/// Regression test: a limit that refused for good was asked only when the request was first in the queue of another one.
#[tokio::test(start_paused = true)]
async fn request_that_may_not_wait_joins_no_queue() {
    let (service, _served) = Service::start(&format!(
        "{{ name: all, mode: OVERALL, rate: 2, interval: 1s, max_wait: 9s }},
         {{ name: each, {OF_EACH}, rate: 1, interval: 1h }}"
    ));
    for who in ["a", "b", "c"] {
        let request = service.ask(who).await;
        assert_eq!(request.is_finished(), who != "c");
    }
    assert!(service.ask("a").await.is_finished(), "it waits for a limit that would reject it");
    assert!(!service.ask("d").await.is_finished());
}

/// Regression test: a request kept its place until its time slot.
#[tokio::test(start_paused = true)]
async fn request_with_a_time_slot_is_in_no_queue() {
    let (service, mut served) = Service::start(&format!(
        "{{ name: each, {OF_EACH}, rate: 1, interval: 5s, algorithm: leaky_bucket, queue: 9, max_wait: 1m }},
         {{ name: all, mode: OVERALL, rate: 2, interval: 1s, max_wait: 9s }}"
    ));
    let mut requests = Vec::new();
    for who in ["a", "b", "a", "c"] {
        requests.push(service.ask(who).await);
    }
    sleep(Duration::from_secs(6)).await;
    let served: Vec<(String, u128)> = all_served(&mut served);
    let at = |who: &str| served.iter().rev().find(|(served, _)| served == who).map(|(_, at)| at / 1_000);
    assert_eq!([at("a"), at("b"), at("c")], [Some(5), Some(0), Some(1)]);
}

/// The call could wait for the permit of one limit, but its time slot of the other begins after its deadline.
#[tokio::test(start_paused = true)]
async fn late_time_slot_rejects_a_call_behind_others_at_once() {
    let slots =
        "{ name: slots, mode: OVERALL, rate: 1, interval: 50m, algorithm: leaky_bucket, queue: 5, max_wait: 1h }";
    let waits = "{ name: waits, mode: OVERALL, rate: 1, interval: 10m, max_wait: 1h }";
    let (service, _served) = Service::start(&format!("{slots}, {waits}"));
    let _first = service.ask("first").await;
    let waiting = service.ask("waiting").await;
    let call = service.call("call", "30M").await;
    assert!(call.is_finished() && !waiting.is_finished());
    let rejected = call.await.expect("answered");
    assert_eq!(rejected.headers()["grpc-status"], "8", "RESOURCE_EXHAUSTED");
    let wait: u32 = rejected.headers()["grpc-retry-pushback-ms"].to_str().expect("text").parse().expect("a number");
    assert!((1_190_000..=1_200_000).contains(&wait), "{wait} ms until the time slot is early enough");
}
