//! Tests of Kong: the traps of its configuration, and decisions about traces by its own laws.

use crate::format::Format;
use crate::options::Options;
use crate::sources::texts::Texts;
use crate::testing::{converted, converted_with, finding, shown};
use crate::tests::laws::kong::{Calendar, Sliding};
use crate::tests::laws::{Request, at, decisions};
use crate::{Conversion, Verdict, convert};

const HEAD: &str = "_format_version: '3.0'\n";

fn kong(text: &str) -> Conversion {
    converted(Format::Kong, [("kong.yaml", &format!("{HEAD}{text}"))])
}

#[test]
fn periods_are_windows_of_the_calendar() {
    let kong = kong(
        "services:\n- url: http://api:9000\n  routes: [{ name: all, paths: [/] }]\n  plugins:\n  - name: rate-limiting\n    \
         config: { second: 2, minute: 5, limit_by: ip }\n",
    );
    let mut trace = at("/", [100, 200, 900, 1_000, 1_001, 1_999, 2_000, 2_001, 58_000, 59_999, 60_000, 60_001, 60_002]);
    trace.push(Request { client: 2, time: 60_003, target: "/", ..Request::default() });
    let mut law = Calendar::new([(2, 1_000), (5, 60_000)]);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(request.client, request.time)).collect();
    assert_eq!(expected.iter().filter(|admitted| **admitted).count(), 8);
    assert_eq!(decisions(&kong, &trace), expected);
    assert_eq!(finding(&kong, "rate-limiting.minute"), (Verdict::Same, ""));
}

#[test]
fn year_has_no_boundary_in_the_rule_file() {
    let kong = kong(
        "services:\n- url: http://api:9000\n  routes: [{ paths: [/] }]\n  plugins:\n  - { name: rate-limiting, config: \
         { year: 3, limit_by: service } }\n",
    );
    assert_eq!(finding(&kong, "rate-limiting.year").0, Verdict::Stricter);
    // The year of Kong ends after 31 days, and the rule file counts 366 days.
    let trace = at("/", [0, 1, 2, 3, 31 * 86_400_000, 366 * 86_400_000]);
    assert_eq!(decisions(&kong, &trace), [true, true, true, false, false, true]);
}

#[test]
fn most_specific_plugin_applies_alone() {
    let kong = kong(
        r"
services:
- name: shop
  url: http://shop:9000
  plugins: [{ name: rate-limiting, config: { minute: 3, limit_by: ip } }]
  routes:
  - { name: cart, paths: [/cart], strip_path: false, plugins: [{ name: rate-limiting, config: { minute: 1, limit_by: ip } }] }
  - { name: list, paths: [/list], strip_path: false }
  - { name: item, paths: [/item], strip_path: false }
- name: other
  url: http://other:9000
  routes: [{ name: other, paths: [/other], strip_path: false }]
plugins:
- { name: rate-limiting, config: { minute: 2, limit_by: ip } }
- { name: rate-limiting, enabled: false, service: shop, config: { minute: 9 } }
",
    );
    let mut trace = Vec::new();
    for target in ["/cart", "/cart", "/list", "/item", "/list", "/item", "/other", "/other", "/other"] {
        trace.extend(at(target, [1_000]));
    }
    // The routes of the service share its counter, and the plugin of a route replaces it.
    let expected = [true, false, true, true, true, false, true, true, false];
    assert_eq!(decisions(&kong, &trace), expected, "{}", kong.rules);
}

#[test]
fn consumers_with_own_plugins_get_own_routes() {
    let kong = kong(
        r"
services:
- name: api
  url: http://api:9000
  routes: [{ name: api, paths: [/] }]
  plugins:
  - { name: key-auth, config: { key_names: [x-key], key_in_query: false, hide_credentials: true } }
  - { name: rate-limiting, config: { minute: 1 } }
consumers:
- username: ann
  keyauth_credentials: [{ key: secret-of-ann }]
  plugins: [{ name: rate-limiting, config: { minute: 3, policy: local } }]
- { username: bob, keyauth_credentials: [{ key: secret-of-bob }] }
",
    );
    let of = |key: &'static str, time| Request { key: Some(key), ..at("/", [time]).remove(0) };
    let trace: Vec<_> = ["ann", "ann", "ann", "ann", "bob", "bob"].into_iter().map(|key| of(key, 5)).collect();
    assert_eq!(decisions(&kong, &trace), [true, true, true, false, true, false]);
    assert!(!format!("{}{}", kong.rules, kong.report).contains("secret-of"));
    assert!(!kong.more_files[0].text.contains("secret-of"));
    insta::assert_snapshot!("consumers", shown(&kong));
}

