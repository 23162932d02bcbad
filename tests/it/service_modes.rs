//! Modes and answers of the rate limit service that envoyproxy/ratelimit has: quotas, shadow mode, fields and dynamic metadata.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::service::{GrpcClient, OK, OVER_LIMIT, RateLimitResponse, TestService, call, descriptor};
use crate::support::wire::raw::Raw;

/// Two quotas of a user and a limit of a path, in the syntax of the rule file.
const QUOTAS: [&str; 3] = [
    "name: small, match: { small: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h, quota_mode: true",
    "name: large, match: { large: '*' }, mode: PER_CLIENT, rate: 3, interval: 1h, quota_mode: true",
    "name: path, match: { path: '*' }, mode: PER_CLIENT, rate: 5, interval: 1h",
];

async fn ask(client: &GrpcClient, descriptors: &[&str]) -> RateLimitResponse {
    let request = call(descriptors.iter().map(|text| descriptor(text)));
    client.should_rate_limit(&request).await.expect("an answer")
}

fn field_names(response: &RateLimitResponse) -> Vec<&str> {
    response.response_headers_to_add.iter().map(|field| field.key.as_str()).collect()
}

/// Files of envoyproxy/ratelimit in a folder. Dropping it removes the folder.
struct Files(PathBuf);

impl Files {
    /// Writes files. No other test may use `name`.
    fn new(name: &str, files: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (number, text) in files.iter().enumerate() {
            std::fs::write(folder.join(format!("{number}.yaml")), text).expect("written");
        }
        Self(folder)
    }

    /// Returns the rules of a service with these files and further keys.
    fn rules(&self, keys: &str) -> String {
        let files = self.0.display();
        format!(
            "admin: off\nservice: {{ grpc: '127.0.0.1:0', http: '127.0.0.1:0', descriptors: '{files}/*', {keys} }}\n"
        )
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn quotas_reject_a_call_only_together() {
    let service = TestService::start("memory", &QUOTAS);
    let client = service.client().await;
    let all = ["small=ann", "large=ann", "path=/a"];
    assert_eq!(ask(&client, &all).await.remaining(), [(OK, 0), (OK, 2), (OK, 4)]);
    for remaining in [1, 0] {
        let response = ask(&client, &all).await;
        assert_eq!(response.overall_code, OK, "one quota remains");
        assert_eq!(response.remaining(), [(OVER_LIMIT, 0), (OK, remaining), (OK, 2 + remaining)]);
        assert_eq!(response.field("retry-after"), None);
    }
    let response = ask(&client, &all).await;
    assert_eq!((response.overall_code, response.field("retry-after")), (OVER_LIMIT, Some("3600")));
    assert_eq!(response.remaining(), [(OVER_LIMIT, 0), (OVER_LIMIT, 0), (OK, 2)], "the path is not charged");
    let problem: Value = serde_json::from_slice(&response.raw_body).expect("JSON");
    assert_eq!(problem["violated-policies"], json!(["small", "large"]));
    assert_eq!(ask(&client, &["path=/a"]).await.remaining(), [(OK, 1)]);
    let limited =
        |outcome: &str| format!("tidegate_decisions_total{{route=\"/edge\",limit=\"large\",outcome=\"{outcome}\"}}");
    assert_eq!(service.counter(&limited("limited")).await, 1);
    // A single quota rejects like any other limit.
    assert_eq!(ask(&client, &["small=ann"]).await.overall_code, OVER_LIMIT);
}

#[tokio::test]
async fn limit_of_a_call_rejects_despite_its_quotas() {
    let service = TestService::start("memory", &QUOTAS);
    let client = service.client().await;
    for _ in 0..5 {
        assert_eq!(ask(&client, &["path=/a"]).await.overall_code, OK);
    }
    let response = ask(&client, &["path=/a", "small=ann", "large=ann"]).await;
    assert_eq!(response.overall_code, OVER_LIMIT);
    assert_eq!(response.remaining(), [(OVER_LIMIT, 0), (OK, 1), (OK, 3)], "the quotas are not charged");
}

#[tokio::test]
async fn quota_mode_of_the_service_includes_all_limits() {
    let limits = ["a", "b"]
        .map(|name| format!("name: {name}, match: {{ {name}: '*' }}, mode: PER_CLIENT, rate: 1, interval: 1h"));
    let service = TestService::start_with("quota_mode: true", "memory", &[&limits[0], &limits[1]]);
    let client = service.client().await;
    assert_eq!(ask(&client, &["a=x"]).await.overall_code, OK);
    assert_eq!(ask(&client, &["a=x", "b=x"]).await.remaining(), [(OVER_LIMIT, 0), (OK, 0)]);
    assert_eq!(ask(&client, &["a=x", "b=x"]).await.overall_code, OVER_LIMIT);
    // A descriptor without a limit is a quota that passes.
    assert_eq!(ask(&client, &["a=x", "other=x"]).await.overall_code, OK);
}

#[tokio::test]
async fn shadow_mode_lets_all_calls_pass() {
    let limits = [
        "name: one, match: { user: '*' }, mode: PER_CLIENT, rate: 1, interval: 1h",
        "name: path, match: { path: '*' }, mode: PER_CLIENT, rate: 9, interval: 1h",
    ];
    let service = TestService::start_with("shadow: true, headers: [ietf, legacy]", "memory", &limits);
    let client = service.client().await;
    assert_eq!(ask(&client, &["user=ann"]).await.remaining(), [(OK, 0)]);
    let response = ask(&client, &["user=ann", "path=/a"]).await;
    assert_eq!((response.overall_code, response.raw_body.len()), (OK, 0));
    assert_eq!(response.remaining(), [(OVER_LIMIT, 0), (OK, 8)], "each limit is counted as if it were alone");
    assert_eq!(field_names(&response), ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]);
    for series in [
        "tidegate_service_calls_total{route=\"/edge\",result=\"shadow_over_limit\"}",
        "tidegate_decisions_total{route=\"/edge\",limit=\"one\",outcome=\"shadow_limited\"}",
    ] {
        assert_eq!(service.counter(series).await, 1, "{series}");
    }
}

#[tokio::test]
async fn legacy_fields_have_the_configured_names() {
    let limits = ["name: total, match: { path: '/a' }, mode: OVERALL, rate: 1, interval: 1h"];
    let keys =
        "headers: [legacy], legacy_names: { limit: RateLimit-Limit, remaining: RateLimit-Remaining, reset: X-Reset }";
    let service = TestService::start_with(keys, "memory", &limits);
    let client = service.client().await;
    for code in [OK, OVER_LIMIT] {
        let response = ask(&client, &["path=/a", "other=x"]).await;
        assert_eq!(response.overall_code, code);
        assert_eq!(field_names(&response)[..3], ["ratelimit-limit", "ratelimit-remaining", "x-reset"]);
        assert_eq!((response.field("ratelimit-limit"), response.field("ratelimit-remaining")), (Some("1"), Some("0")));
        assert_eq!(response.field("x-reset"), Some("3600"));
    }
    assert!(ask(&client, &["other=x"]).await.response_headers_to_add.is_empty());
}

#[tokio::test]
async fn dynamic_metadata_have_the_call_and_its_rules() {
    let rule = "domain: edge
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 1 }, metadata: { tier: gold, list: [1, 2.5, x, true, null] } }
  - { key: path, rate_limit: { unit: hour, requests_per_unit: 9 }, metadata: { tier: other, path: { is: known } } }
