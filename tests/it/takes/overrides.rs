//! Overrides of operators concern programs, too.

use serde_json::{Value, json};
use tidegate::ListenAddress;

use crate::admin_api::{Admin, TOKEN};
use crate::support::wire::raw::{Message, Raw};

const SERVICE: &str = "service:\n  http: 127.0.0.1:0\n  domains: [{ name: edge, limits: [{ name: all, match: { all: 'yes' }, \
                       mode: OVERALL, rate: 1, interval: 1h }] }]\n";

/// Takes permits of the client `k`, whose rate is 2.
async fn take(admin: &Admin, permits: u32) -> Message {
    let address = admin.gateway().service_http_address().as_ref().and_then(ListenAddress::tcp).expect("an address");
    let body = json!({ "limits": [{ "limit": "rest/own", "client": "k", "permits": permits }] }).to_string();
    let length = body.len();
    let head = format!("POST /v1/take HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n\r\n");
    Raw::connect(address).await.ask(head + &body).await
}

/// Creates an override of the client `k` for an hour. Returns its id.
async fn create(admin: &Admin, action: &str, change: Value) -> String {
    let mut body = json!({ "action": action, "scope": "rest/own", "target": { "client": ["k"] }, "for": "1h", "reason": "a test" });
    if let (Value::Object(body), Value::Object(change)) = (&mut body, change) {
        body.extend(change);
    }
    let authorized = format!("Authorization: Bearer {TOKEN}\r\n");
    let (status, created) = admin.send("POST", "overrides", &authorized, &body.to_string()).await;
    assert_eq!(status, 201, "{created}");
    created["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn overrides_apply_to_programs() {
    let admin = Admin::with_tokens(SERVICE);
    assert_eq!(take(&admin, 3).await.status(), 400, "more than a full bucket has");
    assert_eq!(take(&admin, 2).await.status(), 200);
    let adjusted = create(&admin, "adjust", json!({ "rate": 5 })).await;
    assert_eq!(take(&admin, 3).await.status(), 200);
    assert_eq!(take(&admin, 1).await.status(), 429);
    assert_eq!(admin.change(&format!("overrides/{adjusted}")).await.0, 200);
    let exempt = create(&admin, "exempt", json!({})).await;
    let passed = take(&admin, 2).await;
    assert_eq!(passed.status(), 200);
    assert!(passed.text().contains("\"remaining\":null"), "{}", passed.text());
    assert_eq!(admin.change(&format!("overrides/{exempt}")).await.0, 200);
    create(&admin, "ban", json!({})).await;
    let banned = take(&admin, 1).await;
    assert_eq!((banned.status(), banned.field("retry-after").is_some()), (403, true), "{}", banned.text());
}
