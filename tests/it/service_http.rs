//! Calls of the rate limit service over HTTP, with the paths of envoyproxy/ratelimit.

use serde_json::{Value, json};

use crate::support::service::TestService;
use crate::support::wire::raw::{Message, Raw};

const LIMITS: [&str; 1] = ["name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 1, interval: 1m"];

const PROBLEM: &str = "application/problem+json";

async fn post(service: &TestService, more: &str, body: &str) -> Message {
    let length = body.len();
    let request = format!("POST /json HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n{more}\r\n{body}");
    Raw::connect(service.http).await.ask(request).await
}

#[tokio::test]
async fn json_call_has_the_status_of_its_decision() {
    let service = TestService::start("memory", &LIMITS);
    let call = json!({ "domain": "edge", "descriptors": [{ "entries": [{ "key": "user", "value": "ann" }] }] });
    let first = post(&service, "", &call.to_string()).await;
    assert_eq!((first.status(), first.field("content-type").as_deref()), (200, Some("application/json")));
    let limit = json!({ "name": "per-user", "requestsPerUnit": 1, "unit": "MINUTE" });
    let first: Value = serde_json::from_slice(&first.body).expect("JSON");
    assert_eq!((&first["overallCode"], &first["statuses"][0]["currentLimit"]), (&json!("OK"), &limit));
    let second = post(&service, "", &call.to_string()).await;
    assert_eq!((second.status(), second.field("retry-after").is_some()), (429, true));
    let second: Value = serde_json::from_slice(&second.body).expect("JSON");
    let status = &second["statuses"][0];
    assert_eq!((&second["overallCode"], &status["code"]), (&json!("OVER_LIMIT"), &json!("OVER_LIMIT")));
    assert_eq!(status.get("limitRemaining"), None, "0 is the default");
    assert!(status["durationUntilReset"].as_str().is_some_and(|text| text.ends_with('s')), "{status}");
    let fields = second["responseHeadersToAdd"].as_array().expect("a list");
    assert!(fields.iter().any(|field| field["key"] == "retry-after"), "{fields:?}");
    assert!(second["rawBody"].as_str().is_some_and(|body| !body.is_empty()));
    // Both protocols decide by the same buckets, and both spellings are read.
    let spelled = json!({ "domain": "edge", "hits_addend": 1, "descriptors": call["descriptors"] });
    assert_eq!(post(&service, "", &spelled.to_string()).await.status(), 429);
}

/// A caller that is a server itself passes the response on.
#[tokio::test]
async fn rejection_is_a_problem_for_callers_that_accept_it() {
    let service = TestService::start("memory", &LIMITS);
    let call = json!({ "domain": "edge", "descriptors": [{ "entries": [{ "key": "user", "value": "ann" }] }] });
    let accept = format!("Accept: text/html, {PROBLEM};q=0.5\r\n");
    let granted = post(&service, &accept, &call.to_string()).await;
    assert_eq!((granted.status(), granted.field("content-type").as_deref()), (200, Some("application/json")));
    let rejected = post(&service, &accept, &call.to_string()).await;
    assert_eq!((rejected.status(), rejected.field("content-type").as_deref()), (429, Some(PROBLEM)));
    let problem: Value = serde_json::from_slice(&rejected.body).expect("JSON");
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&json!(429), &json!(["per-user"])));
    let other = post(&service, "Accept: application/json\r\n", &call.to_string()).await;
    assert_eq!((other.status(), other.field("content-type").as_deref()), (429, Some("application/json")));
}

#[tokio::test]
async fn invalid_requests_have_their_status() {
    let service = TestService::start("memory", &LIMITS);
    for (body, text) in [
        ("", "the body is no call: invalid JSON at line 1 column 0"),
        ("{}", "rate limit domain must not be empty"),
        (r#"{"domain":"edge"}"#, "rate limit descriptor list must not be empty"),
        (r#"{"domain":"edge","descriptor":[]}"#, "the body is no call: unexpected value at line 1 column 29"),
    ] {
        let response = post(&service, "", body).await;
        assert_eq!((response.status(), response.field("content-type").as_deref()), (400, Some(PROBLEM)));
        let problem: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!((&problem["status"], &problem["detail"]), (&json!(400), &json!(text)));
    }
    let of_page = post(&service, "Origin: https://evil.example\r\n", "{}").await;
    assert_eq!(of_page.status(), 403);
    let ask = async |start: &str| {
        let response = Raw::connect(service.http).await.ask(format!("{start} HTTP/1.1\r\nHost: service\r\n\r\n")).await;
        (response.status(), response.field("allow"))
    };
    assert_eq!(ask("GET /json").await, (405, Some("POST".to_owned())));
    assert_eq!(ask("DELETE /healthcheck").await, (405, Some("GET, HEAD".to_owned())));
    assert_eq!(ask("GET /").await, (404, None));
    assert_eq!(ask("HEAD /healthcheck").await, (200, None));
}
