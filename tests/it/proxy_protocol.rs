//! The PROXY protocol, from trusted proxies and from untrusted peers.

use std::net::Ipv4Addr;

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Raw;
use crate::support::wire::{soon, until_within};

use std::time::Duration;

/// The address of the trusted proxy.
const PROXY: &str = "127.0.0.2";

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Starts a gateway with the PROXY protocol and further settings of its listener.
fn start(more: &str) -> TestGateway {
    start_with("true", more)
}

/// Starts a gateway with this value of `proxy_protocol`.
fn start_with(proxy_protocol: &str, more: &str) -> TestGateway {
    let listen = format!("{{ address: 127.0.0.1:0, proxy_protocol: {proxy_protocol}, {more} }}");
    let rules = format!(
        "clients: {{ trusted_proxies: [{PROXY}] }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:
  - name: all
    match: {{}}
    upstream: echo
    limits: [{{ name: l, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }}]
"
    );
    TestGateway::start_at(&listen, &rules)
}

/// Connects as the proxy.
async fn proxy(gateway: &TestGateway) -> Raw {
    Raw::connect_from(PROXY, gateway.address).await
}

/// Returns a header of version 1 for this client address.
fn from(address: &str) -> String {
    format!("PROXY TCP4 {address} 10.0.0.1 40000 80\r\n")
}

fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a length").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[0x20 | command, family], &length, payload].concat()
}

fn v2_from(address: Ipv4Addr) -> Vec<u8> {
    // With an unknown TLV after the addresses.
    v2(1, 0x11, &[&address.octets()[..], &[10, 0, 0, 1, 0x9C, 0x40, 0, 80], b"\x04\0\x03abc"].concat())
}