#[test]
fn local_counters_are_summed_over_replicas() {
    let text = "_format_version: '3.0'\nservices:\n- url: http://api:9000\n  routes: [{ paths: [/] }]\n  plugins:\n  \
                - { name: rate-limiting, config: { minute: 2, limit_by: ip, policy: POLICY, redis: { host: r } } }\n";
    let replicas = |policy: &str| {
        let options = Options { format: None, replicas: 3.try_into().unwrap(), ..Options::default() };
        converted_with(&options, [("kong.yaml", &text.replace("POLICY", policy))])
    };
    let (local, redis) = (replicas("local"), replicas("redis"));
    assert!(local.rules.contains("rate: 6"), "{}", local.rules);
    assert_eq!(finding(&local, "rate-limiting.minute").0, Verdict::Looser);
    assert!(redis.rules.contains("rate: 2") && redis.rules.contains("redis://r:6379"), "{}", redis.rules);
    assert!(redis.rules.contains("on_store_failure: allow"), "{}", redis.rules);
    assert_eq!(finding(&redis, "rate-limiting.minute").0, Verdict::Same);
}

#[test]
fn other_parts_of_requests_fall_back_to_the_address() {
    let kong = kong(
        r"
services:
- name: a
  url: http://api:9000
  routes:
  - { name: header, paths: [/h], plugins: [{ name: rate-limiting, config: { hour: 1, limit_by: header, header_name: x-team } }] }
  - { name: path, paths: [/p], plugins: [{ name: rate-limiting, config: { hour: 1, limit_by: path, path: /p/a } }] }
",
    );
    let with = |target, team: Option<&'static str>, client| Request {
        headers: team.map(|team| ("x-team", team)).into_iter().collect(),
        client,
        ..at(target, [5]).remove(0)
    };
    let trace = [
        with("/h", Some("red"), 1),
        with("/h", Some("red"), 2),
        with("/h", Some("blue"), 2),
        with("/h", None, 1),
        with("/h", None, 2),
        with("/h", None, 2),
        with("/p/a", None, 1),
        with("/p/a", None, 2),
        with("/p/b", None, 1),
        with("/p/c", None, 1),
        with("/p/b", None, 2),
    ];
    let expected = [true, false, true, true, true, false, true, false, true, false, true];
    assert_eq!(decisions(&kong, &trace), expected, "{}", kong.rules);
}

#[test]
fn windows_of_the_advanced_plugin_are_pairs() {
    let kong = kong(
        "services:\n- url: http://api:9000\n  routes: [{ paths: [/] }]\n  plugins:\n  - name: rate-limiting-advanced\n    \
         config: { limit: [2, 3], window_size: [1, 60], window_type: fixed, identifier: ip, strategy: local }\n",
    );
    let trace = at("/", [0, 1, 2, 1_000, 1_001, 59_999, 60_000]);
    let mut law = Calendar::new([(2, 1_000), (3, 60_000)]);
    let expected: Vec<_> = trace.iter().map(|request| law.admits(request.client, request.time)).collect();
    assert_eq!(decisions(&kong, &trace), expected);
    assert_eq!(finding(&kong, "rate-limiting-advanced.limit").0, Verdict::Same);
}

#[test]
fn sliding_windows_differ_as_the_report_says() {
    let text = |penalty: bool| {
        format!(
            "services:\n- url: http://api:9000\n  routes: [{{ paths: [/] }}]\n  plugins:\n  - name: \
             rate-limiting-advanced\n    config: {{ limit: [4], window_size: [10], identifier: ip, disable_penalty: \
             {} }}\n",
            !penalty
        )
    };
    let steady = at("/", std::array::from_fn::<u64, 40, _>(|number| 317 + number as u64 * 1_301));
    for penalty in [true, false] {
        let kong = kong(&text(penalty));
        let mut law = Sliding::new(4.0, 10_000, penalty);
        let admitted = steady.iter().filter(|request| law.admits(request.time)).count();
        let own = decisions(&kong, &steady).into_iter().filter(|admitted| *admitted).count();
        assert_eq!(finding(&kong, "rate-limiting-advanced.limit").0, Verdict::Looser);
        assert!(own > admitted, "{own} {admitted}");
    }
    // Four requests at the end of a window: Kong admits two more within ten seconds.
    let burst = at("/", [19_000, 19_001, 19_002, 19_003, 25_000, 25_001]);
    let mut law = Sliding::new(4.0, 10_000, false);
    assert!(burst.iter().all(|request| law.admits(request.time)));
    assert_eq!(decisions(&kong(&text(false)), &burst)[4..], [false, false]);
}

