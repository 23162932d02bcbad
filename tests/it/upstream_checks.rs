//! Active health checks and drains of targets, with real sockets.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::admin_api::{Admin, TOKEN};
use crate::support::gateway::TestGateway;
use crate::support::tls::{Authority, listener};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BROKEN: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// An origin whose health check can fail. Its other responses have the status 200.
pub(crate) struct Target {
    pub(crate) origin: Origin,
    is_healthy: Arc<AtomicBool>,
}

impl Target {
    pub(crate) async fn start() -> Self {
        Self::start_with(false).await
    }

    /// Starts an origin that also fails other requests than checks while it is not healthy.
    pub(crate) async fn start_failing() -> Self {
        Self::start_with(true).await
    }

    async fn start_with(fails_requests: bool) -> Self {
        let is_healthy = Arc::new(AtomicBool::new(true));
        let healthy = Arc::clone(&is_healthy);
        let origin = Origin::start(move |mut conn: OriginConnection| {
            let healthy = Arc::clone(&healthy);
            async move {
                while let Some(request) = conn.request().await {
                    let is_check = fails_requests || request.start.contains("/healthz");
                    conn.raw.send(if is_check && !healthy.load(SeqCst) { BROKEN } else { OK }).await;
                }
            }
        });
        Self { origin: origin.await, is_healthy }
    }

    pub(crate) fn set_healthy(&self, is_healthy: bool) {
        self.is_healthy.store(is_healthy, SeqCst);
    }

    /// Returns the number of requests other than checks.
    pub(crate) fn requests(&self) -> usize {
        self.origin.requests().iter().filter(|request| !request.start.contains("/healthz")).count()
    }
}

/// Returns rules with two routes to these targets.
pub(crate) fn rules(targets: &[&Origin], health: &str) -> String {
    let targets: Vec<_> = targets.iter().map(|origin| format!("'http://{}'", origin.address)).collect();
    format!(
        "upstreams: {{ api: {{ targets: [{}], health: {health} }} }}
routes:
  - {{ name: one, match: {{ path: /one }}, upstream: api }}
  - name: rest
    match: {{}}
    upstream: api
    limits: [{{ name: all, mode: OVERALL, rate: 1000, interval: 1h }}]",
        targets.join(", ")
    )
}

fn with_another_route(rules: &str) -> String {
    rules.replace("  - name: rest", "  - { name: more, match: { path: /more }, upstream: api }\n  - name: rest")
}

pub(crate) async fn api(gateway: &TestGateway, path: &str) -> Value {
    let request = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let text = Raw::connect(gateway.admin).await.ask(request).await.text();
    serde_json::from_str(&text).expect("JSON")
}

/// Returns `true` if a target has this state after a check with this result.
fn has(target: &Value, state: &str, last_result: &str) -> bool {
    target["state"] == state && target["checks"]["last_result"] == last_result
}