#[tokio::test]
async fn tls_of_the_client_sets_the_forwarded_scheme() {
    let gateway = start("");
    let address = |last: u8| [&[192, 0, 2, last, 10, 0, 0, 1][..], &[0x9C, 0x40, 1, 0xBB]].concat();
    for (last, extension, scheme) in
        [(1, &[0x20, 0, 5, 1, 0, 0, 0, 0][..], "https"), (2, &[0x20, 0, 5, 0, 0, 0, 0, 0], "http"), (3, &[], "http")]
    {
        let header = v2(1, 0x11, &[&address(last), extension].concat());
        let echo = proxy(&gateway).await.ask([header.as_slice(), GET.as_bytes()].concat()).await.text();
        assert!(echo.contains(&format!(r#""x-forwarded-proto": "{scheme}""#)), "{scheme}: {echo}");
    }
}

/// Returns `true` if the connection ends without a response.
async fn is_refused(mut client: Raw) -> bool {
    client.try_message(false, true).await.is_err()
}

async fn count(gateway: &TestGateway, cause: &str) -> u64 {
    gateway.counter(&format!("tidegate_rejected_total{{cause=\"{cause}\"}}")).await
}

#[tokio::test]
async fn client_address_comes_from_the_proxy_header() {
    let gateway = start("");
    for (header, client) in [
        (from("192.0.2.1").into_bytes(), "192.0.2.1"),
        (v2_from(Ipv4Addr::new(192, 0, 2, 2)), "192.0.2.2"),
        (b"PROXY TCP6 2001:db8::1 ::1 40000 80\r\n".to_vec(), "2001:db8::1"),
    ] {
        let mut first = proxy(&gateway).await;
        let response = first.ask([header.as_slice(), GET.as_bytes()].concat()).await;
        // The echo shows the forwarded fields.
        let echo = response.text();
        assert_eq!(response.status(), 200, "{echo}");
        assert!(echo.contains(&format!(r#""x-forwarded-for": "{client}""#)), "{client}: {echo}");
        // Each client has its own limit. Its `X-Forwarded-For` is ignored, because it is not a trusted proxy.
        let spoofed = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";
        assert_eq!(first.ask(spoofed).await.status(), 429, "{client}");
    }
}

/// The proxy may terminate TLS.
#[tokio::test]
async fn client_behind_a_proxy_can_use_https_urls() {
    let gateway = start("");
    let mut client = proxy(&gateway).await;
    let ask = "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(client.ask(from("192.0.2.1") + ask).await.status(), 200);
}

#[tokio::test]
async fn proxy_header_can_arrive_byte_by_byte() {
    let gateway = start("");
    for (number, header) in [from("192.0.2.1").into_bytes(), v2_from(Ipv4Addr::new(192, 0, 2, 2))].iter().enumerate() {
        let mut client = proxy(&gateway).await;
        client.stream.set_nodelay(true).expect("set");
        for byte in header.iter().chain(GET.as_bytes()) {
            client.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.response(false).await.status(), 200, "{number}");
    }
}

#[tokio::test]
async fn http2_works_after_a_proxy_header() {
    let gateway = start("");
    let mut client = proxy(&gateway).await;
    client.send([from("192.0.2.1").as_bytes(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"].concat()).await;
    let settings = soon(client.exactly(9)).await.expect("a frame");
    assert_eq!(settings[3], 4, "{settings:?}");
}

#[tokio::test]
async fn untrusted_peer_is_refused_with_or_without_header() {
    let gateway = start("");
    for sent in [from("192.0.2.1") + GET, GET.to_owned()] {
        let mut untrusted = Raw::connect_from("127.0.0.3", gateway.address).await;
        // The gateway may close the connection before all bytes are sent.
        _ = tokio::io::AsyncWriteExt::write_all(&mut untrusted.stream, sent.as_bytes()).await;
        assert!(is_refused(untrusted).await, "{sent}");
    }
    assert_eq!(count(&gateway, "proxy_untrusted").await, 2);
    assert_eq!(gateway.counter("tidegate_connections ").await, 0);
}

#[tokio::test]
async fn invalid_proxy_header_is_refused() {
    let gateway = start("");
    let sent = [
        GET.as_bytes().to_vec(),
        from("0.0.0.0").into_bytes(),
        from("no address").into_bytes(),
        format!("PROXY UNKNOWN {}\r\n", "a".repeat(107)).into_bytes(),
        v2(1, 0x12, &[1; 12]),
        v2(2, 0x11, &[1; 12]),
        v2(0, 0, &[0; 4081]),
        vec![0xFF; 64],
    ];
    for (number, bytes) in sent.iter().enumerate() {
        let mut client = proxy(&gateway).await;
        _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, bytes).await;
        assert!(is_refused(client).await, "{number}");
    }
    assert_eq!(count(&gateway, "proxy_header").await, sent.len() as u64);
}

#[tokio::test]
async fn header_without_client_allows_health_checks() {
    let gateway = start("");
    for header in [v2(0, 0, b""), b"PROXY UNKNOWN\r\n".to_vec(), v2(1, 0x31, &[0; 216]), v2(1, 0, b"")] {
        let mut client = proxy(&gateway).await;
        let response = client.ask([header.as_slice(), GET.as_bytes()].concat()).await;
        // All connections are of one client, the proxy, with a limit of one request.
        assert!([200, 429].contains(&response.status()), "{}", response.text());
    }
}

/// Returns the headers without a client address: UNKNOWN, LOCAL, UNSPEC, and a Unix socket.
fn without_client() -> [Vec<u8>; 4] {
    [b"PROXY UNKNOWN\r\n".to_vec(), v2(0, 0, b""), v2(1, 0, b""), v2(1, 0x31, &[0; 216])]
}

/// Regression test: with a random `X-Forwarded-For` behind such a header, a client avoided limits by address.
#[tokio::test]
async fn header_without_client_makes_no_field_trusted() {
    let gateway = start("");
    let mut admitted = 0;
    for (number, header) in without_client().iter().enumerate() {
        let get = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.{number}\r\nX-Forwarded-Proto: https\r\n\
             X-Real-IP: 203.0.113.{number}\r\n\r\n"
        );
        let response = proxy(&gateway).await.ask([header, get.as_bytes()].concat()).await;
        if response.status() == 200 {
            admitted += 1;
            let echo = response.text();
            assert!(echo.contains(&format!(r#""x-forwarded-for": "{PROXY}""#)), "{echo}");
            assert!(echo.contains(r#""x-forwarded-proto": "http""#) && !echo.contains("203.0.113"), "{echo}");
        }
    }
    assert_eq!(admitted, 1, "all requests are of one client, the proxy");
}

/// `requests: { keep }` keeps the field for rules, but the client address does not come from it.
#[tokio::test]
async fn kept_field_names_no_client_behind_unknown() {
    let rules = format!(
        "clients: {{ trusted_proxies: [{PROXY}] }}
requests: {{ keep: [X-Forwarded-For] }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:
  - name: all
    match: {{}}
    upstream: echo
    limits: [{{ name: l, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }}]
"
    );
    let gateway = TestGateway::start_at("{ address: 127.0.0.1:0, proxy_protocol: true }", &rules);
    let mut statuses = Vec::new();
    for number in 1..4 {
        let get = format!("PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.{number}\r\n\r\n");
        statuses.push(proxy(&gateway).await.ask(get).await.status());
    }
    assert_eq!(statuses, [200, 429, 429]);
}

/// The same over HTTP/2.
#[tokio::test]
async fn header_without_client_trusts_no_field_of_http2() {
    let gateway = start("");
    let mut statuses = Vec::new();
    for address in ["203.0.113.1", "203.0.113.2"] {
        let mut stream = proxy(&gateway).await.stream;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"PROXY UNKNOWN\r\n").await.expect("sent");
        let (mut send, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        let request =
            http::Request::get("http://a.example/").header("x-forwarded-for", address).body(()).expect("valid");
        let (response, _) = send.send_request(request, true).expect("sent");
        statuses.push(soon(response).await.expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 429]);
}

#[tokio::test]
async fn setting_trusts_fields_behind_unknown_client() {
    let gateway = start_with("{ trust_unknown: true }", "");
    for (number, header) in without_client().iter().enumerate() {
        let get = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.{number}\r\n\r\n");
        let response = proxy(&gateway).await.ask([header, get.as_bytes()].concat()).await;
        assert_eq!(response.status(), 200, "{number}: {}", response.text());
        assert!(response.text().contains(&format!("203.0.113.{number}, {PROXY}")), "{}", response.text());
    }
    // A client that the header names is not a trusted proxy.
    let spoofed = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";
    for status in [200, 429] {
        assert_eq!(proxy(&gateway).await.ask(from("192.0.2.1") + spoofed).await.status(), status);
    }
}

#[tokio::test]
async fn missing_proxy_header_ends_the_connection_early() {
    let gateway = start("header_timeout: 100ms");
    for start in ["", "PROXY TCP4 192.0"] {
        let mut client = proxy(&gateway).await;
        client.send(start).await;
        assert!(is_refused(client).await, "{start}");
    }
    assert_eq!(count(&gateway, "slow_proxy_header").await, 2);

    // After the header the request has its own timeout.
    let mut silent = proxy(&gateway).await;
    silent.send(from("192.0.2.1")).await;
    assert!(is_refused(silent).await);
}

#[tokio::test]
async fn clients_behind_a_proxy_have_their_own_connections() {
    let gateway = start("max_connections_per_client: 2");
    let mut kept = Vec::new();
    for address in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
        let mut client = proxy(&gateway).await;
        client.ask(from(address) + GET).await;
        kept.push(client);
    }
    let refused = proxy(&gateway).await.ask(from("192.0.2.1") + GET).await;
    assert_eq!(refused.status(), 503, "{}", refused.text());
    assert!(refused.text().contains("too many connections from you"));
    assert_eq!(count(&gateway, "client_connections").await, 1);
    // A closed connection no longer counts for its client.
    drop(kept.remove(0));
    soon(async {
        loop {
            let mut client = proxy(&gateway).await;
            if client.ask(from("192.0.2.1") + GET).await.status() != 503 {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn drain_does_not_wait_for_a_silent_proxy() {
    let gateway = start("header_timeout: 1h");
    let mut silent = proxy(&gateway).await;
    silent.send("PROXY ").await;
    let mut is_counted = false;
    let admin = gateway.admin;
    soon(async {
        while !is_counted {
            let metrics = crate::support::gateway::get(&mut Raw::connect(admin).await, "/metrics", "").await.text();
            is_counted = metrics.lines().any(|line| line == "tidegate_connections 1");
        }
    })
    .await;
    let drained = std::thread::spawn(move || gateway.drain(Duration::from_secs(60)));
    until_within(Duration::from_secs(60), || drained.is_finished()).await;
    assert!(is_refused(silent).await);
}