#[test]
fn routes_are_in_the_order_of_kong() {
    let kong = kong(
        r"
services:
- name: a
  url: http://a:9000/base
  connect_timeout: 2000
  retries: 0
  routes:
  - { name: short, paths: [/], strip_path: false }
  - { name: long, paths: [/api/orders, /o], preserve_host: true }
  - { name: host, hosts: [api.example.com, '*.example.org', 'example.*'] }
  - { name: both, hosts: [api.example.com], paths: ['~/v\d+/x$'], methods: [post], headers: { x-env: [prod] } }
  - { name: tls, protocols: [https], paths: [/secure] }
  - { name: tcp, protocols: [tcp], destinations: [{ port: 80 }] }
  - { name: request-buffering, paths: [/buffer], https_redirect_status_code: 301, snis: [a.example.com] }
",
    );
    insta::assert_snapshot!("routes", shown(&kong));
}

#[test]
fn upstreams_and_other_plugins_are_converted() {
    let kong = kong(
        r"
upstreams:
- name: pool
  algorithm: consistent-hashing
  hash_on: header
  hash_on_header: x-user
  targets: [{ target: '10.0.0.1:9000', weight: 200 }, { target: 10.0.0.2, weight: 100 }, { target: '10.0.0.3:1', weight: 0 }]
  healthchecks: { active: { http_path: /health, healthy: { interval: 5, successes: 1 } }, passive: {} }
services:
- { name: pool, host: pool, protocol: https, read_timeout: 5000, write_timeout: 5000, tls_verify: false }
- { name: bad, protocol: tcp, host: db }
routes:
- { name: pool, service: pool, paths: [/] }
- { name: gone, service: { name: bad }, paths: [/gone] }
plugins:
- { name: cors, config: { origins: ['https://app.example.com'], methods: [GET], credentials: true, max_age: 60 } }
- { name: request-size-limiting, config: { allowed_payload_size: 8 } }
- { name: request-termination, route: gone, config: { status_code: 410, message: 'gone {route}' } }
- { name: prometheus }
- { name: jwt, route: nowhere }
- { name: ip-restriction, config: { deny: [10.0.0.0/8] } }
- { name: rate-limiting, service: pool, config: { day: 5, limit_by: service, error_code: 420, error_message: 'slow {limit}' } }
certificates: [{ cert: x }]
",
    );
    insta::assert_snapshot!("upstreams", shown(&kong));
}

#[test]
fn grpc_services_use_http2() {
    let kong = kong("services: [{ url: 'grpc://a:9000', routes: [{ paths: [/] }] }]\n");
    assert!(kong.rules.contains("targets: [http://a:9000], protocol: http2"), "{}", kong.rules);
}

#[test]
fn references_to_nothing_are_lost() {
    let kong = kong("plugins: [{ name: rate-limiting, service: nowhere, config: { minute: 1 } }]\n");
    assert_eq!(finding(&kong, "service: nowhere").0, Verdict::Lost);
}

#[test]
fn too_many_routes_of_consumers_are_an_error() {
    let limit = "plugins: [{ name: rate-limiting, config: { minute: 1 } }]";
    let consumers: String = (0..300).map(|number| format!("- {{ username: c{number}, {limit} }}\n")).collect();
    let routes: String = (0..100).map(|number| format!("  - {{ paths: [/{number}] }}\n")).collect();
    let text = format!(
        "{HEAD}plugins: [{{ name: key-auth }}]\nservices:\n- url: http://a\n  routes:\n{routes}consumers:\n{consumers}"
    );
    let texts: Texts = [("kong.yaml", text.as_str())].into_iter().collect();
    let error = convert(&["kong.yaml".into()], &texts, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "the rule file would have more than 20000 routes");
}
