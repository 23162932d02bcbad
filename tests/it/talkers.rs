//! Operators list the clients with the most requests, bytes and permits.

use serde_json::{Value, json};

use crate::admin_api::Admin;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// Clients come from a trusted proxy, so that a test has several addresses.
const PROXY: &str = "clients: { trusted_proxies: [127.0.0.0/8] }\n";

async fn clients(admin: &Admin, path: &str) -> Vec<Value> {
    let (status, list) = admin.api("GET", path, "").await;
    assert_eq!((status, &list["enabled"]), (200, &json!(true)), "{list}");
    list["clients"].as_array().expect("a list").clone()
}

/// Returns the client and an amount of each entry.
fn amounts(clients: &[Value], key: &str) -> Vec<(String, u64)> {
    let amount =
        |one: &Value| (one["client"].as_str().expect("a client").to_owned(), one[key].as_u64().expect("an amount"));
    clients.iter().map(amount).collect()
}

/// Sends a request with a body as a client, and reads its response.
async fn upload(admin: &Admin, client: &str, body: &str) -> u16 {
    let address = admin.gateway().addresses()[0].tcp().expect("an address");
    let length = body.len();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nX-Key: {client}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    Raw::connect(address).await.ask(request).await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn talkers_are_listed_by_requests_bytes_and_permits() {
    let admin = Admin::start("{ address: '127.0.0.1:0', talkers: true }", PROXY);
    assert!(clients(&admin, "talkers").await.is_empty());
    let fields = "X-Forwarded-For: 192.0.2.1\r\nX-Key: secret-1\r\n";
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(admin.request("/", fields).await.status());
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(upload(&admin, "2001:db8::1", &"x".repeat(9_000)).await, 200);
    let [first, second] = [("192.0.2.1", 4), ("2001:db8::/64", 1)].map(|(client, count)| (client.to_owned(), count));
    // A request is counted when its response has ended, which the client may notice first.
    soon(async { while amounts(&clients(&admin, "talkers").await, "requests") != [first.clone(), second.clone()] {} })
        .await;
    let by_bytes = clients(&admin, "talkers?by=bytes&minutes=5").await;
    assert_eq!(amounts(&by_bytes, "bytes")[0], ("2001:db8::/64".to_owned(), 18_000));
    // `own` and `all` of two granted requests, and of one.
    let permits = amounts(&clients(&admin, "talkers?by=permits").await, "permits");
    assert_eq!(permits, [("192.0.2.1".to_owned(), 4), ("2001:db8::/64".to_owned(), 2)]);
    assert!(by_bytes.iter().all(|one| one["requests_error"] == 0 && one["bytes_error"] == 0), "{by_bytes:?}");
    assert!(!json!(by_bytes).to_string().contains("secret"), "{by_bytes:?}");
    for path in ["talkers?by=name", "talkers?minutes=2", "talkers?all=1"] {
        assert_eq!(admin.api("GET", path, "").await.0, 400, "{path}");
    }
    let (code, text, _) = admin.run(&["top", "--talkers", "--by", "bytes"], None).await;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((code, &lines[0][..]), (0, &["CLIENT", "REQUESTS", "BYTES", "PERMITS"][..]), "{text}");
    assert_eq!(lines[1], ["2001:db8::/64", "1", "18000", "2"], "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn talkers_are_counted_only_on_request() {
    let admin = Admin::start("{ address: '127.0.0.1:0' }", "");
    assert_eq!(admin.request("/", "").await.status(), 200);
    assert_eq!(admin.api("GET", "talkers", "").await, (200, json!({ "enabled": false, "clients": [] })));
    let (code, text, _) = admin.run(&["top", "--talkers"], None).await;
    assert!(code == 0 && text.contains("`talkers: true`"), "{text}");
    let (code, _, error) = admin.run(&["top", "rest/own", "--talkers"], None).await;
    assert!(code == 2 && error.contains("cannot be used with"), "{error}");
}
