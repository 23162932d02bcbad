//! Traces over OTLP: the program sends its spans to a collector, which decodes them. Needs the feature `otlp`.

#![allow(unreachable_pub, reason = "a test binary exports nothing")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails the test")]

mod collector;

/// The modules of the integration tests that these tests share.
#[path = "../it/support"]
mod support {
    #[allow(dead_code, reason = "these tests need only some of the items")]
    pub mod dns;
    pub mod listening;
    #[allow(dead_code, reason = "these tests need only some of the items")]
    pub mod process;
    pub mod wire;
}

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;

use self::collector::{Collector, Span};
use self::support::dns::DnsServer;
use self::support::process::{Program, RuleFile, address, tidegate};
use self::support::wire::raw::{Message, Raw};
use self::support::wire::upstream::Origin;
use self::support::wire::{soon, until};

/// The address of the trusted proxy.
const PROXY: &str = "127.0.0.2";

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A gateway with one worker.
struct Gateway {
    program: Program,
    _file: RuleFile,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    /// Starts a gateway with these environment variables. No other test may use `name`.
    fn start(name: &str, origin: SocketAddr, environment: &[(&str, &str)]) -> Self {
        Self::start_with("", name, origin, environment)
    }

    /// Starts a gateway with more keys in its rule file.
    fn start_with(keys: &str, name: &str, origin: SocketAddr, environment: &[(&str, &str)]) -> Self {
        let file = RuleFile::new(
            name,
            &format!(
                "{keys}
listen: 127.0.0.1:0
admin: 127.0.0.1:0
clients: {{ trusted_proxies: [{PROXY}] }}
upstreams: {{ api: {{ targets: ['http://{origin}'] }}, gone: {{ targets: ['http://127.0.0.1:1'] }} }}
routes:
  - {{ name: once, match: {{ path: /once }}, upstream: api, limits: [{{ name: one, mode: OVERALL, rate: 1, interval: 1h }}] }}
  - {{ name: gone, match: {{ path: /gone }}, upstream: gone }}
  - {{ name: all, match: {{ path: '/o/**' }}, upstream: api }}
"
            ),
        );
        let mut command = tidegate(&["run", "--workers", "1", "-c", file.path()]);
        let mut program = Program::start(command.envs(environment.iter().copied()));
        let address = address(&mut program.stderr, "listening on http://");
        let admin = support::process::address(&mut program.stderr, "admin on http://");
        Self { program, _file: file, address, admin }
    }

    /// Ends the gateway, and returns its log. Blocks the thread, so the collector needs another one.
    fn end(self) -> String {
        self.program.signal("TERM");
        let (status, log) = self.program.wait_for_exit();
        assert!(status.success(), "{log}");
        log
    }

    async fn has_metric(&self, line: &str) -> bool {
        let response = get(&mut Raw::connect(self.admin).await, "/metrics", "").await;
        response.text().lines().any(|other| other.starts_with(line))
    }
}

async fn get(connection: &mut Raw, path: &str, fields: &str) -> Message {
    connection.ask(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}\r\n")).await
}

fn traceparent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\ntracestate: a=1\r\n")
}

