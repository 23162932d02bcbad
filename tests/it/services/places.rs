//! When a service is asked: after limits and credentials, for proxies too, and by which rules.

use super::*;
use crate::support::process::{RuleFile, output};
use crate::support::wire::raw::Raw;

#[tokio::test]
async fn request_over_a_limit_is_not_asked_about() {
    let limit = "limits: [{ name: ip, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }]";
    let asked = Asked::start("", limit).await;
    assert_eq!(asked.statuses(["none", "none", "ann", "none"]).await, [401, 401, 429, 429]);
    assert_eq!(asked.service.requests().len(), 2);
}

#[tokio::test]
async fn service_and_credentials_must_both_allow() {
    let (service, upstream) = (start_service().await, start_upstream().await);
    let keys = RuleFile::new("service-keys", "good: { id: shop, tier: pro }\nfree: { id: one, tier: free }\n");
    let identities = format!("identities: {{ keys: {{ header: X-Key, file: '{}' }} }}\n", keys.path());
    let require = requirement(&service, "keys: { tier: pro }, pass: [x-user]");
    let gateway = TestGateway::start(&(identities.clone() + &rules(&upstream, &require, "")));
    let status = async |fields: &str| gateway.get("/", fields).await.status();
    assert_eq!(status("X-Key: good\r\nCookie: ann\r\n").await, 200);
    assert_eq!(status("X-Key: good\r\nCookie: none\r\n").await, 401);
    assert_eq!(service.requests().len(), 2);
    assert_eq!(status("X-Key: bad\r\nCookie: ann\r\n").await, 401);
    assert_eq!(status("X-Key: free\r\nCookie: ann\r\n").await, 403);
    assert_eq!(status("Cookie: ann\r\n").await, 401);
    assert_eq!(service.requests().len(), 2, "the credentials do not suffice");
    // With alternatives, a key makes the service superfluous.
    let either = format!("[keys, {}]", requirement(&service, "pass: [x-user]"));
    gateway.reload(&(identities + &rules(&upstream, &either, "")));
    assert_eq!(status("X-Key: good\r\nX-User: root\r\n").await, 200);
    assert_eq!((upstream.last_request().field("x-user"), service.requests().len()), (None, 2));
    assert_eq!((status("Cookie: ann\r\n").await, status("Cookie: none\r\n").await), (200, 401));
    assert_eq!(service.requests().len(), 4);
}

