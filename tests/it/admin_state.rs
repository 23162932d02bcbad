//! The admin API: the state of a gateway, explanations of requests, and the OpenAPI document.

use serde_json::{Value, json};
use tidegate::{Gateway, ListenAddress};

use crate::admin_api::Admin;
use crate::support::pages;
use crate::support::redis::RedisServer;
use crate::support::wire::raw::{Message, Raw};

/// Sends a request with a body to the admin listener.
async fn send(admin: &Admin, method: &str, path: &str, fields: &str, body: &str) -> Message {
    let address = admin.gateway().admin_address().and_then(ListenAddress::tcp).expect("an address");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{fields}\r\n");
    let mut connection = Raw::connect(address).await;
    connection.send(head + body).await;
    connection.response(method == "HEAD").await
}

async fn explain(admin: &Admin, body: &Value) -> (u16, Value) {
    let json = "Content-Type: application/json\r\n";
    let response = send(admin, "POST", "/api/v1/explain", json, &body.to_string()).await;
    (response.status(), serde_json::from_str(&response.text()).expect("JSON"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_upstreams_describe_the_gateway() {
    let admin = Admin::with_tokens("");
    assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), 200);
    let (code, status) = admin.api("GET", "status", "").await;
    assert_eq!((code, &status["version"], &status["ready"]), (200, &json!(env!("CARGO_PKG_VERSION")), &json!(true)));
    assert_eq!((&status["workers"], &status["draining"]), (&json!(1), &json!(false)));
    assert_eq!((&status["config"]["limits"], &status["config"]["errors"]), (&json!(3), &json!(0)));
    let store = json!({
        "kind": "memory", "address": "memory", "up": true, "cause": null, "latency_ms": null, "open_breakers": null,
        "gateways": null, "owed": null,
    });
    assert_eq!(status["store"], store);
    let (_, upstreams) = admin.api("GET", "upstreams", "").await;
    let target = json!({
        "address": "builtin:echo", "resolved": null, "tls": false, "state": "usable", "draining_until": null,
        "ejected_until": null, "ejected_because": null, "weight": 1, "in_flight": 0, "in_use": 0, "idle": 0,
        "attempts": { "ok": 1 }, "checks": null, "failing": null,
    });
    assert_eq!((&upstreams[0]["name"], &upstreams[0]["targets"]), (&json!("echo"), &json!([target])));
    assert_eq!(upstreams[0]["requests"]["answered"], 1);
    let (code, out, _) = admin.run(&["upstreams"], None).await;
    let row: Vec<&str> = out.lines().nth(1).expect("a target").split_whitespace().collect();
    assert_eq!(
        (code, row.as_slice()),
        (0, &["echo", "builtin:echo", "usable", "1", "0", "1", "0", "-", "-"][..]),
        "{out}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_the_store_and_its_outage() {
    let Some(redis) = RedisServer::start() else { return };
    let admin = Admin::with_tokens(&format!("store: {}\n", redis.rule()));
    let (_, status) = admin.api("GET", "status", "").await;
    let store = &status["store"];
    assert_eq!((&store["kind"], &store["up"], &store["open_breakers"]), (&json!("redis"), &json!(true), &json!(0)));
    assert!(store["latency_ms"].as_f64().is_some_and(|millis| millis > 0.0), "{store}");
    drop(redis);
    crate::support::wire::soon(async {
        while admin.api("GET", "status", "").await.1["store"]["cause"].is_null() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (code, out, _) = admin.run(&["status"], None).await;
    assert_eq!(
        (code, out.contains("state        down\n"), out.contains("does not decide: ")),
        (1, true, true),
        "{out}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_target_is_shown_with_its_error() {
    let admin = Admin::with_tokens("");
    let rules = "listen: 127.0.0.1:0
upstreams: { gone: { targets: ['http://127.0.0.1:1'], retry: off } }
routes: [{ name: all, match: {}, upstream: gone }]";
    let config = Gateway::parse_config(rules).expect("rules");
    admin.gateway().reload(config).expect("reloaded");
    assert_eq!(admin.request("/", "").await.status(), 502);
    let (_, upstreams) = admin.api("GET", "upstreams", "").await;
    let target = &upstreams[0]["targets"][0];
    assert_eq!((&target["attempts"], &target["failing"]["failures"]), (&json!({ "connect_failed": 1 }), &json!(1)));
    assert!(target["failing"]["last_error"].as_str().is_some_and(|error| error.contains("refused")), "{target}");
    assert_eq!(upstreams[0]["requests"]["unreachable"], 1);
}

async fn explains_without_a_charge(admin: &Admin) {
    assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), 200);
    let body = json!({ "method": "GET", "url": "http://a.example/?a=1", "headers": { "X-Key": "k" } });
    for _ in 0..2 {
        let (status, explained) = explain(admin, &body).await;
        assert_eq!((status, &explained["admitted"]), (200, &json!(true)), "{explained}");
        let limit = &explained["limits"][0];
        let shown = ["limit", "check", "cost", "remaining", "override"].map(|key| limit[key].clone());
        assert_eq!(shown, [json!("own"), json!("charge"), json!(1), json!(1), Value::Null]);
        let (_, state) = admin.api("GET", "limits/rest/own/client?value=k", "").await;
        assert_eq!(limit["client"], state["client"]);
    }
    assert_eq!(admin.request("/", "X-Key: k\r\n").await.status(), 200, "explanations took no permit");
    let (_, explained) = explain(admin, &body).await;
    assert_eq!((&explained["admitted"], &explained["limits"][0]["remaining"]), (&json!(false), &json!(0)));
    assert!(explained["limits"][0]["next_permit_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{explained}");
    let offline = explained["text"].as_str().expect("a text").split("\nnow: not admitted\n").next().expect("a text");
    assert!(
        offline.starts_with("GET http://a.example/?a=1\n") && offline.contains("\nroute `rest`, to upstream `echo`\n"),
        "{offline}"
    );
    let arguments = ["explain", "--live", "GET", "http://a.example/?a=1", "-H", "X-Key: k"];
    let (code, out, errors) = admin.run(&arguments, None).await;
    assert_eq!((code, out.contains("0 permits remain, grants this request at 20")), (1, true), "{out}{errors}");
    assert!(!out.contains("\"k\""), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_in_memory_charges_nothing() {
    explains_without_a_charge(&Admin::with_tokens("")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_in_redis_charges_nothing() {
    let Some(redis) = RedisServer::start() else { return };
    explains_without_a_charge(&Admin::with_tokens(&format!("store: {}\n", redis.rule()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_shows_why_other_routes_do_not_match() {
    let admin = Admin::with_tokens("clients: { trusted_proxies: [10.0.0.1] }\n");
    let headers = json!({ "X-Forwarded-For": ["6.6.6.6", "203.0.113.9"], "X_Odd": "1" });
    let body = json!({ "method": "GET", "url": "http://A.example/x/../b", "peer": "10.0.0.1", "headers": headers });
    let (_, explained) = explain(&admin, &body).await;
    assert_eq!(explained["client"], json!({ "address": "203.0.113.9", "proxies": ["10.0.0.1"], "invalid": null }));
    let request = json!({
        "method": "GET", "host": "a.example", "path": "/b", "forwarded_path": "/b", "removed": ["x_odd"],
    });
    assert_eq!((&explained["request"], &explained["route"]["name"]), (&request, &json!("rest")));
    assert_eq!(explained["limits"][1]["reason"], "client `[query:a, host]` is missing");
    let (_, early) = explain(&admin, &json!({ "method": "GET", "url": "/" })).await;
    let reason = "request has no host: write the target as http://host/path, or add the field `host`";
    assert_eq!((&early["status"], &early["reason"]), (&json!(400), &json!(reason)));
    assert_eq!((&early["admitted"], &early["route"], &early["limits"]), (&json!(false), &Value::Null, &json!([])));
}

#[tokio::test]
async fn each_error_is_a_problem() {
    let admin = Admin::with_tokens("");
    let json = "Content-Type: application/json\r\n";
    let long = format!("{{\"method\": \"{}\"}}", "x".repeat(70_000));
    for (method, path, fields, body, expected) in [
        ("POST", "/api/v1/explain", json, "{", 400),
        ("POST", "/api/v1/explain", json, "{\"method\": \"GET\"}", 422),
        ("POST", "/api/v1/explain", json, "{\"method\": \"G T\", \"url\": \"/\"}", 400),
        ("POST", "/api/v1/explain", "", "{}", 415),
        ("POST", "/api/v1/explain", "Content-Type: text/plain\r\n", "{}", 415),
        ("POST", "/api/v1/explain", json, long.as_str(), 413),
        ("GET", "/api/v1/explain", "", "", 405),
        ("OPTIONS", "/api/v1/status", "", "", 405),
        ("DELETE", "/metrics", "", "", 405),
        ("GET", "/api/v1/limits/%ff/x/client", "", "", 400),
        ("GET", "/api/v1/config", "If-None-Match: abc\r\n", "", 400),
        ("GET", "/api/v1/none", "", "", 404),
        ("GET", "/none", "", "", 404),
    ] {
        let response = send(&admin, method, path, fields, body).await;
        let case = format!("{method} {path} {}", response.text());
        assert_eq!(response.status(), expected, "{case}");
        assert_eq!(response.field("content-type").as_deref(), Some("application/problem+json"), "{case}");
        let problem: Value = serde_json::from_str(&response.text()).expect("JSON");
        assert_eq!((&problem["type"], &problem["status"]), (&json!("about:blank"), &json!(expected)), "{case}");
        let is_text = |key: &str| problem[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("title") && is_text("detail"), "{case}");
        assert_eq!(response.field("allow").is_some(), expected == 405, "{case}");
    }
    let head = send(&admin, "HEAD", "/api/v1/status", "", "").await;
    assert_eq!((head.status(), head.field("content-type").as_deref()), (200, Some("application/json")));
}

/// The router has only routes that `routes!` adds, which therefore are in the document.
#[test]
fn document_lists_each_route() {
    for entry in std::fs::read_dir(pages::root().join("src/admin")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if !is_source || path.ends_with("tests.rs") || path.ends_with("openapi.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let is_getter = |rest: &str| rest.starts_with(')');
        let adds_none = text.split(".route(").skip(1).all(is_getter);
        assert!(adds_none, "{}: add routes with `.routes(routes!(...))`", path.display());
    }
}

/// Generators of clients name their functions by these ids.
#[tokio::test]
async fn operation_ids_of_the_document_are_unique() {
    let admin = Admin::with_tokens("");
    let response = send(&admin, "GET", "/api/openapi.json", "", "").await;
    let document: Value = serde_json::from_str(&response.text()).expect("JSON");
    let mut seen = std::collections::HashSet::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let id = operation["operationId"].as_str().unwrap_or_default();
            assert!(!id.is_empty() && seen.insert(id), "{method} {path} has the id `{id}`");
        }
    }
    let id = |path: &str| document["paths"][path]["get"]["operationId"].clone();
    let ids = ["routes", "limits", "upstreams", "talkers"].map(|name| id(&format!("/api/v1/{name}")));
    assert_eq!(ids, ["routes", "limits", "upstreams", "talkers"].map(Value::from));
}

#[tokio::test]
async fn router_serves_each_operation_of_the_document() {
    let admin = Admin::with_tokens("");
    let response = send(&admin, "GET", "/api/openapi.json", "", "").await;
    let document: Value = serde_json::from_str(&response.text()).expect("JSON");
    assert_eq!((response.status(), &document["openapi"]), (200, &json!("3.1.0")));
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.contains_key("/api/v1/explain") && paths.contains_key("/readyz"), "{paths:?}");
    // The response of `events` has no end; `dashboard` tests it.
    for (path, operations) in paths.iter().filter(|(path, _)| !path.ends_with("/events")) {
        for (method, operation) in operations.as_object().expect("operations") {
            let target = path.replace("{route}", "rest").replace("{limit}", "own");
            let response = send(&admin, &method.to_uppercase(), &target, "", "").await;
            let is_missing = response.status() == 405 || response.text().contains("no such path");
            assert!(!is_missing, "{method} {path}: {}", response.text());
            assert!(operation["responses"].as_object().is_some_and(|responses| !responses.is_empty()), "{path}");
            assert!(operation["summary"].is_string(), "{method} {path} has a description");
        }
    }
}
