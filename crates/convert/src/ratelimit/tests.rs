//! Tests of domains and configurations of Envoy, with their decisions.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use tidegate_config::Config;
use tidegate_replay::verdicts::{TracedRequest, of_trace};

use crate::format::Format;
use crate::options::Options;
use crate::report::Verdict;
use crate::testing::{converted, converted_with, shown};
use crate::{Conversion, Texts, convert, ratelimit};

/// The files that docs/migrate.md quotes.
static ENVOY: LazyLock<String> = LazyLock::new(|| example("envoy.yaml"));
static DOMAIN: LazyLock<String> = LazyLock::new(|| example("ratelimit.yaml"));

/// A Thursday at midnight in UTC, in milliseconds since the Unix epoch.
const START: u64 = 1_767_225_600_000;

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/migrate/envoy");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// A bootstrap with these virtual hosts, and a filter of the domain `api`.
fn envoy(hosts: &str) -> String {
    format!(
        "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 0.0.0.0, port_value: 80 }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          use_remote_address: true
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config: {{ domain: api, failure_mode_deny: true }}
          route_config:
            virtual_hosts: {hosts}
  clusters:
  - {{ name: app, load_assignment: {{ endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: app, port_value: 80 }} }} }} }}] }}] }} }}
"
    )
}

/// Converts virtual hosts with the domain `api`, which has these descriptors.
#[track_caller]
fn with_domain(hosts: &str, descriptors: &str) -> Conversion {
    let domain = format!("domain: api\ndescriptors: {descriptors}\n");
    converted(Format::Ratelimit, [("envoy.yaml", &envoy(hosts)), ("api.yaml", &domain)])
}

/// Returns whether the rules admit each request: its time in milliseconds, its client, and its target.
fn decisions(conversion: &Conversion, trace: &[(u64, u8, &str)]) -> Vec<bool> {
    let config = Config::parse(&conversion.rules).unwrap();
    let request = |&(time, client, target)| TracedRequest {
        time: START + time,
        client: IpAddr::from([192, 0, 2, client]),
        target,
        status: 200,
    };
    let trace: Vec<_> = trace.iter().map(request).collect();
    of_trace(&config.rules, &trace)
}

/// The law of envoyproxy/ratelimit (src/limiter/base_limiter.go): a counter for each descriptor and window of the clock. A
/// request adds one to the counters of all its descriptors, and is over the limit if one of them is above its rate.
#[derive(Default)]
struct Service(HashMap<(String, u64), u64>);

impl Service {
    /// Decides about a request with these descriptors: each with its rate, and its unit in milliseconds.
    fn admits(&mut self, time: u64, descriptors: &[(String, u64, u64)]) -> bool {
        let mut admits = true;
        for (descriptor, rate, unit) in descriptors {
            let count = self.0.entry((descriptor.clone(), (START + time) / unit)).or_insert(0);
            *count += 1;
            admits &= *count <= *rate;
        }
        admits
    }
}

#[test]
fn examples_become_routes_with_their_limits() {
    let conversion = converted(Format::Ratelimit, [("envoy.yaml", &ENVOY), ("ratelimit.yaml", &DOMAIN)]);
    insta::assert_snapshot!(shown(&conversion));
}

#[test]
fn domains_alone_become_a_service_of_the_same_files() {
    // A check of the rules reads the file.
    let path = "../../examples/migrate/envoy/ratelimit.yaml";
    let files = [(path, DOMAIN.as_str())];
    insta::assert_snapshot!(shown(&converted(Format::Ratelimit, files)));
    let options = Options { folder: Some("/etc/limits".into()), ..Options::default() };
    let moved = convert(&[path.into()], &Texts::from(files), &options).unwrap();
    assert!(moved.rules.contains(&format!("descriptors: /etc/limits/{path}")), "{}", moved.rules);
}

#[test]
fn domain_of_standard_input_is_an_error() {
    let error = convert(&["-".into()], &Texts::from([("-", DOMAIN.as_str())]), &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "-:2: the rules name the file of a domain: give its path instead of `-`");
}

