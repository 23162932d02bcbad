//! A service with as many questions as it may have: 256 on its connections, and 256 that wait for a connection.

use tokio::sync::watch;

use super::failures::outcome;
use super::*;
use crate::support::wire::frames::{END_HEADERS, END_STREAM, Frame, HEADERS, fields, request_fields};
use crate::support::wire::until;

/// The most questions on connections, and the most that wait.
const MAX: usize = 256;

/// The concurrent streams of a client connection.
const STREAMS: usize = 100;

/// The gateway trusts the test as a proxy, so that a request can come from any client.
const HONEST: &str = "X-Forwarded-For: 192.0.2.1\r\n";

/// A gateway with one worker, and a service that withholds its answers.
struct Held {
    gateway: TestGateway,
    service: Origin,
    release: watch::Sender<bool>,
    _upstream: Origin,
}

/// Client connections, each with the number of its requests.
type Sent = Vec<(Frames, usize)>;

impl Held {
    /// Starts them. Each client has this many permits.
    async fn start(permits: usize) -> Self {
        let (release, released) = watch::channel(false);
        let service = Origin::start(move |mut conn: OriginConnection| {
            let mut released = released.clone();
            async move {
                while let Some(request) = conn.request().await {
                    if request.field("cookie").as_deref() != Some("now") {
                        _ = released.wait_for(|is_released| *is_released).await;
                    }
                    conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                }
            }
        })
        .await;
        let upstream = start_upstream().await;
        let limit = format!("limits: [{{ name: ip, mode: PER_CLIENT, client: ip, rate: {permits}, interval: 1h }}]");
        let rules = rules(&upstream, &requirement(&service, "timeout: 60s, on_failure: allow"), &limit);
        let rules = format!("clients: {{ trusted_proxies: [127.0.0.1] }}\n{rules}");
        Self { gateway: TestGateway::start_with_one_worker(&rules), service, release, _upstream: upstream }
    }

    /// Sends a request of each of these clients.
    async fn ask(&self, clients: &[String]) -> Sent {
        let mut sent = Vec::new();
        for clients in clients.chunks(STREAMS) {
            let mut connection = Frames::connect(self.gateway.address, &[]).await;
            let request = |(stream, client): (u32, &String)| {
                let block = request_fields("GET", "/").into_iter().chain([("x-forwarded-for", client.as_str())]);
                Frame::bytes(HEADERS, END_HEADERS | END_STREAM, stream, &fields(block))
            };
            connection.send((1..).step_by(2).zip(clients).flat_map(request).collect::<Vec<_>>()).await;
            sent.push((connection, clients.len()));
        }
        sent
    }

    /// Waits until the service has this many questions.
    async fn until_asked(&self, count: usize) {
        until(|| self.service.requests().len() == count).await;
    }

    /// Returns the number of questions with this outcome.
    async fn outcomes(&self, outcome: &str) -> usize {
        let upstream = format!("http://{}", self.service.address);
        let series = format!("tidegate_upstream_requests_total{{upstream=\"{upstream}\",outcome=\"{outcome}\"}}");
        self.gateway.counter(&series).await.try_into().expect("a number")
    }
}

/// Returns the addresses of clients.
fn clients(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("10.0.{}.{}", number / 256, number % 256)).collect()
}

/// Returns whether all responses have this status.
async fn all_have(sent: Sent, status: u16) -> bool {
    let mut is_status = true;
    for (mut connection, count) in sent {
        for _ in 0..count {
            is_status &= connection.find(|frame| frame.kind == HEADERS).await.status() == status;
        }
    }
    is_status
}

#[tokio::test]
async fn full_service_rejects_and_refunds() {
    let held = Held::start(1).await;
    let waiting = held.ask(&clients(0..MAX)).await;
    held.until_asked(MAX).await;
    let rejected = held.gateway.get("/", HONEST).await;
    assert_eq!(outcome(&rejected), (503, "service_busy".to_owned()));
    assert_eq!(rejected.field("retry-after").as_deref(), Some("1"));
    // One more than may wait. On a busy machine, the first leave the queue before the last arrives.
    let mut rounds = 0;
    while held.outcomes("queue_full").await == 0 {
        rounds += 1;
        assert!(rounds <= 20, "no question finds the queue full");
        let first = rounds * 2 * MAX;
        assert!(all_have(held.ask(&clients(first..first + MAX + 1)).await, 503).await);
    }
    let (full, timed_out) = (held.outcomes("queue_full").await, held.outcomes("queue_timeout").await);
    assert_eq!(full + timed_out, 1 + rounds * (MAX + 1));
    assert!(timed_out > rounds * MAX, "{MAX} questions wait: {full} {timed_out}");
    assert_eq!((held.service.connections(), held.service.requests().len()), (MAX, MAX));
    held.release.send_replace(true);
    assert!(all_have(waiting, 200).await);
    let again = [held.gateway.get("/", HONEST).await.status(), held.gateway.get("/", HONEST).await.status()];
    assert_eq!(again, [200, 429], "the permit of the rejected question was given back");
}

/// One client holds half of the connections. It cannot make the service busy for others.
#[tokio::test]
async fn busy_client_does_not_delay_others() {
    let held = Held::start(MAX / 2 + 1).await;
    let waiting = held.ask(&vec!["198.51.100.1".to_owned(); MAX / 2]).await;
    held.until_asked(MAX / 2).await;
    let busy = "X-Forwarded-For: 198.51.100.1\r\nCookie: now\r\n";
    assert_eq!(outcome(&held.gateway.get("/", busy).await), (503, "service_busy".to_owned()));
    let honest = format!("{HONEST}Cookie: now\r\n");
    assert_eq!(held.gateway.get("/", &honest).await.status(), 200);
    assert_eq!(held.gateway.get("/", busy).await.status(), 429, "the rejected question stays charged");
    held.release.send_replace(true);
    assert!(all_have(waiting, 200).await);
}