";
    let files = Files::new("service-metadata", &[rule]);
    let service = TestService::from_rules(&files.rules("dynamic_metadata: true"));
    let entries = |key: &str| json!({ "entries": [{ "key": key, "value": "x" }] });
    let body = json!({ "domain": "edge", "descriptors": [entries("user"), entries("path")] }).to_string();
    let post = async || {
        let length = body.len();
        let request = format!("POST /json HTTP/1.1\r\nHost: service\r\nContent-Length: {length}\r\n\r\n{body}");
        let response = Raw::connect(service.http).await.ask(request).await;
        serde_json::from_slice::<Value>(&response.body).expect("JSON")["dynamicMetadata"].take()
    };
    let of_call = json!({ "domain": "edge", "descriptors": [{ "entries": ["user=x"] }, { "entries": ["path=x"] }] });
    let mut expected = of_call.clone();
    expected["metadata"] = json!({ "tier": "gold", "list": [1, 2.5, "x", true, null], "path": { "is": "known" } });
    assert_eq!(post().await, expected);
    expected["metadata"] = json!({ "tier": "other", "path": { "is": "known" } });
    assert_eq!(post().await, expected, "the user is over the limit");
    let response = ask(&service.client().await, &["user=y"]).await;
    let metadata = response.dynamic_metadata.expect("metadata");
    assert!(metadata.windows(6).any(|part| part == b"user=y"), "{}", metadata.escape_ascii());
    let without = TestService::from_rules(&files.rules(""));
    assert_eq!(ask(&without.client().await, &["user=x"]).await.dynamic_metadata, None);
}

#[tokio::test]
async fn files_of_one_domain_are_merged_on_request() {
    let file = |key: &str| {
        format!("domain: edge\ndescriptors: [{{ key: {key}, rate_limit: {{ unit: hour, requests_per_unit: 1 }} }}]\n")
    };
    let files = Files::new("service-merged", &[&file("a"), &file("b")]);
    let service = TestService::from_rules(&files.rules("merge_domains: true"));
    assert_eq!(ask(&service.client().await, &["a=x", "b=x"]).await.remaining(), [(OK, 0), (OK, 0)]);
    let errors = |files: &Files, keys: &str| {
        tidegate::Gateway::parse_config(&files.rules(keys)).expect_err("an error").to_string()
    };
    assert!(errors(&files, "").contains("domain `edge` is already"), "{}", errors(&files, ""));
    let same = Files::new("service-same", &[&file("a"), &file("a")]);
    let error = errors(&same, "merge_domains: true");
    assert!(error.contains("1.yaml:2:15: a descriptor with the key `a` is already on line 2"), "{error}");
}
