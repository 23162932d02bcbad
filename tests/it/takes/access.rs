//! The access of programs: tokens, unless only this machine can connect.

use std::fs;

use serde_json::{Value, json};

use super::{TakeService, one};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn public_address_needs_a_token() {
    let file = std::env::temp_dir().join(format!("tidegate-takes-{}", std::process::id()));
    fs::write(&file, format!("ann:{TOKEN}\n")).expect("written");
    let admin = format!("admin: {{ address: '127.0.0.1:0', tokens: {{ file: {} }} }}\n", file.display());
    let service = TakeService::start_with("memory", "0.0.0.0:0", &admin);
    let take = async |headers: &str| {
        let response = service.post("/v1/take", headers, &one("jobs/total", Value::Null, 1).to_string()).await;
        (response.status(), response.field("www-authenticate"))
    };
    let bearer = Some("Bearer".to_owned());
    assert_eq!(take("").await, (401, bearer.clone()));
    assert_eq!(take("Authorization: Bearer other-0123456789abcdef\r\n").await, (401, bearer));
    assert_eq!(take(&format!("Authorization: Bearer {TOKEN}\r\n")).await, (200, None));
    // The paths of envoyproxy/ratelimit stay open.
    assert_eq!(service.post("/json", "", "{}").await.status(), 400);
    fs::remove_file(file).expect("removed");
}

#[tokio::test]
async fn public_address_without_tokens_is_forbidden() {
    let service = TakeService::start_with("memory", "0.0.0.0:0", "admin: 127.0.0.1:0\n");
    let response = service.post("/v1/take", "", &one("jobs/total", Value::Null, 1).to_string()).await;
    assert_eq!(response.status(), 403);
    assert!(response.text().contains("set `admin: {"), "{}", response.text());
}

#[tokio::test]
async fn loopback_address_needs_no_token() {
    let service = TakeService::start_with("memory", "'[::1]:0'", "admin: 127.0.0.1:0\n");
    assert_eq!(service.take_one("jobs/total", Value::Null, 1).await, (200, json!(4)));
}
