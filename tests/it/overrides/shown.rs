//! Explanations of requests and quotas of clients show the effect of overrides.

use serde_json::{Value, json};

use super::{created, remove, statuses, with_key};
use crate::admin_api::Admin;

/// Explains a request with these fields.
async fn explain(admin: &Admin, headers: Value) -> Value {
    let body = json!({ "method": "GET", "url": "http://a.example/", "headers": headers }).to_string();
    let (status, explained) = admin.send("POST", "explain", "Content-Type: application/json\r\n", &body).await;
    assert_eq!(status, 200, "{explained}");
    explained
}

/// Explains a request with the key `k`. Returns whether it is admitted, and its first limit.
async fn explain_key(admin: &Admin) -> (Value, Value) {
    let explained = explain(admin, json!({ "X-Key": "k" })).await;
    (explained["admitted"].clone(), explained["limits"][0].clone())
}

/// An address that is banned has a limit keyed by a header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_shows_bans() {
    let admin = Admin::with_tokens("");
    let address = json!({ "action": "ban", "target": { "address": "127.0.0.1" } });
    let client = json!({ "action": "ban", "scope": "rest/own", "target": { "client": ["k"] } });
    for ban in [address, client] {
        let id = created(&admin, ban).await;
        assert_eq!(with_key(&admin, "k").await.status(), 403);
        let explained = explain(&admin, json!({ "X-Key": "k" })).await;
        assert_eq!((&explained["admitted"], &explained["status"]), (&json!(false), &json!(403)), "{explained}");
        let reason = explained["reason"].as_str().expect("a reason");
        assert!(reason.contains(&id) && reason.ends_with(": a test"), "{reason}");
        let (_, shown) = admin.api("GET", &format!("overrides/{id}"), "").await;
        assert_eq!(explained["limits"][0]["override"], shown);
        let (code, out, _) =
            admin.run(&["explain", "--live", "GET", "http://a.example/", "-H", "X-Key: k"], None).await;
        assert_eq!((code, out.contains(&format!("\nnow: answered with 403: override {id} bans"))), (1, true), "{out}");
        remove(&admin, &id).await;
        let explained = explain(&admin, json!({ "X-Key": "k" })).await;
        assert_eq!((&explained["admitted"], &explained["status"]), (&json!(true), &Value::Null), "{explained}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_shows_exemptions_and_adjustments() {
    let admin = Admin::with_tokens("");
    assert_eq!(statuses(&admin, "k", 3).await, [200, 200, 429]);
    assert_eq!(explain_key(&admin).await.0, json!(false));
    let target = json!({ "client": ["k"] });
    let adjusted =
        created(&admin, json!({ "action": "adjust", "scope": "rest/own", "target": target, "multiply": 2 })).await;
    let (admitted, limit) = explain_key(&admin).await;
    let shown = ["admitted", "check", "remaining"].map(|key| limit[key].clone());
    assert_eq!((admitted, shown), (json!(true), [json!(true), json!("charge"), json!(2)]), "{limit}");
    assert_eq!(limit["override"]["id"], adjusted);
    let text = explain(&admin, json!({ "X-Key": "k" })).await["text"].as_str().expect("a text").to_owned();
    assert!(text.contains(&format!("(override {adjusted}: adjust multiply 2)")), "{text}");
    assert_eq!(statuses(&admin, "k", 3).await, [200, 200, 429]);
    assert_eq!(explain_key(&admin).await.0, json!(false));

    let exempted = created(&admin, json!({ "action": "exempt", "scope": "rest/own", "target": target })).await;
    let (admitted, limit) = explain_key(&admin).await;
    let shown = ["admitted", "check", "cost", "remaining"].map(|key| limit[key].clone());
    assert_eq!((admitted, shown), (json!(true), [Value::Null, json!("skip"), Value::Null, Value::Null]), "{limit}");
    assert_eq!((&limit["override"]["id"], &limit["override"]["action"]), (&json!(exempted), &json!("exempt")));
    assert_eq!(statuses(&admin, "k", 2).await, [200; 2]);
    let other = explain(&admin, json!({ "X-Key": "other" })).await;
    assert_eq!((&other["limits"][0]["remaining"], &other["limits"][0]["override"]), (&json!(2), &Value::Null));
}

const WITH_QUOTA: &str = "upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: rest
    match: {}
    upstream: echo
    quota: /quota
    limits:
      - { name: own, mode: PER_CLIENT, client: 'header:x-key', rate: 2, interval: 1h }
      - { name: ip, mode: PER_CLIENT, client: ip, rate: 9, interval: 1h }
      - { name: hidden, mode: PER_CLIENT, client: 'header:x-other', rate: 9, interval: 1h, shadow: true }
";

/// The gateway accepts 10 requests for quotas at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_shows_the_limits_as_overrides_change_them() {
    let admin = Admin::with_tokens("");
    admin.reload(WITH_QUOTA);
    let quota = async |fields: &str| {
        let response = admin.request("/quota", fields).await;
        let body: Value = serde_json::from_str(&response.text()).expect("JSON");
        let limits = body["limits"].as_array().cloned().unwrap_or_default();
        let shown = limits.iter().map(|limit| format!("{} {} {}", limit["name"], limit["remaining"], limit["rate"]));
        (response.status(), shown.collect::<Vec<_>>().join(", ").replace('"', ""))
    };
    let (of_k, of_other) = ("X-Key: k\r\n", "X-Key: other\r\nX-Other: o\r\n");
    let (plain, target) = ((200, "own 2 2, ip 9 9".to_owned()), json!({ "client": ["k"] }));
    assert_eq!(quota(of_k).await, plain);
    drop(created(&admin, json!({ "action": "adjust", "scope": "rest/own", "target": target, "multiply": 2 })).await);
    assert_eq!(quota(of_k).await, (200, "own 4 4, ip 9 9".to_owned()));
    assert_eq!(quota(of_other).await, plain);
    drop(created(&admin, json!({ "action": "exempt", "scope": "rest/own", "target": target })).await);
    assert_eq!(quota(of_k).await, (200, "ip 9 9".to_owned()));

    assert_eq!(quota("").await.0, 400);
    let address = json!({ "action": "exempt", "scope": "rest/own", "target": { "address": "127.0.0.1" } });
    drop(created(&admin, address).await);
    assert_eq!(quota("").await, (200, "ip 9 9".to_owned()));

    drop(created(&admin, json!({ "action": "ban", "scope": "rest/own", "target": target })).await);
    let banned = admin.request("/quota", of_k).await;
    assert_eq!((banned.status(), banned.field("retry-after").is_some()), (403, true), "{banned:?}");
    assert!(admin.metrics().await.contains("tidegate_rejected_total{cause=\"banned\"} 1"));
    let hidden = json!({ "action": "ban", "scope": "rest/hidden", "target": { "client": ["o"] } });
    drop(created(&admin, hidden).await);
    assert_eq!(quota(of_other).await.0, 403, "the client of a shadow limit");
}