/// Waits until a target is as `condition` demands. Returns its JSON.
pub(crate) async fn until(gateway: &TestGateway, position: usize, condition: impl Fn(&Value) -> bool) -> Value {
    soon(async {
        loop {
            let upstreams = api(gateway, "upstreams").await;
            let target = &upstreams[0]["targets"][position];
            if condition(target) {
                return target.clone();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_that_fails_its_checks_gets_no_requests() {
    let (good, bad) = (Target::start().await, Target::start().await);
    bad.set_healthy(false);
    let health = "{ path: '/healthz?a=1', interval: 2s, timeout: 2s, fall: 2 }";
    let gateway = TestGateway::start(&rules(&[&good.origin, &bad.origin], health));
    let failed = until(&gateway, 1, |target| has(target, "failed", "status 503")).await;
    assert!(failed["checks"]["failed"].as_u64() >= Some(2), "{failed}");
    let check = bad.origin.requests().swap_remove(0);
    assert_eq!(check.start, "GET /healthz?a=1 HTTP/1.1");
    assert_eq!(check.field("host"), Some(bad.origin.address.to_string()));
    assert_eq!(check.field("user-agent"), Some(format!("tidegate/{} health", env!("CARGO_PKG_VERSION"))));
    let metrics = gateway.admin_get("/metrics").await.text();
    let series =
        format!("tidegate_upstream_target_usable{{upstream=\"api\",target=\"http://{}\"}}", bad.origin.address);
    assert!(metrics.contains(&format!("{series} 0\n")), "{metrics}");
    for _ in 0..10 {
        assert_eq!(gateway.get("/", "").await.status(), 200);
    }
    assert_eq!((good.requests(), bad.requests()), (10, 0));

    bad.set_healthy(true);
    until(&gateway, 1, |target| target["state"] == "usable").await;
    assert!(gateway.admin_get("/metrics").await.text().contains(&format!("{series} 1\n")));
    soon(async {
        while bad.requests() == 0 {
            assert_eq!(gateway.get("/", "").await.status(), 200);
        }
    })
    .await;
}

#[tokio::test]
async fn upstream_whose_targets_all_fail_is_unavailable() {
    let target = Target::start().await;
    target.set_healthy(false);
    let health = "{ path: /healthz, interval: 100ms, fall: 1, panic: 0% }";
    let gateway = TestGateway::start(&rules(&[&target.origin], health));
    until(&gateway, 0, |target| target["state"] == "failed").await;
    let response = gateway.get("/", "").await;
    assert_eq!((response.status(), response.field("retry-after").is_some()), (503, true), "{}", response.text());
    let problem: Value = serde_json::from_str(&response.text()).expect("JSON");
    assert_eq!((&problem["reason"], &problem["upstream"]), (&json!("no_usable_target"), &json!("api")), "{problem}");
    assert_eq!(target.requests(), 0);
    let client = api(&gateway, "limits/rest/all/client").await;
    assert_eq!(client["used"], 0, "the permit was given back");
}

#[tokio::test]
async fn ejected_target_is_shown_with_the_failure() {
    let (good, closed) = (Target::start().await, Origin::closed_port());
    let rules = format!(
        "upstreams: {{ api: {{ targets: ['http://{}', {{ url: 'http://{closed}', weight: 3 }}] }} }}
routes: [{{ name: all, match: {{}}, upstream: api }}]",
        good.origin.address
    );
    let gateway = TestGateway::start(&rules);
    let ejected = soon(async {
        loop {
            assert_eq!(gateway.get("/", "").await.status(), 200);
            let target = until(&gateway, 1, |_| true).await;
            if target["state"] == "ejected" {
                return target;
            }
        }
    })
    .await;
    assert!(ejected["ejected_because"].as_str().is_some_and(|why| why.contains("refused")), "{ejected}");
    assert!(ejected["ejected_until"].is_string() && ejected["weight"] == 3, "{ejected}");
    let series = format!("tidegate_upstream_target_usable{{upstream=\"api\",target=\"http://{closed}\"}} 0\n");
    assert!(gateway.admin_get("/metrics").await.text().contains(&series));
}

/// Two workers and two routes use the target; the reload adds a route.
#[tokio::test]
async fn one_prober_checks_a_target_of_the_process() {
    let target = Target::start().await;
    target.set_healthy(false);
    let rules = rules(&[&target.origin], "{ path: /healthz, interval: 1h, fall: 1 }");
    let gateway = TestGateway::start(&rules);
    until(&gateway, 0, |target| target["state"] == "failed").await;
    gateway.reload(&with_another_route(&rules));
    let kept = until(&gateway, 0, |_| true).await;
    assert_eq!((&kept["state"], &kept["checks"]["run"]), (&json!("failed"), &json!(1)), "{kept}");
    assert_eq!(target.origin.connections(), 1);
    gateway.reload(&rules.replace(", health: { path: /healthz, interval: 1h, fall: 1 }", ""));
    let unchecked = until(&gateway, 0, |target| target["state"] == "usable").await;
    assert_eq!(unchecked["checks"], Value::Null);
    assert_eq!(gateway.get("/", "").await.status(), 200);
}

#[tokio::test]
async fn hung_check_does_not_overlap_with_the_next() {
    let overlaps = Arc::new(AtomicUsize::new(0));
    let (overlapping, last) = (Arc::clone(&overlaps), parking_lot::Mutex::new(None));
    let origin = Origin::start(move |conn: OriginConnection| {
        let socket = conn.raw.stream.into_std().expect("a socket");
        if last.lock().replace(socket).is_some_and(is_open) {
            overlapping.fetch_add(1, SeqCst);
        }
        async {}
    })
    .await;
    let gateway = TestGateway::start(&rules(&[&origin], "{ path: /, interval: 300ms, timeout: 50ms, fall: 2 }"));
    let failed = until(&gateway, 0, |target| target["state"] == "failed").await;
    let result = failed["checks"]["last_result"].as_str().expect("a text");
    assert!(result.ends_with("no response within 50ms"), "{result}");
    assert!(origin.connections() > 1);
    assert_eq!(overlaps.load(SeqCst), 0);
}

/// Returns `true` if the peer has not closed the connection of this non-blocking socket. Reads the socket directly: the
/// runtime may not have noticed the end yet.
fn is_open(mut socket: std::net::TcpStream) -> bool {
    let mut buffer = [0; 1024];
    while let Ok(1..) = socket.read(&mut buffer) {}
    socket.read(&mut buffer).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test]
async fn refused_connection_fails_a_check() {
    let closed = Origin::closed_port();
    let rules = format!(
        "upstreams: {{ api: {{ targets: ['http://{closed}'], health: {{ path: /, interval: 100ms, fall: 1 }} }} }}
routes: [{{ name: all, match: {{}}, upstream: api }}]"
    );
    let gateway = TestGateway::start(&rules);
    let is_refused =
        |target: &Value| target["checks"]["last_result"].as_str().is_some_and(|text| text.contains("refused"));
    until(&gateway, 0, |target| target["state"] == "failed" && is_refused(target)).await;
}

/// Starts a gRPC server whose health is `status`, and counts its `open` connections. Records the requested services.
async fn grpc_server(
    status: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
) -> (std::net::SocketAddr, Arc<parking_lot::Mutex<Vec<Bytes>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let (address, messages) = (listener.local_addr().expect("an address"), Arc::default());
    let recorded: Arc<parking_lot::Mutex<Vec<Bytes>>> = Arc::clone(&messages);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (status, recorded, open) = (Arc::clone(&status), Arc::clone(&recorded), Arc::clone(&open));
            tokio::spawn(async move {
                open.fetch_add(1, SeqCst);
                let mut connection = h2::server::handshake(stream).await.expect("a handshake");
                while let Some(Ok((mut request, mut respond))) = connection.accept().await {
                    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                    let (status, recorded) = (Arc::clone(&status), Arc::clone(&recorded));
                    tokio::spawn(async move {
                        let message = request.body_mut().data().await.expect("a message").expect("a message");
                        recorded.lock().push(message);
                        let head =
                            Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
                        let mut stream = respond.send_response(head, false).expect("sent");
                        let status = u8::try_from(status.load(SeqCst)).expect("a small number");
                        stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false).expect("sent");
                        let trailers = HeaderMap::from_iter([(
                            "grpc-status".parse().expect("a name"),
                            "0".parse().expect("a value"),
                        )]);
                        stream.send_trailers(trailers).expect("sent");
                    });
                }
                open.fetch_sub(1, SeqCst);
            });
        }
    });
    (address, messages)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_check_passes_while_the_service_is_serving() {
    let status = Arc::new(AtomicUsize::new(1));
    let open = Arc::default();
    let (address, messages) = grpc_server(Arc::clone(&status), Arc::clone(&open)).await;
    let rules = format!(
        "upstreams: {{ api: {{ targets: ['http://{address}'], health: {{ grpc: a.B, interval: 1s, fall: 1, rise: 1 }} }} }}
routes: [{{ name: all, match: {{}}, upstream: api }}]"
    );
    let gateway = TestGateway::start(&rules);
    until(&gateway, 0, |target| has(target, "usable", "SERVING")).await;
    assert_eq!(messages.lock()[0], b"\0\0\0\0\x05\x0a\x03a.B"[..]);
    status.store(2, SeqCst);
    until(&gateway, 0, |target| has(target, "failed", "the service is NOT_SERVING")).await;
    status.store(1, SeqCst);
    until(&gateway, 0, |target| target["state"] == "usable").await;
    assert!(messages.lock().len() >= 3);
    soon(async {
        while open.load(SeqCst) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

const AUTHORIZED: &str = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_drains_a_target_and_ends_the_drain() {
    assert!(AUTHORIZED.contains(TOKEN));
    let (one, two) = (Target::start().await, Target::start().await);
    let admin = Admin::with_tokens("");
    let targets = rules(&[&one.origin, &two.origin], "{ path: /healthz, interval: 2s, timeout: 2s }");
    admin.reload(&targets);
    let path =
        |origin: &Origin| format!("upstreams/api/targets/{}/drain", origin.address.to_string().replace(':', "%3A"));
    let (first, second) = (path(&one.origin), path(&two.origin));
    let post = async |path: &str, fields: &str, body: &str| admin.send("POST", path, fields, body).await;
    assert_eq!(post(&first, "", "").await.0, 401);
    for (path, body, status) in [
        ("upstreams/none/targets/a/drain", "", 404),
        ("upstreams/api/targets/10.9.9.9%3A1/drain", "", 404),
        (first.as_str(), "[]", 400),
        (&first, r#"{ "for": "0s" }"#, 400),
        (&first, r#"{ "for": "31d" }"#, 400),
        (&first, r#"{ "other": 1 }"#, 400),
    ] {
        let (answered, problem) = post(path, AUTHORIZED, body).await;
        assert_eq!(answered, status, "{path} {body} {problem}");
    }
    let (status, drained) = post(&first, AUTHORIZED, r#"{ "for": "10m", "reason": "an upgrade" }"#).await;
    assert_eq!((status, &drained["scope"], &drained["in_flight"]), (200, &json!("process"), &json!(0)), "{drained}");
    let name = format!("http://{}", one.origin.address);
    assert_eq!(drained["targets"], json!([name]));
    for _ in 0..6 {
        assert_eq!(admin.request("/", "").await.status(), 200);
    }
    assert_eq!((one.requests(), two.requests()), (0, 6));
    let (_, upstreams) = admin.api("GET", "upstreams", "").await;
    let target = &upstreams[0]["targets"][0];
    assert_eq!(target["state"], "draining");
    assert!(target["draining_until"].is_string(), "{target}");

    let (status, problem) = post(&second, AUTHORIZED, "").await;
    assert_eq!(status, 409, "{problem}");
    admin.reload(&with_another_route(&targets));
    assert_eq!(admin.api("GET", "upstreams", "").await.1[0]["targets"][0]["state"], "draining", "a reload keeps it");

    let token = admin.folder.join("token");
    std::fs::write(&token, TOKEN).expect("written");
    let target = one.origin.address.to_string();
    let (code, out, errors) = admin.run(&["drain", "api", &target, "--undo"], Some(&token)).await;
    assert_eq!((code, out.contains("not draining")), (0, true), "{out}{errors}");
    let (code, out, errors) = admin.run(&["drain", "api", &target, "--for", "1s"], Some(&token)).await;
    assert_eq!((code, out.contains("this gateway process only")), (0, true), "{out}{errors}");
    soon(async {
        while admin.api("GET", "upstreams", "").await.1[0]["targets"][0]["state"] != "usable" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (_, audit) = admin.api("GET", "audit", "").await;
    let entries = audit.as_array().expect("a list").iter().rev();
    let entries: Vec<_> = entries.map(|entry| ["action", "target", "outcome"].map(|key| text(&entry[key]))).collect();
    let [first, second] = [name, format!("http://{}", two.origin.address)];
    assert_eq!(entries.len(), 4, "{audit}");
    assert_eq!(entries[0], ["drain", &format!("api: {first}"), "done"]);
    assert_eq!(entries[1][..2], ["drain", &format!("api: {second}")]);
    assert!(entries[1][2].contains("force"));
    assert_eq!(entries[2], ["end_drain", &format!("api: {first}"), "done"]);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The target is another gateway, which serves TLS, HTTP/1.1 and HTTP/2.
#[tokio::test]
async fn check_uses_the_protocol_and_tls_of_the_upstream() {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    let echo = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes: [{ name: all, match: { path: /healthz }, upstream: echo }]";
    let secure = TestGateway::start_at(&listener(&authority, &["api"], ""), echo);
    let plain = TestGateway::start(echo);
    let tls = format!("tls: {{ ca: {}, server_name: api.example }}, ", authority.path("ca.pem"));
    for (target, more, expected) in [
        (format!("https://{}", secure.address), tls.clone(), "status 200"),
        (format!("https://{}", secure.address), format!("{tls}protocol: http1, "), "status 200"),
        (format!("https://{}", secure.address), format!("{tls}protocol: http2, "), "status 200"),
        (format!("https://{}", secure.address), tls.replace("api.example", "other.example"), "tls: "),
        (format!("http://{}", plain.address), "protocol: http2, ".to_owned(), "status 200"),
    ] {
        let rules = format!(
            "upstreams: {{ api: {{ targets: ['{target}'], {more}health: {{ path: /healthz, interval: 1h, timeout: 5s }} }} }}
routes: [{{ name: all, match: {{}}, upstream: api }}]"
        );
        let gateway = TestGateway::start(&rules);
        let checked = until(&gateway, 0, |target| target["checks"]["run"] == 1).await;
        let result = checked["checks"]["last_result"].as_str().expect("a text");
        assert!(result.starts_with(expected), "{more}: {result}");
    }
}
