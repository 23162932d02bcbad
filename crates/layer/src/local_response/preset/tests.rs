//! The responses in the forms of other APIs.

use std::sync::Arc;

use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::*;
use tidegate_rules::request::body::BodyReads;
use tidegate_usage::{MemberPointers, Pointer};

/// Returns the status, the fields and the body of a rejection.
fn rejection(preset: RejectionPreset, wait: Wait, body: &str) -> (StatusCode, HeaderMap, Value) {
    let id = Pointer::parse("/id").expect("a pointer");
    let reads = BodyReads { api: None, members: MemberPointers::new([&id]).ok().map(Arc::new) };
    let read = reads.read(body.as_bytes(), "/").expect(body);
    let refusal = Refusal {
        limits: &["tokens", "calls"],
        counts_tokens: true,
        wait,
        request_id: Some("id-1"),
        body: Some(&read),
    };
    let (head, body) = response(preset, refusal).into_response(HeaderMap::new()).into_parts();
    let body = futures_util::FutureExt::now_or_never(body.collect()).expect("ready").expect("whole").to_bytes();
    (head.status, head.headers, serde_json::from_slice(&body).expect("JSON"))
}

#[test]
fn openai_error_has_the_type_of_its_limit() {
    let (status, fields, body) = rejection(RejectionPreset::OpenAi, Wait::Millis(1_500), "{}");
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((&fields["retry-after"], &fields["retry-after-ms"]), (&HeaderValue::from(2), &HeaderValue::from(1_500)));
    let message = "Rate limit `tokens` reached. Please try again in 2 s.";
    let error = json!({ "message": message, "type": "tokens", "param": null, "code": "rate_limit_exceeded" });
    assert_eq!(body, json!({ "error": error }));
}

#[test]
fn request_above_the_whole_limit_is_not_retried() {
    let (_, fields, body) = rejection(RejectionPreset::OpenAi, Wait::Never, "{}");
    assert_eq!(fields["x-should-retry"], "false");
    assert!(!fields.contains_key("retry-after") && !fields.contains_key("retry-after-ms"));
    assert_eq!(body["error"]["message"], "Request too large: it costs more than the whole limit `tokens`.");
}

#[test]
fn anthropic_error_has_the_id_of_the_request() {
    let (status, _, body) = rejection(RejectionPreset::Anthropic, Wait::Millis(1), "{}");
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("rate_limit_error")));
    assert_eq!(body["request_id"], "id-1");
}

#[test]
fn json_rpc_error_answers_each_call() {
    let ask = |body| rejection(RejectionPreset::JsonRpc, Wait::Millis(6_001), body);
    let (status, fields, body) = ask(r#"{"id":7}"#);
    assert_eq!((status, &fields["retry-after"]), (StatusCode::OK, &HeaderValue::from(7)));
    assert_eq!((&body["jsonrpc"], &body["id"], &body["error"]["code"]), (&json!("2.0"), &json!(7), &json!(-32_029)));
    assert_eq!(body["error"]["data"], json!({ "retry_after": 7, "limits": ["tokens", "calls"] }));
    let (status, _, body) = ask(r#"[{"id":"a"},{},{"id":null},{"id":0.5}]"#);
    assert_eq!(status, StatusCode::OK);
    let ids: Vec<_> = body.as_array().expect("an array").iter().map(|error| &error["id"]).collect();
    assert_eq!(ids, [&json!("a"), &Value::Null, &json!(0.5)]);
    assert!(ask(r#"[{"id":1}]"#).2.is_array());
}

#[test]
fn rejected_notification_gets_an_http_error() {
    for body in ["{}", "", "[{},{}]"] {
        let (status, _, body) = rejection(RejectionPreset::JsonRpc, Wait::Millis(1), body);
        assert_eq!((status, &body["id"]), (StatusCode::TOO_MANY_REQUESTS, &Value::Null));
    }
}
