//! Responses of the rule file to requests that limits reject.

use super::gateway;

const ROUTES: &str = r#"
  - name: json
    match: { path: "/json/**" }
    upstream: api
    limits: [{ name: total, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }]
    reject: { status: 429, content_type: application/json, body: '{"error":"slow down","retry_after":{retry_after}}' }
    response_headers: { set: { strict-transport-security: max-age=31536000 } }
  - name: html
    match: { path: "/html/**" }
    upstream: api
    limits: [{ name: total, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }]
    reject: { status: 503, content_type: text/html, body: "<p>{limit} {path} {{path}}</p>" }
"#;

#[tokio::test]
async fn rejected_request_gets_the_body_of_the_route() {
    let (origin, gateway) = gateway(ROUTES).await;
    assert_eq!(gateway.get("/json/a", "").await.status(), 200);
    let response = gateway.get("/json/a", "").await;
    let seconds = response.field("retry-after").expect("a delay");
    assert_eq!((response.status(), response.field("content-type").as_deref()), (429, Some("application/json")));
    assert_eq!(response.text(), format!("{{\"error\":\"slow down\",\"retry_after\":{seconds}}}"));
    assert_eq!(response.field("strict-transport-security").as_deref(), Some("max-age=31536000"));
    assert!(response.field("ratelimit").is_some() && response.field("ratelimit-policy").is_some());
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn values_are_escaped_in_html() {
    let (_origin, gateway) = gateway(ROUTES).await;
    assert_eq!(gateway.get("/html/a", "").await.status(), 200);
    let response = gateway.get("/html/&'a", "").await;
    assert_eq!((response.status(), response.text().as_str()), (503, "<p>total /html/&amp;&#39;a {path}</p>"));
    assert!(response.field("retry-after").is_some());
}

#[tokio::test]
async fn grpc_calls_keep_their_response() {
    let (_origin, gateway) = gateway(ROUTES).await;
    assert_eq!(gateway.get("/json/a", "").await.status(), 200);
    let call = "POST /json/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    let response = gateway.client().await.ask(call).await;
    assert_eq!((response.status(), response.field("grpc-status").as_deref()), (200, Some("8")));
    assert_eq!(response.text(), "");
}
