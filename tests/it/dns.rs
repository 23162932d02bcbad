//! Host names of targets: changes in DNS, failing DNS servers and SRV records. A DNS server of the test has the records.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::dns::{DnsServer, Failure};
use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::soon;
use crate::support::wire::upstream::Origin;

const FIRST: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst";
const SECOND: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";

/// Listens on one port of both addresses, so that a name can move between the addresses.
async fn two_listeners() -> (TcpListener, TcpListener, u16) {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = first.local_addr().expect("an address").port();
        if let Ok(second) = TcpListener::bind(("127.0.0.2", port)).await {
            return (first, second, port);
        }
    }
}

/// Listens on a port of 127.0.0.2. The port refuses connections on 127.0.0.1.
async fn listener_with_closed_port() -> (TcpListener, u16) {
    loop {
        let port = Origin::closed_port().port();
        if let Ok(listener) = TcpListener::bind(("127.0.0.2", port)).await {
            return (listener, port);
        }
    }
}

fn answering(listener: TcpListener, response: &'static str) -> Origin {
    Origin::start_on(listener, move |mut connection| async move {
        while connection.request().await.is_some() {
            connection.raw.send(response).await;
        }
    })
}

fn rules(dns: &DnsServer, target: &str) -> String {
    format!(
        "{}\nupstreams: {{ api: {{ targets: ['{target}'] }} }}\n\
         routes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]",
        dns.key()
    )
}

async fn start(rules: String) -> TestGateway {
    // The start waits for the names, and this thread serves the origins.
    tokio::task::spawn_blocking(move || TestGateway::start(&rules)).await.expect("a gateway")
}

async fn get(gateway: &TestGateway) -> Message {
    soon(gateway.get("/", "")).await
}

/// Sends requests until one has this body.
async fn until_body(gateway: &TestGateway, body: &str) {
    soon(async { while get(gateway).await.text() != body {} }).await;
}

#[tokio::test]
async fn removed_address_finishes_its_requests() {
    let (first, second, port) = two_listeners().await;
    let (dns, end) = (DnsServer::start(), Arc::new(Notify::new()));
    let may_end = Arc::clone(&end);
    let slow = Origin::start_on(first, move |mut connection| {
        let may_end = Arc::clone(&may_end);
        async move {
            while connection.request().await.is_some() {
                connection.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfir").await;
                may_end.notified().await;
                connection.raw.send("st").await;
            }
        }
    });
    let _other = answering(second, SECOND);
    dns.set("api.test", 1, &["127.0.0.1"]);
    let gateway = start(rules(&dns, &format!("http://api.test:{port}"))).await;
    let mut client = gateway.client().await;
    client.send("GET / HTTP/1.1\r\nHost: test.example\r\n\r\n").await;
    assert_eq!(soon(client.head()).await.expect("a head").status(), 200);
    dns.set("api.test", 1, &["127.0.0.2"]);
    soon(dns.queried("api.test", 2)).await; // The second query follows the use of the first answer.
    for _ in 0..10 {
        assert_eq!(get(&gateway).await.text(), "second");
    }
    assert_eq!(slow.connections(), 1);
    end.notify_one();
    assert_eq!(soon(client.exactly(5)).await.expect("the whole body"), b"first");
}

#[tokio::test]
async fn added_address_receives_requests() {
    let (first, second, port) = two_listeners().await;
    let (_first, _second, dns) = (answering(first, FIRST), answering(second, SECOND), DnsServer::start());
    dns.set("api.test", 1, &["127.0.0.1"]);
    let gateway = start(rules(&dns, &format!("http://api.test:{port}"))).await;
    for _ in 0..10 {
        assert_eq!(get(&gateway).await.text(), "first");
    }
    dns.set("api.test", 1, &["127.0.0.1", "127.0.0.2"]);
    until_body(&gateway, "second").await;
    until_body(&gateway, "first").await;
    let series = format!("tidegate_dns_addresses{{name=\"api.test:{port}\"}} ");
    assert_eq!(gateway.counter(&series).await, 2);
}

#[tokio::test]
async fn addresses_stay_while_dns_fails() {
    let (first, _second, port) = two_listeners().await;
    let (_origin, dns) = (answering(first, FIRST), DnsServer::start());
    dns.set("api.test", 1, &["127.0.0.1"]);
    let gateway = start(rules(&dns, &format!("http://api.test:{port}"))).await;
    dns.fail("api.test", Failure::ServFail);
    let outcome =
        |outcome| format!("tidegate_dns_resolutions_total{{name=\"api.test:{port}\",outcome=\"{outcome}\"}} ");
    soon(async { while gateway.counter(&outcome("failed")).await < 2 {} }).await;
    assert_eq!(get(&gateway).await.text(), "first");
    // A name that does not exist is used for 30 s.
    dns.remove("api.test");
    dns.recover("api.test");
    soon(async { while gateway.counter(&outcome("absent")).await < 1 {} }).await;
    assert_eq!(get(&gateway).await.text(), "first");
}

