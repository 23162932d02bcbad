//! Conversion of valid rule files to the configuration. Errors are tested in `tests/it/check.rs`.

use std::time::Duration;

mod bounds;
mod control_plane;
mod defaults;
pub(super) mod every_key;
mod fields;
mod locations;
mod misspelt;
mod patterns;
mod redisson;
mod route_keys;
mod service;
mod service_timeouts;
mod unknown;

use http::{HeaderName, Method};
use proptest::prelude::*;

use super::*;
use crate::values::access_log::AccessLogDestination;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::charge::Limiter;
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::cost::{Cost, HeaderCost};
use tidegate_rules::limits::rule::{OnMissingClient, OnStoreFailure};
use tidegate_rules::route::{HostPattern, PathPattern, ValueCondition};
use tidegate_rules::settings::store::{KeySecret, RedisUrl};
use tidegate_rules::settings::upstream::{Protocol, RetryOn, RetrySettings, Target, Timeouts};

const FULL: &str = r#"
listen:
  - 0.0.0.0:8080
  - { address: "[::1]:8081", max_connections: 5, max_connections_per_client: 2, max_requests: 100, max_streams: 20,
      header_timeout: 2s,
      idle_timeout: 1m30s, body_timeout: 20s, min_rate: 1KiB, max_fields: 50, max_field_bytes: 8KiB, max_target: 4KiB }
max_connections: 500
metrics: { buckets: [1ms, 25ms, 2s] }
admin: off
access_log: ./access.log
store:
  url: redis://user:pass@db:6380/2
  timeout: 20ms
  prefix: shop.
  pool_size: 4
  key_secret: sixteen bytes at least
