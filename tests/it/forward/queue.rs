//! The limit of connections to a target, and the queue of requests that wait for one.

use super::*;

/// Allows one connection, and a queue in which one client may have two positions.
fn with_one_connection(settings: Settings) -> Settings {
    settings.set("max_connections", "1").set("queue", "4").set("queue_timeout", "1m")
}

/// Starts an origin that answers one request for each permit of the semaphore.
async fn gated_origin() -> (Origin, Arc<tokio::sync::Semaphore>) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opened = gate.clone();
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let opened = opened.clone();
        async move {
            while conn.request().await.is_some() {
                opened.acquire().await.unwrap().forget();
                conn.raw.send(OK).await;
            }
        }
    })
    .await;
    (origin, gate)
}

impl Gateway {
    /// Returns a client whose request waits for a connection, behind `others` other requests.
    async fn waiter(&self, path: &str, others: usize) -> Raw {
        let mut client = self.client().await;
        client.send(get(path)).await;
        until(|| self.has_line(&format!(r#"tidegate_upstream_waiting{{upstream="api"}} {}"#, others + 1))).await;
        client
    }
}

#[tokio::test]
async fn waiting_requests_are_served_in_order_of_arrival() {
    let (origin, gate) = gated_origin().await;
    let gateway = with_one_connection(Settings::to(origin.address)).start();
    let mut first = gateway.client().await;
    first.send(get("/1")).await;
    until(|| origin.requests().len() == 1).await;
    let mut second = gateway.waiter("/2", 0).await;
    let mut third = gateway.waiter("/3", 1).await;
    gate.add_permits(3);
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.response(false).await.status(), 200);
    }
    let paths: Vec<_> = origin.requests().into_iter().map(|request| request.start).collect();
    assert_eq!(paths, ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /3 HTTP/1.1"]);
    assert_eq!(origin.connections(), 1);
    assert!(gateway.has_line(r#"tidegate_upstream_connections{upstream="api"} 1"#));
    assert!(gateway.has_line(r#"tidegate_upstream_waiting{upstream="api"} 0"#));
}

#[tokio::test]
async fn full_queue_rejects_a_request_unsent() {
    assert_eq!(reject_from_queue("1", 1).await.as_deref(), Some("yes"));
}

/// Otherwise a client that keeps its share busy could send any number of requests.
#[tokio::test]
async fn client_over_its_share_of_the_queue_stays_charged() {
    assert_eq!(reject_from_queue("4", 2).await, None);
}

/// Sends requests until this number waits, and one more, which is rejected. Returns whether it counts as not sent.
async fn reject_from_queue(queue: &str, waiting: usize) -> Option<String> {
    let (origin, gate) = gated_origin().await;
    let gateway = with_one_connection(Settings::to(origin.address)).set("queue", queue).start();
    let mut clients = vec![gateway.client().await];
    clients[0].send(get("/")).await;
    until(|| origin.requests().len() == 1).await;
    for others in 0..waiting {
        clients.push(gateway.waiter("/", others).await);
    }
    let refused = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    assert_eq!((refused.status(), refused.field("retry-after").as_deref()), (503, Some("1")));
    assert!(gateway.has_line(r#"tidegate_upstream_requests_total{upstream="api",outcome="queue_full"} 1"#));
    gate.add_permits(clients.len());
    for client in &mut clients {
        assert_eq!(client.response(false).await.status(), 200);
    }
    refused.field("x-not-sent")
}

#[tokio::test]
async fn queue_timeout_rejects_a_request_unsent() {
    let (origin, gate) = gated_origin().await;
    let gateway = Settings::to(origin.address).set("max_connections", "1").set("queue_timeout", "50ms").start();
    let mut first = gateway.client().await;
    first.send(get("/")).await;
    until(|| origin.requests().len() == 1).await;
    let refused = gateway.ask(get("/")).await;
    assert_eq!((refused.status(), refused.field("x-not-sent").as_deref()), (503, Some("yes")));
    assert!(gateway.has_line(r#"tidegate_upstream_requests_total{upstream="api",outcome="queue_timeout"} 1"#));
    gate.add_permits(2);
    assert_eq!(first.response(false).await.status(), 200);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn cancelled_request_frees_its_queue_position() {
    let (origin, gate) = gated_origin().await;
    let gateway = with_one_connection(Settings::to(origin.address)).start();
    let mut first = gateway.client().await;
    first.send(get("/1")).await;
    until(|| origin.requests().len() == 1).await;
    let leaving = gateway.waiter("/2", 0).await;
    let mut third = gateway.waiter("/3", 1).await;
    drop(leaving);
    until(|| gateway.has_line(r#"tidegate_upstream_waiting{upstream="api"} 1"#)).await;
    let mut fourth = gateway.waiter("/4", 1).await;
    gate.add_permits(3);
    for client in [&mut first, &mut third, &mut fourth] {
        assert_eq!(client.response(false).await.status(), 200);
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn closed_connection_frees_its_slot() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").await;
    })
    .await;
    let gateway = with_one_connection(Settings::to(origin.address)).start();
    let statuses = statuses_of((0..3).map(|_| gateway.ask(get("/"))));
    assert_eq!(soon(statuses).await, [200, 200, 200]);
    assert_eq!(origin.connections(), 3);

    let gateway = with_one_connection(Settings::to(Origin::closed_port())).start();
    for _ in 0..3 {
        assert_eq!(gateway.ask(get("/")).await.status(), 502);
    }
}

/// Runs requests concurrently, and returns their statuses.
async fn statuses_of(requests: impl Iterator<Item = impl Future<Output = Message>>) -> Vec<u16> {
    let mut requests: Vec<_> = requests.map(Box::pin).map(Some).collect();
    let mut statuses = vec![0; requests.len()];
    std::future::poll_fn(|cx| {
        for (slot, status) in requests.iter_mut().zip(&mut statuses) {
            if let Some(one) = slot
                && let Poll::Ready(response) = one.as_mut().poll(cx)
            {
                (*slot, *status) = (None, response.status());
            }
        }
        if requests.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    statuses
}

#[tokio::test]
async fn open_connections_stay_within_the_limit() {
    let (origin, gate) = gated_origin().await;
    let gateway = Settings::to(origin.address).set("max_connections", "3").set("queue_timeout", "1m").start();
    gate.add_permits(20);
    assert_eq!(statuses_of((0..20).map(|_| gateway.ask(get("/")))).await, [200; 20]);
    assert!(origin.connections() <= 3, "{}", origin.connections());
}

#[tokio::test]
async fn target_with_a_free_connection_is_used_before_waiting() {
    let ((one, gate), other) = (gated_origin().await, Origin::with_response(OK).await);
    let gateway = with_one_connection(Settings::to_all([one.address, other.address])).start();
    let mut first = gateway.client().await;
    first.send(get("/")).await;
    until(|| one.requests().len() == 1).await;
    for _ in 0..4 {
        assert_eq!(gateway.ask(get("/")).await.status(), 200);
    }
    assert_eq!((one.requests().len(), other.requests().len()), (1, 4));
    gate.add_permits(1);
    assert_eq!(first.response(false).await.status(), 200);
}