#[tokio::test]
async fn reload_changes_the_service() {
    let asked = Asked::start("", "").await;
    assert_eq!(asked.statuses(["ann"]).await, [200]);
    let other = Origin::with_response("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
    asked.gateway.reload(&rules(&asked.upstream, &requirement(&other, ""), ""));
    assert_eq!((asked.statuses(["ann"]).await, other.requests().len()), ([403], 1));
    asked.gateway.reload(&rules(&asked.upstream, "[]", "").replace("require: [], ", ""));
    assert_eq!(asked.statuses(["none"]).await, [200]);
}

#[tokio::test]
async fn authorization_for_a_proxy_asks_the_service() {
    let asked = Asked::start("pass: [x-user]", "").await;
    let ask = "  - { name: ask, match: { path: /_ask }, authorize: {} }\n";
    let rules = rules(&asked.upstream, &requirement(&asked.service, "pass: [x-user]"), "");
    let rules = rules.replace("routes: [{", &format!("routes:\n{ask}  - {{")).replace("}]\n", "}\n");
    asked.gateway.reload(&format!("clients: {{ trusted_proxies: [127.0.0.1] }}\n{rules}"));
    let fields = "X-Forwarded-Method: PUT\r\nX-Forwarded-Uri: /a?b\r\nX-Forwarded-Host: shop.example\r\n\
                  X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\n";
    let allowed = asked.gateway.get("/_ask", &format!("{fields}Cookie: ann\r\n")).await;
    assert_eq!((allowed.status(), allowed.field("x-user").as_deref()), (200, Some("ann")));
    let question = asked.service.last_request();
    let field = |name: &str| question.field(&format!("x-forwarded-{name}")).unwrap_or_default();
    assert_eq!(
        ["method", "uri", "host", "proto", "for"].map(field),
        ["PUT", "/a?b", "shop.example", "https", "192.0.2.7"]
    );
    let login = asked.gateway.get("/_ask", &format!("{fields}Cookie: login\r\n")).await;
    assert_eq!((login.status(), login.field("x-user")), (302, None));
    assert!(login.field("location").is_some() && asked.upstream.requests().is_empty());
}

/// Regression test: the service was asked about a host that the client chose, and not about the host of the route.
#[tokio::test]
async fn forwarded_host_of_a_client_is_not_asked_about() {
    let asked = Asked::start("", "").await;
    let ask = "  - { name: ask, match: { path: /_ask }, authorize: {} }\n";
    let rules = rules(&asked.upstream, &requirement(&asked.service, ""), "");
    let rules = rules.replace("routes: [{", &format!("routes:\n{ask}  - {{")).replace("}]\n", "}\n");
    asked.gateway.reload(&format!("clients: {{ trusted_proxies: [127.0.0.1] }}\n{rules}"));
    let sent = "X-Forwarded-Host: public.example\r\nCookie: ann\r\n";
    for (path, fields) in [("/_ask", "X-Original-Method: GET\r\nX-Original-URI: /a\r\n"), ("/a", "")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin.example\r\n{fields}{sent}\r\n");
        assert_eq!(asked.gateway.client().await.ask(request).await.status(), 200, "{path}");
        let question = asked.service.last_request();
        assert_eq!(question.field("x-forwarded-host").as_deref(), Some("admin.example"), "{path}");
    }
}

#[tokio::test]
async fn own_response_of_a_route_needs_a_permission() {
    let asked = Asked::start("", "").await;
    let rules = rules(&asked.upstream, &requirement(&asked.service, ""), "");
    asked.gateway.reload(&rules.replace("upstream: api", "respond: { status: 201 }"));
    assert_eq!(asked.statuses(["ann", "none"]).await, [201, 401]);
}

#[tokio::test]
async fn preflight_is_answered_without_the_service() {
    let asked = Asked::start("", "cors: { origins: ['https://app.example'] }").await;
    let preflight = "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n\
                     Access-Control-Request-Method: GET\r\n\r\n";
    assert_eq!(asked.gateway.client().await.ask(preflight).await.status(), 204);
    assert!(asked.service.requests().is_empty());
    let denied = asked.gateway.get("/", "Origin: https://app.example\r\n").await;
    assert_eq!(denied.status(), 401);
    assert_eq!(denied.field("access-control-allow-origin").as_deref(), Some("https://app.example"));
}

/// A client that waits for 100 sends its body only if the service allows the request.
#[tokio::test]
async fn denied_upload_is_not_requested() {
    let asked = Asked::start("", "").await;
    let head = |cookie: &str| {
        format!("PUT / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    };
    assert_eq!(asked.gateway.client().await.ask(head("none")).await.status(), 401);
    let mut client = asked.gateway.client().await;
    client.send(format!("{}hello", head("ann"))).await;
    while client.response(false).await.status() == 100 {}
    assert_eq!(asked.upstream.last_request().text(), "hello");
}

#[test]
fn explain_names_the_service_without_asking() {
    let rules = "listen: 127.0.0.1:0\nupstreams: { api: { targets: ['http://127.0.0.1:1'] } }\nroutes:\n  \
                 - { name: all, match: { path: /** }, upstream: api, require: { service: 'https://auth.test:9/check' } }\n";
    let file = RuleFile::new("service-explain", rules);
    let output = output(&["explain", "-c", file.path(), "GET", "http://a/"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("after the limits, `https://auth.test:9/check` must allow it"), "{text}");
}

#[test]
fn layer_rejects_a_service_in_its_rules() {
    let rules = "routes: [{ name: all, match: {}, require: { service: 'http://auth/' } }]";
    let error = tidegate::RateLimitLayer::from_yaml(rules).expect_err("an error").to_string();
    assert!(error.contains("a layer cannot ask a service"), "{error}");
}

#[tokio::test]
async fn upstream_of_the_service_is_listed() {
    let asked = Asked::start("cache: 90s, pass: [x-user]", "").await;
    assert_eq!(asked.statuses(["ann"]).await, [200]);
    let name = format!("http://{}", asked.service.address);
    let request = "GET /api/v1/upstreams HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let upstreams = Raw::connect(asked.gateway.admin).await.ask(request).await.text();
    assert!(upstreams.contains(&format!("\"{name}\"")), "{upstreams}");
    let config: serde_json::Value = serde_json::from_str(&asked.gateway.config().await).expect("JSON");
    let shown = serde_json::json!({
        "service": format!("{name}/check?zone=a"), "ca": null, "headers": ["authorization", "cookie"], "pass": ["x-user"],
        "cache_ms": 90_000, "timeout_ms": 1_000, "on_failure": "deny",
    });
    assert_eq!(config["routes"][0]["require"], serde_json::json!([shown]));
}