#[test]
fn formats_are_recognized_by_their_content() {
    assert!(ratelimit::recognizes("a", &DOMAIN) && ratelimit::recognizes("a", &ENVOY));
    assert!(ratelimit::recognizes("a", "{\"domain\": \"a\", \"descriptors\": []}"));
    assert!(!ratelimit::recognizes("a", "domain: a\nother: descriptors\n"));
    assert!(!ratelimit::recognizes("a", "server { }"));
}

#[test]
fn hosts_have_the_precedence_of_envoy() {
    let hosts = "
            - { name: all, domains: ['*'], routes: [{ match: { prefix: / }, direct_response: { status: 200 } }] }
            - { name: wild, domains: ['*.a.com'], routes: [{ match: { path: /x }, direct_response: { status: 201 } }] }
            - { name: one, domains: [b.a.com, 'c.com:80'], routes: [{ match: { prefix: /y }, direct_response: { status: 202 } }] }";
    let conversion = with_domain(hosts, "[]");
    insta::assert_snapshot!(conversion.rules);
}

#[test]
fn keys_in_camel_case_and_regexes_are_read() {
    let route = r#"{"match": {"safeRegex": {"regex": "/api/(a|b)/.*"}}, "route": {"cluster": "app"}}"#;
    let text = format!(r#"{{"virtualHosts": [{{"name": "h", "domains": ["*"], "routes": [{route}]}}]}}"#);
    let conversion = converted(Format::Ratelimit, [("routes.json", &text)]);
    assert!(conversion.rules.contains("path: [/api/a/**, /api/b/**]"), "{}", conversion.rules);
    assert_eq!(crate::testing::finding(&conversion, "safe_regex").0, Verdict::Same);
}

#[test]
fn values_of_rules_become_conditions() {
    let hosts = "
            - name: all
              domains: ['*']
              routes:
              - match: { prefix: / }
                route:
                  cluster: app
                  rate_limits:
                  - actions: [{ request_headers: { header_name: X-Plan, descriptor_key: plan } }, { remote_address: {} }]
                  - actions: [{ header_value_match: { descriptor_value: bot, headers: [{ name: user-agent, string_match: { contains: bot } }] } }]
                  - actions: [{ dynamic_metadata: { descriptor_key: a } }]
                  - stage: 1
                    actions: [{ remote_address: {} }]";
    let descriptors = "
- key: plan
  value: free
  descriptors: [{ key: remote_address, rate_limit: { unit: minute, requests_per_unit: 1 } }]
- key: plan
  value: 'team-*'
  descriptors: [{ key: remote_address, rate_limit: { unit: hour, requests_per_unit: 10, name: team } }]
- key: plan
  descriptors: [{ key: remote_address, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 100 } }]
- { key: header_match, value: bot, rate_limit: { unit: week, requests_per_unit: 5 } }
- { key: unused, rate_limit: { unit: day, requests_per_unit: 5 } }
- { key: remote_address, rate_limit: { unlimited: true } }";
    let conversion = with_domain(hosts, descriptors);
    insta::assert_snapshot!(shown(&conversion));
}

#[test]
fn equal_descriptors_of_routes_share_a_limit() {
    let hosts = "
            - name: all
              domains: ['*']
              rate_limits: [{ actions: [{ remote_address: {} }] }]
              routes:
              - { match: { path: /a }, route: { cluster: app } }
              - { match: { path: /b }, route: { cluster: app, rate_limits: [{ actions: [{ generic_key: { descriptor_value: b } }] }] } }
              - { match: { path: /c }, route: { cluster: app, include_vh_rate_limits: true, rate_limits: [{ actions: [{ generic_key: { descriptor_value: c } }] }] } }";
    let descriptors = "
- { key: remote_address, rate_limit: { unit: minute, requests_per_unit: 2 } }
- { key: generic_key, rate_limit: { unit: minute, requests_per_unit: 3 } }";
    let conversion = with_domain(hosts, descriptors);
    assert_eq!(conversion.report.count(Verdict::Lost), 0, "{}", conversion.report);
    let trace = [(0, 1, "/a"), (1, 1, "/c"), (2, 1, "/a"), (3, 1, "/c"), (4, 1, "/b"), (5, 1, "/b"), (6, 1, "/b")];
    assert_eq!(decisions(&conversion, &trace), [true, true, false, false, true, true, true], "{}", conversion.rules);
    assert_eq!(decisions(&conversion, &[(60_000, 1, "/a"), (61_000, 2, "/a")]), [true, true]);
}