#[tokio::test]
async fn unreachable_name_is_resolved_once_a_second() {
    let (second, port) = listener_with_closed_port().await;
    let (_second, dns) = (answering(second, SECOND), DnsServer::start());
    dns.set("api.test", 600, &["127.0.0.1"]);
    let begin = Instant::now();
    let gateway = start(rules(&dns, &format!("http://api.test:{port}"))).await;
    while dns.queries("api.test").len() < 4 {
        assert_ne!(get(&gateway).await.status(), 200);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", dns.queries("api.test"));
    }
    // Three pauses. A busy server may note one query late and the next one on time.
    assert!(begin.elapsed() > Duration::from_millis(2_700), "{:?}", dns.queries("api.test"));
    dns.set("api.test", 600, &["127.0.0.2"]);
    until_body(&gateway, "second").await;
}

#[tokio::test]
async fn gateway_starts_without_dns_and_returns_permits() {
    let (first, _second, port) = two_listeners().await;
    let (_origin, dns) = (answering(first, FIRST), DnsServer::start());
    dns.fail("api.test", Failure::Silent);
    let rules = format!(
        "{}\nupstreams: {{ api: {{ targets: ['http://api.test:{port}'], timeouts: {{ connect: 50ms }} }} }}\n\
         routes:\n  - name: all\n    match: {{ path: /** }}\n    upstream: api\n    \
         limits: [{{ name: one, mode: OVERALL, rate: 1, interval: 1h }}]",
        dns.key()
    );
    let started = tokio::task::spawn_blocking(move || {
        let begin = Instant::now();
        (TestGateway::start(&rules), begin.elapsed())
    });
    let (gateway, duration) = started.await.expect("a gateway");
    // A lookup lasts at most 5 s. The rest is for a busy machine.
    assert!(duration >= Duration::from_secs(2) && duration < Duration::from_secs(20), "{duration:?}");
    for _ in 0..3 {
        assert_eq!(get(&gateway).await.status(), 502);
    }
    dns.set("api.test", 600, &["127.0.0.1"]);
    dns.queried("api.test", 1).await;
    let mut response = get(&gateway).await;
    while response.status() == 502 {
        response = get(&gateway).await;
    }
    assert_eq!(response.text(), "first", "the permit is still there");
    assert_eq!(get(&gateway).await.status(), 429);
}

#[tokio::test]
async fn service_uses_records_with_the_lowest_priority() {
    let dns = DnsServer::start();
    let (first, second, _) = two_listeners().await;
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    let records = [
        format!("1 3 {} a.test", port(&first)),
        format!("1 0 {} b.test", port(&second)),
        format!("2 9 {} a.test", port(&other)),
    ];
    dns.set("_http._tcp.api.test", 600, &records.each_ref().map(String::as_str));
    dns.set("a.test", 600, &["127.0.0.1"]);
    dns.set("b.test", 600, &["c.test"]); // an alias
    dns.set("c.test", 600, &["127.0.0.2"]);
    let (first, _second, other) = (answering(first, FIRST), answering(second, SECOND), answering(other, SECOND));
    let gateway = start(rules(&dns, "srv://_http._tcp.api.test")).await;
    until_body(&gateway, "first").await;
    until_body(&gateway, "second").await;
    assert_eq!(other.connections(), 0);
    // Only HTTP/1.0 requests need the name of the target.
    first.clear_requests();
    while first.requests().is_empty() {
        let request = "GET / HTTP/1.0\r\n\r\n";
        assert_eq!(soon(gateway.client().await.ask(request)).await.status(), 200);
    }
    assert_eq!(first.last_request().field("host").as_deref(), Some("api.test"));
}

#[tokio::test]
async fn reload_keeps_resolved_names() {
    let (first, _second, port) = two_listeners().await;
    let (_origin, dns) = (answering(first, FIRST), DnsServer::start());
    dns.set("api.test", 600, &["127.0.0.1"]);
    let rules = rules(&dns, &format!("http://api.test:{port}"));
    let gateway = start(rules.clone()).await;
    assert_eq!(get(&gateway).await.text(), "first");
    dns.fail("api.test", Failure::Silent);
    gateway.reload(&rules.replace("targets", "queue: 7, targets"));
    assert_eq!(get(&gateway).await.text(), "first");
    assert_eq!(dns.queries("api.test").len(), 1);
}

#[tokio::test]
async fn removed_name_is_not_resolved_any_more() {
    let (first, _second, port) = two_listeners().await;
    let (_origin, dns) = (answering(first, FIRST), DnsServer::start());
    dns.set("api.test", 1, &["127.0.0.1"]);
    dns.set("other.test", 1, &["127.0.0.1"]);
    let gateway = start(rules(&dns, &format!("http://api.test:{port}"))).await;
    gateway.reload(&rules(&dns, &format!("http://other.test:{port}")));
    let before = dns.queries("api.test").len();
    soon(dns.queried("other.test", 3)).await;
    // One resolution may have been in flight.
    assert!(dns.queries("api.test").len() <= before + 1);
    assert_eq!(gateway.counter(&format!("tidegate_dns_addresses{{name=\"api.test:{port}\"}} ")).await, 0);
}