clients: { trusted_proxies: [10.0.0.0/8, 192.0.2.1, "fd00::/8"], ipv6_prefix: 56 }
upstreams:
  api:
    targets: [http://127.0.0.1:9000, { url: "http://[::1]" }, builtin:echo]
    protocol: http2
    timeouts: { connect: 250ms, response: 5s, idle: 1h, total: 2h }
    retry: { attempts: 2, on: [connect, 503], budget: 5%, body: 1KiB }
    max_connections: 10
    queue: 0
    queue_timeout: 20ms
routes:
  - name: login
    match: { host: "*.example.com", path: "/login/{id}", methods: [POST, PURGE], headers: { X-Env: prod } }
    upstream: api
    limits:
      - { name: one, mode: PER_CLIENT, client: [ip, "header:x-key", "cookie:sid", "query:k", host, path],
          rate: 5, interval: 1m, algorithm: token_bucket, permits: 2, on_store_failure: deny, on_missing_client: skip }
      - { name: two, mode: OVERALL, rate: 2147483648, interval: 366d }
  - { name: rest, match: {}, upstream: api }
"#;

fn parse(text: &str) -> Config {
    Config::parse_for_gateway(text, &LibraryFiles).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(text: &str) -> String {
    Config::parse(text).expect_err("a text with errors").to_string()
}

#[test]
fn listeners_and_clients_are_read() {
    let config = parse(FULL);
    let address = |text| ListenAddress::parse(text).expect("an address");
    let seconds = Duration::from_secs;
    assert_eq!(
        config.listen,
        [
            Listen::new(address("0.0.0.0:8080")),
            Listen {
                max_connections: 5,
                max_connections_per_client: 2,
                max_requests: 100,
                max_streams: 20,
                header_timeout: seconds(2),
                idle_timeout: seconds(90),
                body_timeout: seconds(20),
                min_rate: 1024,
                max_fields: 50,
                max_field_bytes: 8192,
                max_target: 4096,
                ..Listen::new(address("[::1]:8081"))
            },
        ]
    );
    assert_eq!(config.max_connections, 500);
    assert_eq!(config.buckets, [1, 25, 2_000].map(Duration::from_millis));
    assert_eq!(
        (config.admin, config.access_log.destination),
        (None, AccessLogDestination::File("./access.log".into()))
    );
    let networks = ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"].map(|net| net.parse().expect("a network"));
    assert_eq!(config.rules.addresses.trusted_proxies, networks);
    assert_eq!(config.rules.addresses.ipv6_prefix, 56);
}

#[test]
fn store_and_upstreams_are_read() {
    let config = parse(FULL);
    let StoreSettings::Redis(redis) = config.store else { panic!("{:?}", config.store) };
    assert!(redis.url == RedisUrl::new("redis://user:pass@db:6380/2".into()), "{}", redis.url);
    assert_eq!((redis.timeout, redis.prefix.as_str(), redis.pool_size), (Duration::from_millis(20), "shop.", 4));
    assert_eq!(redis.key_secret, Some(KeySecret::derive(b"sixteen bytes at least")));
    let api = &config.upstreams["api"];
    let http = |authority: &'static str| Target::Http(http::uri::Authority::from_static(authority));
    assert_eq!(api.targets, [http("127.0.0.1:9000"), http("[::1]"), Target::Echo]);
    let (connect, response) = (Duration::from_millis(250), Duration::from_secs(5));
    let (idle, total) = (Duration::from_secs(3600), Some(Duration::from_secs(7200)));
    assert_eq!(api.timeouts, Timeouts { connect, response, idle, total });
    let on = vec![RetryOn::Connect, RetryOn::Unavailable];
    assert_eq!(api.retry, Some(RetrySettings { attempts: 2, on, budget_percent: 5, body: 1024 }));
    assert_eq!(api.queue_timeout, Duration::from_millis(20));
    assert_eq!((api.max_connections, api.queue, api.protocol), (10, 0, Protocol::Http2));
}

#[test]
fn routes_and_limits_are_read() {
    let config = parse(FULL);
    let routes: Vec<_> = config.rules.routes.iter().collect();
    let [login, rest] = routes.as_slice() else { panic!("{routes:?}") };
    assert_eq!((&*rest.name, rest.limits.len(), rest.action.upstream().map(|name| &**name)), ("rest", 0, Some("api")));
    assert_eq!(login.matcher.hosts, [HostPattern::Suffix(".example.com".into())]);
    assert_eq!(login.matcher.paths, [PathPattern::parse("/login/{id}").expect("a path")]);
    assert_eq!(login.matcher.methods, [Method::POST, Method::from_bytes(b"PURGE").expect("a method")]);
    assert_eq!(login.matcher.values, [ValueCondition::header(HeaderName::from_static("x-env"), "prod")]);

    let [one, two] = login.limits.as_slice() else { panic!("{:?}", login.limits) };
    let quota = |rate, interval| Quota::new(rate, interval, Algorithm::TokenBucket).expect("a quota");
    let limiter = |name: &str, mode, quota| Limiter::new(name.into(), mode, quota);
    assert_eq!(*one.limiter, limiter("{shop.tidegate:login}:one", Mode::PerClient, quota(5, 60_000)));
    assert_eq!(*two.limiter, limiter("{shop.tidegate:login}:two", Mode::Overall, quota(1 << 31, 366 * 86_400_000)));
    let key = ClientSource::Header(HeaderName::from_static("x-key"));
    let (cookie, query) = (ClientSource::Cookie("sid".into()), ClientSource::Query("k".into()));
    let all = vec![ClientSource::Ip, key, cookie, query, ClientSource::Host, ClientSource::Path];
    assert_eq!((&one.client, &one.permits, &two.permits), (&ClientSource::All(all), &Cost::Fixed(2), &Cost::Fixed(1)));
    assert_eq!((one.on_store_failure, two.on_store_failure), (OnStoreFailure::Deny, OnStoreFailure::Local));
    assert_eq!((one.on_missing_client, two.on_missing_client), (OnMissingClient::Skip, OnMissingClient::Deny));
}

#[test]
fn burst_of_gcra_defaults_to_its_rate() {
    let limits = "[{ name: a, mode: OVERALL, rate: 5, interval: 1s, algorithm: gcra, burst: 20, permits: 9 },
        { name: b, mode: OVERALL, rate: 5, interval: 1s, algorithm: gcra }]";
    let config = Config::parse(&format!("routes: [{{ name: r, match: {{}}, limits: {limits} }}]"));
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    let quotas = config.rules.routes.iter().flat_map(|route| &route.limits).map(|limit| limit.limiter.quota);
    let gcra = |burst| Quota::new(5, 1_000, Algorithm::Gcra { burst }).expect("a quota");
    assert_eq!(quotas.collect::<Vec<_>>(), [gcra(20), gcra(5)]);
}

#[test]
fn cost_from_a_header_has_a_default_and_a_maximum() {
    let cost = |permits: &str| {
        let text = "routes: [{name: a, match: {}, limits: [{name: b, mode: OVERALL, rate: 50, interval: 1s, permits: ";
        let config = Config::parse(&format!("{text}{permits} }}] }}]")).unwrap_or_else(|problems| panic!("{problems}"));
        let permits = config.rules.routes.iter().flat_map(|route| &route.limits).map(|limit| limit.permits.clone());
        permits.collect::<Vec<_>>()
    };
    let header = |default, max| [Cost::Header(HeaderCost { name: HeaderName::from_static("x-cost"), default, max })];
    assert_eq!(cost("{ header: X-Cost }"), header(1, None));
    assert_eq!(cost("{ header: X-Cost, default: 0, max: 50 }"), header(0, Some(50)));
}

#[test]
fn candidate_is_a_shadow_with_its_own_quota_and_bucket() {
    let config = parse(
        "listen: 127.0.0.1:0
upstreams: { a: { targets: builtin:echo } }
routes:
  - name: a
    match: {}
    upstream: a
    limits:
      - { name: b, mode: PER_CLIENT, client: 'header:k', rate: 9, interval: 1s, permits: 2, on_missing_client: skip,
          candidate: { rate: 5, interval: 1m } }
      - { name: c, mode: OVERALL, rate: 1, interval: 1s, shadow: true }",
    );
    let limits: Vec<_> = config.rules.routes.iter().flat_map(|route| &route.limits).collect();
    let names: Vec<_> = limits.iter().map(|limit| (limit.name.as_str(), limit.shadow)).collect();
    assert_eq!(names, [("b", false), ("b.candidate", true), ("c", true)]);
    assert_eq!(limits[1].limiter.name, "{tidegate:a}:b.candidate");
    assert_eq!((limits[1].limiter.quota.rate(), limits[1].limiter.quota.interval()), (5, 60_000));
    assert_eq!((&limits[1].client, &limits[1].permits), (&limits[0].client, &Cost::Fixed(2)));
}

#[test]
fn sliding_window_has_ten_segments_by_default() {
    let limit = |name: &str, more: &str| {
        format!("{{ name: {name}, mode: OVERALL, rate: 5, interval: 1m, algorithm: sliding_window{more} }}")
    };
    let limits = [limit("a", ""), limit("b", ", segments: 512")].join(", ");
    let config =
        Config::parse(&format!("routes: [{{ name: r, match: {{}}, limits: [{limits}] }}]")).expect("no errors");
    let routes: Vec<_> = config.rules.routes.iter().collect();
    let algorithms: Vec<_> = routes[0].limits.iter().map(|limit| limit.limiter.quota.algorithm()).collect();
    assert_eq!(algorithms, [10, 512].map(|segments| Algorithm::SlidingWindow { segments }));
}

#[test]
fn fixed_window_uses_calendar_units_and_time_zones() {
    let limit = |index: usize, interval: &str, more: &str| {
        format!("{{ name: l{index}, mode: OVERALL, rate: 5, interval: {interval}, algorithm: fixed_window{more} }}")
    };
    let expected = [
        ("second", "", Unit::Second, "UTC"),
        ("1s", "", Unit::Second, "UTC"),
        ("60s", "", Unit::Minute, "UTC"),
        ("1h", "", Unit::Hour, "UTC"),
        ("1d", ", timezone: Asia/Kolkata", Unit::Day, "Asia/Kolkata"),
        ("week", "", Unit::Week, "UTC"),
        ("month", ", timezone: europe/rome", Unit::Month, "Europe/Rome"),
    ];
    let limits: Vec<_> =
        (0..).zip(&expected).map(|(index, (interval, more, ..))| limit(index, interval, more)).collect();
    let config = Config::parse(&format!("routes: [{{ name: r, match: {{}}, limits: [{}] }}]", limits.join(", ")));
    let config = config.expect("no errors");
    let routes: Vec<_> = config.rules.routes.iter().collect();
    for (limit, (.., unit, zone)) in routes[0].limits.iter().zip(expected) {
        let quota = limit.limiter.quota;
        let calendar = Calendar::new(unit, zone).expect("a calendar");
        assert_eq!((quota.algorithm(), quota.interval()), (Algorithm::FixedWindow(calendar), unit.millis()));
    }
}

#[test]
fn absent_keys_have_defaults() {
    let config = parse(
        "listen: 127.0.0.1:0\nupstreams: {a: {targets: builtin:echo}}\nroutes: [{name: a, match: {}, upstream: a}]",
    );
    assert_eq!((config.admin, config.access_log), (Some(Config::DEFAULT_ADMIN), AccessLog::default()));
    assert!(matches!(config.store, StoreSettings::Memory { key_secret: None }), "{:?}", config.store);
    assert!(config.rules.addresses.trusted_proxies.is_empty());
}

#[test]
fn layer_needs_neither_listen_nor_upstreams() {
    let text =
        "routes:\n  - { name: a, match: { path: /a }, limits: [{ name: b, mode: OVERALL, rate: 1, interval: 1s }] }";
    let config = Config::parse(text).expect("a rule file for a layer");
    assert!(config.listen.is_empty() && config.rules.routes.iter().all(|route| route.action.upstream().is_none()));
    let limiter = config.rules.routes.iter().flat_map(|route| &route.limits).map(|limit| limit.limiter.name.as_str());
    assert_eq!(limiter.collect::<Vec<_>>(), ["{tidegate:a}:b"]);
    let errors = Config::parse_for_gateway(text, &LibraryFiles).expect_err("errors").to_string();
    assert!(errors.contains("needs `listen`") && errors.contains("needs `upstream`"), "{errors}");
}

#[test]
fn alias_stands_for_its_value() {
    let config = parse(
        "listen: 127.0.0.1:0\nupstreams: {a: &a {targets: [builtin:echo]}, b: *a}\n\
         routes: [{name: a, match: {}, upstream: b}]",
    );
    assert_eq!(config.upstreams["a"].targets, config.upstreams["b"].targets);
}

#[test]
fn error_repeated_by_an_alias_counts_once() {
    let text = "upstreams: {a: &a {targets: [nonsense]}, b: *a}\nroutes: [{name: a, match: {}, upstream: b}]";
    assert_eq!(problems(text).lines().last(), Some("1 error"));
}

#[test]
fn deep_nesting_is_rejected_early() {
    for text in ["[".repeat(10_000), "- ".repeat(10_000), "{a: ".repeat(10_000), "? ".repeat(10_000)] {
        let errors = problems(&text);
        let refused = ["nested more than 32 levels deep", "a key must be a word", "not YAML: "];
        assert!(refused.iter().any(|message| errors.contains(message)), "{errors}");
    }
    let chain: String = (1..100).map(|level| format!("a{level}: &a{level} [*a{}]\n", level - 1)).collect();
    assert!(problems(&format!("a0: &a0 [x]\n{chain}")).contains("nested more than 32 levels deep"));
}

#[test]
fn values_of_aliases_are_counted_before_copying() {
    let many = "x,".repeat(10_000);
    let errors = problems(&format!("a: &a [{many}]\nb: [{}]", "*a,".repeat(10_000)));
    assert!(errors.contains("more than 250000 values") && errors.ends_with("1 error"), "{errors}");
}

#[test]
fn text_above_one_mebibyte_is_not_parsed() {
    assert!(problems(&"[".repeat((1 << 20) + 1)).contains("the file is larger than 1048576 bytes (1 MiB)"));
    assert!(problems(&"#".repeat(1 << 20)).contains("the file is empty"));
}

#[test]
fn byte_order_mark_and_crlf_change_no_locations() {
    let errors = problems("\u{feff}routes: 5\r\nnonsense: 1\r\n");
    let lines: Vec<_> = errors.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(
        lines,
        ["1:9: `routes` must be a list, not `5`", "2:1: unknown key `nonsense` in the rule file", "2 errors"]
    );
}

/// Generates texts that resemble rule files: pieces of a rule file in random order.
fn similar_texts() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "routes",
        "listen",
        "store",
        "upstreams",
        "limits",
        "match",
        "name",
        "rate",
        "client",
        "url",
        "targets",
        ": ",
        ":",
        "\n",
        "\n  ",
        "\n    - ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&a ",
        "*a",
        "<<",
        "!t ",
        "? ",
        "|\n",
        ">-\n",
        "\"",
        "'",
        "#",
        "---\n",
        "...\n",
        "%TAG ! !\n",
        "%YAML 1.2\n",
        "\t",
        "~",
        "5",
        "-1",
        "1.5",
        "10s",
        "a",
        "é",
        "\u{feff}",
        "redis://",
        "http://",
        "@",
        "/",
        "\0",
        "\r\n",
        "\\x",
    ]);
    prop::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn random_text_does_not_panic(text in any::<String>()) {
        let _ = Config::parse_for_gateway(&text, &LibraryFiles);
    }

    #[test]
    fn random_keywords_do_not_panic(text in similar_texts()) {
        let _ = Config::parse_for_gateway(&text, &LibraryFiles);
    }

    #[test]
    fn truncated_rule_file_does_not_panic(start in 0..FULL.len(), length in 0..200_usize) {
        let end = (start + length).min(FULL.len());
        let _ = Config::parse_for_gateway(&format!("{}{}", &FULL[..start], &FULL[end..]), &LibraryFiles);
    }
}
