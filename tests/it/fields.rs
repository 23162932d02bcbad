//! Request fields that the gateway removes, rejects or rewrites.

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Starts a gateway in front of this origin, with further rules, and a limit of one request per client.
fn gateway(origin: &Origin, more: &str, client: &str) -> TestGateway {
    TestGateway::start(&format!(
        "{more}
upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes:
  - name: all
    match: {{ path: /** }}
    upstream: api
    limits:
      - {{ name: own, mode: PER_CLIENT, client: '{client}', rate: 1, interval: 1h }}
",
        origin.address
    ))
}

async fn ask(gateway: &TestGateway, fields: &str) -> Message {
    gateway.get("/", fields).await
}

#[tokio::test]
async fn connection_must_not_name_the_client_field() {
    let origin = Origin::with_response(OK).await;
    let gateway = gateway(&origin, "", "header:X-Api-Key");
    for option in ["X-Api-Key", "close, x-api-key", "keep-alive\r\nConnection: X-API-KEY"] {
        for key in 0..3 {
            let refused = ask(&gateway, &format!("X-Api-Key: {key}\r\nConnection: {option}\r\n")).await;
            assert_eq!(refused.status(), 400, "{option}: a new bucket for each invented key");
        }
    }
    assert!(origin.requests().is_empty());
    assert_eq!(gateway.counter(r#"tidegate_rejected_total{cause="connection_option"}"#).await, 9);
    assert_eq!(ask(&gateway, "X-Api-Key: 0\r\nConnection: X-Other\r\nX-Other: 1\r\n").await.status(), 200);
    assert_eq!(origin.last_request().field("x-other"), None);
}

#[tokio::test]
async fn connection_must_not_name_protected_fields() {
    let origin = Origin::with_response(OK).await;
    let gateway = gateway(&origin, "", "ip");
    for name in ["Host", "Content-Length", "Transfer-Encoding", "Authorization", "Cookie", "X-Forwarded-For", "Via"] {
        assert_eq!(ask(&gateway, &format!("Connection: {name}\r\n")).await.status(), 400, "{name}");
    }
    assert!(origin.requests().is_empty());
}

/// Of two members with one name, a client keeps the last.
#[tokio::test]
async fn equal_limit_names_of_a_chain_are_numbered() {
    let origin = Origin::with_response(OK).await;
    let third = gateway(&origin, "", "ip");
    let through = |next: &TestGateway, client: &str| {
        let rules = format!(
            "upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: api, concurrency: {{ max: 9, per_client: 4 }}, limits: [
  {{ name: own, mode: PER_CLIENT, client: '{client}', rate: 5, interval: 1h }}] }}]",
            next.address
        );
        TestGateway::start(&rules)
    };
    let second = through(&third, "ip");
    let first = through(&second, "ip");
    let fields = async || {
        let response = ask(&first, "").await;
        (response.status(), response.field("ratelimit-policy"), response.field("ratelimit"))
    };
    let slots = "\"concurrency\";q=4;qu=\"concurrent-requests\" | ";
    let of_two = "\"own.2\";q=5;w=3600 | \"concurrency.2\";q=4;qu=\"concurrent-requests\"";
    let policy = format!("\"own\";q=5;w=3600 | {slots}{of_two} | \"own.3\";q=1;w=3600");
    let (status, policies, limits) = fields().await;
    assert_eq!((status, policies.as_deref()), (200, Some(&*policy)));
    let limits = limits.expect("a field");
    let names: Vec<_> = limits.split(" | ").filter_map(|member| member.split(';').next()).collect();
    assert_eq!(names, ["\"own\"", "\"concurrency\"", "\"own.2\"", "\"concurrency.2\"", "\"own.3\""], "{limits}");
    assert_eq!(fields().await.0, 429, "of the third");
    // A rejection by the second gateway has the same names.
    assert_eq!(second.get("/", "").await.status(), 429);
    for _ in 0..2 {
        assert_eq!(second.get("/", "").await.status(), 429);
    }
    let (status, policies, _) = fields().await;
    assert_eq!(status, 429);
    assert_eq!(policies, Some(format!("\"own\";q=5;w=3600 | {slots}{of_two}")));
}

const TRUSTING: &str = "clients: { trusted_proxies: [127.0.0.0/8] }\n";

#[tokio::test]
async fn client_field_is_accepted_only_from_trusted_proxies() {
    let origin = Origin::with_response(OK).await;
    // Loopback is not in 10.0.0.0/8, so the client of this test is not trusted.
    let other_network = "clients: { trusted_proxies: [10.0.0.0/8] }\n";
    let untrusting = gateway(&origin, other_network, "header:X-Real-IP");
    for name in ["X-Real-IP", "x_real_ip", "X.Real.IP"] {
        assert_eq!(ask(&untrusting, &format!("{name}: 192.0.2.1\r\n")).await.status(), 400, "{name} was accepted");
    }
    assert!(origin.requests().is_empty());
    let trusting = gateway(&origin, TRUSTING, "header:X-Real-IP");
    let mut statuses = Vec::new();
    for address in [1, 2, 1] {
        statuses.push(ask(&trusting, &format!("X-Real-IP: 192.0.2.{address}\r\n")).await.status());
    }
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(origin.last_request().field("x-real-ip").as_deref(), Some("192.0.2.2"));
}

/// Returns which of these fields arrive at the origin.
async fn arriving(more: &str, names: &[&str]) -> Vec<String> {
    let origin = Origin::with_response(OK).await;
    let gateway = gateway(&origin, more, "ip");
    let fields: String = names.iter().map(|name| format!("{name}: spoofed\r\n")).collect();
    assert_eq!(ask(&gateway, &fields).await.status(), 200);
    let spoofed = origin.last_request().fields.into_iter().filter(|(_, value)| value.contains("spoofed"));
    let mut names: Vec<_> = spoofed.map(|(name, _)| name).collect();
    names.sort();
    names
}

const FORWARDING_FIELDS: [&str; 16] = [
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Client-Cert",
    "X-Real-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Fastly-Client-IP",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-HTTP-Method-Override",
    "Client-Cert",
    "Proxy",
];

#[tokio::test]
async fn forwarding_fields_arrive_from_trusted_proxies_only() {
    assert_eq!(arriving("", &FORWARDING_FIELDS).await, [""; 0]);
    assert_eq!(arriving(TRUSTING, &FORWARDING_FIELDS).await.len(), FORWARDING_FIELDS.len());
}

#[tokio::test]
async fn list_of_removed_fields_is_configurable() {
    let names = ["X-Real-IP", "X-HTTP-Method-Override", "X-Internal-User", "X-Forwarded-For"];
    let list = "requests: { strip: [default, X-Internal-*], keep: [X-HTTP-Method-Override] }";
    assert_eq!(arriving(list, &names).await, ["x-http-method-override"]);
    // The gateway always replaces `X-Forwarded-For`.
    let none = "requests: { strip: [] }";
    assert_eq!(arriving(none, &names).await, ["x-http-method-override", "x-internal-user", "x-real-ip"]);
}

#[tokio::test]
async fn ambiguous_field_names_are_dropped_rejected_or_kept() {
    let names = ["X_Own", "X_Forwarded_For", "Content_Length", "x.own"];
    assert_eq!(arriving("", &names).await, [""; 0]);
    assert_eq!(arriving(TRUSTING, &names).await, [""; 0], "proxies may forward unknown fields of clients");
    assert_eq!(arriving("requests: { underscores: keep }", &names).await, ["x.own", "x_own"]);
    let origin = Origin::with_response(OK).await;
    let rejecting = gateway(&origin, "requests: { underscores: reject }", "ip");
    assert_eq!(ask(&rejecting, "X_Own: 1\r\n").await.status(), 400);
    assert_eq!(rejecting.counter(r#"tidegate_rejected_total{cause="field_name"}"#).await, 1);
    assert!(origin.requests().is_empty());
}
