//! As many connections to a target as there may be, and who waits for one.

use super::*;

/// One connection, and a queue of which one client may have two places.
const ONE: fn(&mut UpstreamSettings) = |upstream| {
    (upstream.max_connections, upstream.queue, upstream.queue_timeout) = (1, 4, LONG);
};

fn narrow(address: SocketAddr) -> Settings {
    Settings { adjust: ONE, ..Settings::to(address) }
}

/// An origin that answers when it is told to, one request each time.
async fn held() -> (Origin, Arc<tokio::sync::Semaphore>) {
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
    fn shows(&self, series: &str) -> bool {
        self.metrics.render().lines().any(|line| line == series)
    }

    /// A client whose request waits for a connection, behind so many others.
    async fn waiter(&self, path: &str, others: usize) -> Raw {
        let mut client = self.client().await;
        client.send(get(path)).await;
        until(|| self.shows(&format!(r#"tidegate_upstream_waiting{{upstream="api"}} {}"#, others + 1))).await;
        client
    }
}

#[tokio::test]
async fn who_waits_for_a_connection_has_it_in_the_order_of_arrival() {
    let (origin, gate) = held().await;
    let gateway = narrow(origin.address).start();
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
    assert!(gateway.shows(r#"tidegate_upstream_connections{upstream="api"} 1"#));
    assert!(gateway.shows(r#"tidegate_upstream_waiting{upstream="api"} 0"#));
}

#[tokio::test]
async fn beyond_the_queue_a_request_is_refused_and_was_not_sent() {
    let (origin, gate) = held().await;
    let gateway = narrow(origin.address).start();
    let mut first = gateway.client().await;
    first.send(get("/")).await;
    until(|| origin.requests().len() == 1).await;
    let (mut second, mut third) = (gateway.waiter("/", 0).await, gateway.waiter("/", 1).await);
    let refused = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
    assert_eq!((refused.status(), refused.field("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(refused.field("x-not-sent").as_deref(), Some("yes"));
    assert!(gateway.shows(r#"tidegate_upstream_requests_total{upstream="api",outcome="queue_full"} 1"#));
    gate.add_permits(3);
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.response(false).await.status(), 200);
    }
}

#[tokio::test]
async fn who_waits_for_too_long_is_refused_and_was_not_sent() {
    let (origin, gate) = held().await;
    let adjust: fn(&mut UpstreamSettings) =
        |upstream| (upstream.max_connections, upstream.queue_timeout) = (1, Duration::from_millis(50));
    let gateway = Settings { adjust, ..Settings::to(origin.address) }.start();
    let mut first = gateway.client().await;
    first.send(get("/")).await;
    until(|| origin.requests().len() == 1).await;
    let refused = gateway.ask(get("/")).await;
    assert_eq!((refused.status(), refused.field("x-not-sent").as_deref()), (503, Some("yes")));
    assert!(gateway.shows(r#"tidegate_upstream_requests_total{upstream="api",outcome="queue_timeout"} 1"#));
    gate.add_permits(2);
    assert_eq!(first.response(false).await.status(), 200);
    assert_eq!(gateway.ask(get("/")).await.status(), 200);
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn who_leaves_the_queue_gives_up_the_place_in_it() {
    let (origin, gate) = held().await;
    let gateway = narrow(origin.address).start();
    let mut first = gateway.client().await;
    first.send(get("/1")).await;
    until(|| origin.requests().len() == 1).await;
    let leaves = gateway.waiter("/2", 0).await;
    let mut third = gateway.waiter("/3", 1).await;
    drop(leaves);
    until(|| gateway.shows(r#"tidegate_upstream_waiting{upstream="api"} 1"#)).await;
    let mut fourth = gateway.waiter("/4", 1).await;
    gate.add_permits(3);
    for client in [&mut first, &mut third, &mut fourth] {
        assert_eq!(client.response(false).await.status(), 200);
    }
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_connection_that_ends_or_cannot_be_opened_leaves_its_place_to_the_next() {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        conn.request().await;
        conn.raw.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").await;
    })
    .await;
    let gateway = narrow(origin.address).start();
    let asked = (0..3).map(|_| gateway.ask(get("/")));
    let mut asked = Box::pin(futures_of(asked));
    assert_eq!(soon(&mut asked).await, [200, 200, 200]);
    assert_eq!(origin.connections(), 3);

    let gateway = narrow(Origin::closed_port().await).start();
    for _ in 0..3 {
        assert_eq!(gateway.ask(get("/")).await.status(), 502);
    }
}

/// The statuses of all, which run beside each other.
async fn futures_of(asked: impl Iterator<Item = impl Future<Output = Message>>) -> Vec<u16> {
    let mut asked: Vec<_> = asked.map(Box::pin).map(Some).collect();
    let mut statuses = vec![0; asked.len()];
    std::future::poll_fn(|cx| {
        for (slot, status) in asked.iter_mut().zip(&mut statuses) {
            if let Some(one) = slot
                && let Poll::Ready(answer) = one.as_mut().poll(cx)
            {
                (*slot, *status) = (None, answer.status());
            }
        }
        if asked.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    statuses
}

#[tokio::test]
async fn no_more_connections_are_open_than_may_be() {
    let (origin, gate) = held().await;
    let adjust: fn(&mut UpstreamSettings) = |upstream| (upstream.max_connections, upstream.queue_timeout) = (3, LONG);
    let gateway = Settings { adjust, ..Settings::to(origin.address) }.start();
    gate.add_permits(20);
    assert_eq!(futures_of((0..20).map(|_| gateway.ask(get("/")))).await, [200; 20]);
    assert!(origin.connections() <= 3, "{}", origin.connections());
}

#[tokio::test]
async fn a_target_with_room_is_asked_before_anybody_waits() {
    let ((one, gate), other) = (held().await, Origin::with_response(OK).await);
    let settings = Settings::targets(vec![target(one.address), target(other.address)]);
    let gateway = Settings { adjust: ONE, ..settings }.start();
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