/// Returns the children of a span, by their names.
fn children<'s, const N: usize>(spans: &'s [Span], root: &Span, names: [&str; N]) -> [&'s Span; N] {
    let children: Vec<_> = spans.iter().filter(|span| span.parent == root.id).collect();
    assert_eq!(children.len(), N, "{children:?}");
    for child in &children {
        assert!(child.trace == root.trace && child.start >= root.start && child.end <= root.end, "{child:?} {root:?}");
    }
    names.map(|name| *children.iter().find(|child| child.name == name).expect("a child"))
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_request_is_one_trace_with_its_neighbours() {
    let (collector, origin) = (Collector::start().await, Origin::with_response(OK).await);
    let gateway = Gateway::start("forwarded", origin.address, &[collector.endpoint(), ("OTEL_SERVICE_NAME", "edge")]);
    let mut proxy = Raw::connect_from(PROXY, gateway.address).await;
    let fields = traceparent("01");
    assert_eq!(get(&mut proxy, "/o/secret?token=secret", &fields).await.status(), 200);
    let forwarded = origin.last_request();
    // The interval of the queue has to pass: the gateway does not end before.
    until(|| collector.spans().len() == 3).await;
    let spans = collector.spans();
    let root = spans.iter().find(|span| span.name == "GET all").expect("a root");
    assert_eq!((&*root.trace, &*root.parent, &*root.kind), (TRACE, PARENT, "Server"));
    let attributes = [
        ("http.request.method", "GET"),
        ("http.route", "all"),
        ("http.response.status_code", "200"),
        ("tidegate.limits", "unlimited"),
    ];
    for (name, value) in attributes {
        assert_eq!(root.attribute(name), Some(value), "{name} in {root:?}");
    }
    let [upstream, _] = children(&spans, root, ["upstream", "match"]);
    assert_eq!(upstream.kind, "Client");
    assert_eq!(upstream.attribute("tidegate.upstream"), Some("api"));
    assert_eq!(upstream.attribute("tidegate.target"), Some(&*format!("http://{}", origin.address)));
    assert_eq!(upstream.attribute("tidegate.attempts"), Some("1"));
    assert_eq!(forwarded.field("traceparent"), Some(format!("00-{TRACE}-{}-01", upstream.id)));
    assert_eq!(forwarded.field("tracestate").as_deref(), Some("a=1"));
    assert_eq!(collector.service_names(), ["edge"]);
    assert!(!format!("{spans:?}").contains("secret"), "{spans:?}");
    // The gateway counts them after the collector's response.
    let line = "tidegate_trace_spans_total{outcome=\"exported\"} 3";
    soon(async { while !gateway.has_metric(line).await {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_trusted_peers_choose_the_trace() {
    let (collector, origin) = (Collector::start().await, Origin::with_response(OK).await);
    let gateway = Gateway::start("trusted", origin.address, &[collector.endpoint()]);
    // A proxy that does not sample the request: forwarded unchanged, without a span.
    let mut proxy = Raw::connect_from(PROXY, gateway.address).await;
    get(&mut proxy, "/o/a", &traceparent("00")).await;
    assert_eq!(origin.last_request().field("traceparent"), Some(format!("00-{TRACE}-{PARENT}-00")));
    // A client: a new trace.
    let mut client = Raw::connect(gateway.address).await;
    get(&mut client, "/o/a", &traceparent("00")).await;
    let forwarded = origin.last_request();
    gateway.end();
    let spans = collector.spans();
    let root = spans.iter().find(|span| span.name == "GET all").expect("a root");
    assert_eq!((spans.len(), &*root.parent), (3, ""));
    assert!(root.trace.len() == 32 && root.trace != TRACE, "{root:?}");
    let [upstream, _] = children(&spans, root, ["upstream", "match"]);
    assert_eq!(forwarded.field("traceparent"), Some(format!("00-{}-{}-01", root.trace, upstream.id)));
    assert_eq!(forwarded.field("tracestate"), None);
    assert_eq!(collector.service_names(), ["tidegate"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_and_failures_are_traced() {
    let (collector, origin) = (Collector::start().await, Origin::with_response(OK).await);
    let gateway = Gateway::start("rejected", origin.address, &[collector.endpoint()]);
    let mut client = Raw::connect(gateway.address).await;
    let mut statuses = Vec::new();
    for path in ["/once", "/once", "/gone", "/nowhere"] {
        statuses.push(get(&mut client, path, "").await.status());
    }
    let unknown = client.ask("BREW /o/a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((&statuses[..], unknown.status()), (&[200, 429, 502, 404][..], 200));
    gateway.end();
    let spans = collector.spans();
    let root = |name: &str, status: &str| {
        let is_it = |span: &&Span| span.name == name && span.attribute("http.response.status_code") == Some(status);
        spans.iter().find(is_it).unwrap_or_else(|| panic!("{name} in {spans:?}"))
    };
    let granted = children(&spans, root("GET once", "200"), ["match", "decide", "upstream"]);
    assert_eq!(granted[1].attribute("tidegate.limits"), Some("allowed"));
    let rejected = root("GET once", "429");
    let [_, decide] = children(&spans, rejected, ["match", "decide"]);
    assert_eq!(
        (decide.attribute("tidegate.limits"), decide.attribute("tidegate.limit")),
        (Some("limited"), Some("one"))
    );
    assert!(!rejected.is_error, "{rejected:?}");
    let failed = root("GET gone", "502");
    let [_, upstream] = children(&spans, failed, ["match", "upstream"]);
    assert!(failed.is_error && upstream.is_error && upstream.attribute("error.type").is_some(), "{upstream:?}");
    children(&spans, root("GET", "404"), ["match"]);
    // The method of a client is no label.
    assert_eq!(root("HTTP all", "200").attribute("http.request.method"), Some("_OTHER"));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_collector_delays_neither_requests_nor_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("should bind");
    let endpoint = format!("http://{}", silent.local_addr().expect("an address"));
    let origin = Origin::with_response(OK).await;
    let gateway = Gateway::start("silent", origin.address, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let mut client = Raw::connect(gateway.address).await;
    // More than the queue holds.
    for _ in 0..1_500 {
        assert_eq!(get(&mut client, "/o/a", "").await.status(), 200);
    }
    assert!(gateway.has_metric("tidegate_trace_spans_total{outcome=\"dropped\"}").await);
    let start = Instant::now();
    let log = gateway.end();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(log.contains("collector did not respond in time"), "{log}");
}

/// Regression test: the collector was looked up with the servers of the system.
#[tokio::test(flavor = "multi_thread")]
async fn collector_is_found_with_the_dns_servers() {
    let (collector, origin, dns) = (Collector::start().await, Origin::with_response(OK).await, DnsServer::start());
    dns.set("collector.test", 60, &["127.0.0.1"]);
    let endpoint = collector.endpoint().1.replace("127.0.0.1", "collector.test");
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    let gateway = Gateway::start_with(&dns.key(), "otlp-dns", origin.address, &environment);
    get(&mut Raw::connect(gateway.address).await, "/o/1", "").await;
    until(|| !collector.spans().is_empty()).await;
    gateway.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_collector_loses_spans_and_is_logged_once() {
    let origin = Origin::with_response(OK).await;
    let endpoint = format!("http://{}", Origin::closed_port());
    let gateway = Gateway::start("absent", origin.address, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let mut client = Raw::connect(gateway.address).await;
    for count in [3, 6] {
        assert_eq!(get(&mut client, "/o/a", "").await.status(), 200);
        let line = format!("tidegate_trace_spans_total{{outcome=\"failed\"}} {count}");
        soon(async { while !gateway.has_metric(&line).await {} }).await;
    }
    let log = gateway.end();
    assert_eq!(log.matches("collector cannot be used").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn share_of_requests_is_sampled() {
    let (collector, origin) = (Collector::start().await, Origin::with_response(OK).await);
    let environment = [collector.endpoint(), ("OTEL_TRACES_SAMPLER_ARG", "0.1")];
    let gateway = Gateway::start("share", origin.address, &environment);
    let mut client = Raw::connect(gateway.address).await;
    for _ in 0..200 {
        get(&mut client, "/o/a", "").await;
    }
    gateway.end();
    let roots = collector.spans().iter().filter(|span| span.kind == "Server").count();
    assert!((18..=22).contains(&roots), "{roots} of 200");
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_serves_without_traces_if_a_setting_is_invalid() {
    let origin = Origin::with_response(OK).await;
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:secret@collector:4318")];
    let gateway = Gateway::start("invalid", origin.address, &environment);
    assert_eq!(get(&mut Raw::connect(gateway.address).await, "/o/a", "").await.status(), 200);
    assert!(!gateway.has_metric("tidegate_trace_spans_total{").await);
    gateway.end();
}
