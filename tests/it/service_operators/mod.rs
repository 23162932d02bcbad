//! Operators inspect, reset and change the limits of domains of the rate limit service, as the limits of routes.

mod changes;
mod names;
mod reports;
mod rules;

use serde_json::{Value, json};

use crate::admin_api::{Admin, TOKEN};
use crate::support::redis::RedisServer;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// The domain of the tests.
const DOMAIN: &str = "
  domains:
    - name: edge
      limits:
        - { name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 2, interval: 1h }
        - { name: pair, match: { plan: '*', path: '/v1/*' }, mode: PER_CLIENT, rate: 9, interval: 1h }
        - { name: all, match: { generic_key: all }, mode: OVERALL, rate: 5, interval: 1h }
        - { name: watched, match: { watched: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h, shadow: true }
";

/// Starts a gateway with this store, these keys of `service`, and the domain.
fn start(store: &str, keys: &str) -> Admin {
    Admin::with_tokens(&service(store, keys))
}

fn service(store: &str, keys: &str) -> String {
    format!("store: {store}\nservice:\n  http: 127.0.0.1:0\n{keys}{DOMAIN}")
}

/// Sends a call to the domain `edge`, with descriptors of one entry each. Returns the answer.
async fn ask(admin: &Admin, descriptors: &[&str]) -> Value {
    post(admin, "/json", &call("edge", descriptors)).await.1
}

/// Sends a body to the service. Returns the status and the JSON.
async fn post(admin: &Admin, path: &str, body: &Value) -> (u16, Value) {
    let service = admin.gateway().service_http_address().and_then(|address| address.tcp()).expect("an address");
    let (body, head) = (body.to_string(), "Host: localhost\r\nContent-Type: application/json\r\n");
    let request = format!("POST {path} HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let response = Raw::connect(service).await.ask(request).await;
    (response.status(), serde_json::from_str(&response.text()).expect("JSON"))
}

/// Returns a call, with descriptors of `KEY=VALUE` entries.
fn call(domain: &str, descriptors: &[&str]) -> Value {
    let entry = |text: &str| {
        let (key, value) = text.split_once('=').expect("KEY=VALUE");
        json!({ "key": key, "value": value })
    };
    let descriptor = |text: &&str| json!({ "entries": text.split(',').map(entry).collect::<Vec<_>>() });
    json!({ "domain": domain, "descriptors": descriptors.iter().map(descriptor).collect::<Vec<_>>() })
}

/// Sends calls with one descriptor. Returns whether each passes.
async fn passes(admin: &Admin, descriptor: &str, count: usize) -> Vec<bool> {
    let mut passes = Vec::new();
    for _ in 0..count {
        passes.push(ask(admin, &[descriptor]).await["overallCode"] == "OK");
    }
    passes
}

/// Returns a field of an answer for the client of the proxy.
fn field<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    let fields = answer["responseHeadersToAdd"].as_array()?;
    fields.iter().find(|field| field["key"] == name)?["value"].as_str()
}

async fn inspects_and_resets(store: &str) {
    let admin = &start(store, "");
    let state = async |query: &str| admin.api("GET", &format!("limits/%2Fedge/per-user/client?{query}"), "").await;
    let (status, unused) = state("value=ann").await;
    assert_eq!((status, &unused["remaining"], &unused["route"]), (200, &json!(2), &json!("/edge")), "{unused}");
    assert_eq!(passes(admin, "user=ann", 3).await, [true, true, false]);
    let (_, used) = state("value=ann").await;
    assert_eq!((&used["remaining"], &used["used"]), (&json!(0), &json!(2)), "{used}");
    let hash = used["client"].as_str().expect("a hash").to_owned();
    assert_eq!(state(&format!("hash={hash}")).await.1["used"], 2);
    assert_eq!(state("address=127.0.0.1").await.0, 400);
    assert_eq!(state("value=a&value=b").await.0, 400);
    ask(admin, &["plan=free,path=/v1/x", "generic_key=all"]).await;
    assert_eq!(admin.api("GET", "limits/%2Fedge/pair/client?value=free&value=%2Fv1%2Fx", "").await.1["used"], 1);
    assert_eq!(admin.api("GET", "limits/%2Fedge/pair/client?value=free&value=%2Fv2", "").await.0, 400);
    assert_eq!(admin.api("GET", "limits/%2Fedge/all/client", "").await.1["used"], 1);

    let (status, cleared) = admin.change("limits/%2Fedge/per-user/client?value=ann&reason=paid").await;
    let expected = json!({ "route": "/edge", "limit": "per-user", "client": hash, "buckets": 1, "gateways": 1 });
    assert_eq!((status, &cleared), (200, &expected));
    assert_eq!(passes(admin, "user=ann", 3).await, [true, true, false]);
    assert_eq!(passes(admin, "user=bob", 1).await, [true]);
    assert_eq!(admin.change("limits/%2Fedge/per-user").await.1["buckets"], 2);
    assert_eq!(passes(admin, "user=ann", 1).await, [true]);
    assert_eq!(admin.change("limits/%2Fedge/all").await.1["buckets"], 1);
    let (_, audit) = admin.api("GET", "audit", "").await;
    assert_eq!((&audit[2]["target"], &audit[2]["client"]), (&json!("/edge/per-user"), &json!(hash)), "{audit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_inspects_and_resets_a_domain_in_memory() {
    inspects_and_resets("memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_inspects_and_resets_a_domain_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    inspects_and_resets(&redis.rule()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_gateway_notices_a_reset_of_a_domain() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, other] = [(); 2].map(|()| start(&redis.rule(), ""));
    assert_eq!(passes(&other, "user=ann", 4).await, [true, true, false, false]);
    assert_eq!(one.change("limits/%2Fedge/per-user/client?value=ann").await.1["buckets"], 1);
    soon(async { while passes(&other, "user=ann", 1).await != [true] {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_domains_are_listed_after_limits_of_routes() {
    let admin = start("memory", "");
    ask(&admin, &["generic_key=all", "user=ann"]).await;
    let (_, limits) = admin.api("GET", "limits", "").await;
    let limits = limits.as_array().expect("a list");
    let shown: Vec<_> =
        limits.iter().map(|one| ["route", "limit", "client", "domain"].map(|key| one[key].clone())).collect();
    assert_eq!(shown[3], [json!("/edge"), json!("per-user"), json!("user"), json!("edge")]);
    assert_eq!(shown[4], [json!("/edge"), json!("pair"), json!("plan, path"), json!("edge")]);
    assert_eq!(shown[5], [json!("/edge"), json!("all"), Value::Null, json!("edge")]);
    assert_eq!((limits[0]["route"].as_str(), limits[0]["domain"].is_null(), shown.len()), (Some("rest"), true, 7));
    assert_eq!(
        (&limits[5]["permits"], &limits[3]["buckets"]["held"]),
        (&json!({ "used": 1, "remaining": 4 }), &json!(1))
    );
    assert_eq!(admin.api("GET", "status", "").await.1["config"]["limits"], 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_clients_of_domains_are_merged() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, other] = [(); 2].map(|()| start(&redis.rule(), ""));
    assert_eq!(passes(&one, "user=ann", 4).await, [true, true, false, false]);
    assert_eq!(passes(&other, "user=ann", 1).await, [false]);
    let ban = json!({ "action": "ban", "scope": "/edge/per-user", "target": { "client": ["bob"] } });
    changes::created(&one, ban).await;
    assert_eq!(passes(&one, "user=bob", 1).await, [false]);
    let read = async || one.api("GET", "rejected?all=1", "").await.1;
    // The other gateway shares its rejections every two seconds.
    soon(async { while read().await[0]["count"] != 3 {} }).await;
    let all = read().await;
    let shown = |row: &Value| ["route", "limit", "cause", "count"].map(|key| row[key].clone());
    let rows: Vec<_> = all.as_array().expect("a list").iter().map(shown).collect();
    let by_limit = [json!("/edge"), json!("per-user"), json!("limit"), json!(3)];
    assert_eq!(rows, [by_limit, [json!("/edge"), Value::Null, json!("banned"), json!(1)]], "{all}");
    let (_, of_limit) = one.api("GET", "limits/%2Fedge/per-user/rejected?all=1", "").await;
    assert_eq!((&of_limit[0], of_limit.as_array().map(Vec::len)), (&all[0], Some(1)));
    assert!(all[0]["location"]["line"].as_u64() > Some(0), "{all}");
    let hash = all[0]["client"].as_str().expect("a hash");
    let (_, state) = one.api("GET", &format!("limits/%2Fedge/per-user/client?hash={hash}"), "").await;
    assert_eq!(state["used"], 2, "{state}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_explains_a_call_live() {
    let admin = start("memory", "");
    let explain = async |descriptors: &[&str]| {
        let body = call("edge", descriptors).to_string();
        let fields = "Content-Type: application/json\r\n";
        admin.send("POST", "explain/call", fields, &body).await
    };
    assert_eq!(passes(&admin, "user=ann", 1).await, [true]);
    let (status, explained) = explain(&["user=ann", "other=x"]).await;
    assert_eq!((status, &explained["admitted"]), (200, &json!(true)), "{explained}");
    let [first, second] = [0, 1].map(|position| explained["descriptors"][position].clone());
    assert_eq!((&first["limit"], &first["remaining"], &first["used"]), (&json!("per-user"), &json!(1), &json!(1)));
    assert_eq!((&second["limit"], &second["over_limit"]), (&Value::Null, &json!(false)));
    assert_eq!(passes(&admin, "user=ann", 2).await, [true, false], "an explanation charges nothing");
    assert_eq!(explain(&["user=ann"]).await.1["admitted"], false);
    let ban = json!({ "action": "ban", "scope": "/edge/per-user", "target": { "client": ["bob"] } });
    let id = changes::created(&admin, ban).await;
    let (_, banned) = explain(&["user=bob"]).await;
    assert_eq!((&banned["admitted"], &banned["descriptors"][0]["override"]["id"]), (&json!(false), &json!(id)));
    assert!(banned["text"].as_str().is_some_and(|text| text.contains("the client is banned")), "{banned}");
    assert_eq!(explain(&[]).await.0, 400);
    let unknown = call("none", &["user=ann"]).to_string();
    assert_eq!(admin.send("POST", "explain/call", "Content-Type: application/json\r\n", &unknown).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_name_limits_of_domains() {
    let admin = start("memory", "");
    let token = admin.folder.join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("written");
    let run = async |arguments: &[&str]| admin.run(arguments, Some(&token)).await;
    assert_eq!(passes(&admin, "user=ann", 3).await, [true, true, false]);
    let (code, out, errors) = admin.run(&["limits"], None).await;
    assert_eq!((code, out.contains("/edge  per-user")), (0, true), "{out}{errors}");
    let (code, out, _) = admin.run(&["top"], None).await;
    assert_eq!((code, out.contains("/edge/per-user")), (0, true), "{out}");
    assert_eq!(admin.run(&["top", "/edge/per-user"], None).await.0, 0);
    assert_eq!(admin.run(&["client", "/edge/per-user", "ann"], None).await.0, 1);
    let (code, out, errors) = admin.run(&["explain", "--live", "--descriptor", "edge", "user=ann"], None).await;
    assert_eq!((code, out.contains("now: not admitted")), (1, true), "{out}{errors}");
    let (code, out, errors) = run(&["reset", "/edge/per-user", "ann"]).await;
    assert_eq!((code, out.as_str()), (0, "/edge/per-user: cleared 1 bucket\n"), "{errors}");
    assert_eq!(admin.run(&["client", "/edge/per-user", "ann"], None).await.0, 0);
    let one = ["--limit", "/edge/per-user", "--client", "ann", "--for", "1h", "--reason", "a test"];
    let (code, out, errors) = run(&[&["adjust", "--rate", "3"], &one[..]].concat()).await;
    assert_eq!((code, out.contains("/edge/per-user")), (0, true), "{out}{errors}");
    assert_eq!(passes(&admin, "user=ann", 4).await, [true, true, true, false]);
    let all =
        ["adjust", "--route", "/edge", "--multiply", "2", "--address", "192.0.2.1", "--for", "1h", "--reason", "a"];
    let (code, _, errors) = run(&all).await;
    assert_eq!((code, errors.contains("knows no addresses")), (1, true), "{errors}");
}