#[test]
fn buckets_of_processes_are_added_up() {
    let local = "{ token_bucket: { max_tokens: 2, tokens_per_fill: 1, fill_interval: 1s }, filter_enabled: { default_value: { numerator: 100 } }, filter_enforced: { default_value: { numerator: 100 } } }";
    let hosts = format!(
        "[{{ name: all, domains: ['*'], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: app }}, typed_per_filter_config: {{ envoy.filters.http.local_ratelimit: {local} }} }}] }}]"
    );
    let file = envoy(&hosts).replace(
        "          - name: envoy.filters.http.ratelimit\n",
        "          - { name: envoy.filters.http.local_ratelimit, typed_config: { stat_prefix: a } }\n          - name: envoy.filters.http.ratelimit\n",
    );
    let trace: Vec<_> = (0..6).map(|number| (number * 100, 1, "/")).collect();
    for (replicas, granted, verdict) in [(1, 2, Verdict::Same), (2, 5, Verdict::Looser)] {
        let replicas = std::num::NonZeroU32::new(replicas).unwrap();
        let options = Options { format: Some(Format::Ratelimit), replicas, folder: None };
        let conversion = converted_with(&options, [("envoy.yaml", &file), ("api.yaml", &DOMAIN)]);
        let decided = decisions(&conversion, &trace);
        assert_eq!(decided.iter().filter(|admits| **admits).count(), granted, "{}", conversion.rules);
        let bucket = conversion.report.findings.iter().find(|finding| finding.setting.starts_with("token_bucket"));
        assert_eq!(bucket.unwrap().verdict, verdict);
    }
}

#[test]
fn invalid_domains_are_errors_with_their_place() {
    let options = Options { format: Some(Format::Ratelimit), ..Options::default() };
    for (text, message) in [
        ("domain: a\ndescriptors:\n- value: b\n", "a.yaml:3: a descriptor has no `key`"),
        (
            "domain: a\ndescriptors: [{ key: b, rate_limit: { unit: fortnight } }]\n",
            "a.yaml:2: `fortnight` is not a unit",
        ),
    ] {
        let files = Texts::from([("a.yaml", text)]);
        assert_eq!(convert(&["a.yaml".into()], &files, &options).unwrap_err().to_string(), message);
    }
}

proptest! {
    /// With one descriptor, the rules decide as the service does.
    #[test]
    fn one_descriptor_decides_as_the_service(steps in prop::collection::vec((0_u64..20_000, 1_u8..4), 1..60)) {
        let hosts = "[{ name: all, domains: ['*'], rate_limits: [{ actions: [{ remote_address: {} }] }], routes: [{ match: { prefix: / }, route: { cluster: app } }] }]";
        let conversion = with_domain(hosts, "[{ key: remote_address, rate_limit: { unit: minute, requests_per_unit: 3 } }]");
        let (mut time, mut service, mut trace, mut expected) = (0, Service::default(), Vec::new(), Vec::new());
        for (step, client) in steps {
            time += step;
            trace.push((time, client, "/"));
            expected.push(service.admits(time, &[(client.to_string(), 3, 60_000)]));
        }
        prop_assert_eq!(decisions(&conversion, &trace), expected);
    }

    /// With several descriptors, the rules admit more: a rejected request is charged to none. The report says so.
    #[test]
    fn several_descriptors_are_only_looser(steps in prop::collection::vec((0_u64..20_000, 1_u8..4), 1..60)) {
        let conversion = converted(Format::Ratelimit, [("envoy.yaml", &ENVOY), ("ratelimit.yaml", &DOMAIN)]);
        prop_assert!(conversion.report.findings.iter().any(|finding| finding.verdict == Verdict::Looser));
        let (mut time, mut service, mut trace, mut expected) = (0, Service::default(), Vec::new(), Vec::new());
        for (step, client) in steps {
            time += step;
            trace.push((time, client, "/api/x"));
            let descriptors = [(client.to_string(), 5, 60_000), ("total".to_owned(), 10, 60_000)];
            expected.push(service.admits(time, &descriptors));
        }
        let decided = decisions(&conversion, &trace);
        prop_assert!(decided.iter().zip(&expected).all(|(decided, expected)| decided >= expected));
    }
}
