//! Overrides of the clients of domains that a control plane sends.

use serde_json::{Value, json};

use super::*;
use crate::support::service::OVER_LIMIT;
use crate::unix_sockets::{Folder, ask};

/// Sends a request of an operator. Returns the JSON.
async fn operator(socket: &str, method: &str, path: &str, body: &str) -> Value {
    let length = body.len();
    let head = format!("{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    let response = ask(socket, &format!("{head}Connection: close\r\n\r\n{body}")).await;
    let (_, json) = response.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(json).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_stays_in_force_when_other_rules_are_sent() {
    let folder = Folder::new("xds-overrides");
    let socket = folder.path("admin");
    let mut plane = ControlPlane::start().await;
    let text = rules(&format!("http://{}", plane.address), "", "");
    let text = text.replace("admin: 127.0.0.1:0", &format!("admin: 'unix:{socket}'"));
    let answer = async {
        let mut stream = plane.stream().await;
        stream.request().await;
        stream.push_and_wait("1", "first", &[edge(1)]).await;
        stream
    };
    let (service, mut stream) = tokio::join!(start(text), answer);
    let ban =
        json!({ "action": "ban", "scope": "/edge/user", "target": { "client": ["ann"] }, "for": "1h", "reason": "x" });
    let created = operator(&socket, "POST", "overrides", &ban.to_string()).await;
    assert_eq!(created["scope"], "/edge/user", "{created}");
    let adjust = json!({ "action": "adjust", "scope": "/edge/user", "target": { "client": ["bob"] }, "multiply": 2, "for": "1h", "reason": "x" });
    operator(&socket, "POST", "overrides", &adjust.to_string()).await;
    let client = service.client().await;
    assert_eq!((take(&client, "ann").await, take(&client, "bob").await), (Some((1, 0)), Some((2, 1))));
    stream.push_and_wait("2", "second", &[edge(5)]).await;
    assert_eq!(take(&client, "bob").await, Some((10, 8)), "the new rate, with the permit in use");
    let banned = client.should_rate_limit(&call([descriptor("user=ann")])).await.expect("an answer");
    assert_eq!((banned.overall_code, banned.remaining()), (OVER_LIMIT, vec![(OVER_LIMIT, 0)]));
    let limits = operator(&socket, "GET", "limits", "").await;
    assert_eq!((&limits[0]["route"], &limits[0]["rate"]), (&json!("/edge"), &json!(5)));
    assert_eq!(limits[0]["location"]["file"].as_str().map(|file| file.starts_with("xds:")), Some(true), "{limits}");
}
