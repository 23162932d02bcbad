//! The rate limit service of a rule file.

use std::path::Path;

use tidegate_limit::algorithm::gcra::warm_up::WarmUp;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::limits::rule::OnStoreFailure;
use tidegate_rules::settings::store::StoreSettings;
use tidegate_service::{Domain, Entry};

use crate::{
    Config, IncludedText, LibraryFiles, ListenAddress, Problems, Purpose, RuleTexts, Service, Source, SourceFiles, load,
};

const RULES: &str = "
admin: off
service:
  grpc: 127.0.0.1:8081
  http: unix:/run/limits.sock
  algorithm: { default: gcra, domains: { calendar: fixed_window } }
  domains:
    - name: edge
      limits:
        - { name: per-user, match: { user: '*' }, mode: PER_CLIENT, rate: 100, interval: 1m }
        - { name: search, match: { generic_key: search, path: /v1/* }, mode: OVERALL, rate: 50, interval: 1s,
            on_store_failure: allow, shadow: true, algorithm: sliding_window, segments: 4 }
        - { name: admins, match: { user: admin-* }, mode: PER_CLIENT, rate: 9, interval: 10s, burst: 3, warm_up: 30s }
        - { name: code, match: { code: 404, first: true }, mode: OVERALL, rate: 1, interval: 1d }
    - name: calendar
      limits: [{ name: month, match: { user: '*' }, mode: PER_CLIENT, rate: 5, interval: month, timezone: Europe/Rome }]
";

fn parse(text: &str) -> Config {
    Config::parse_for_gateway(text, &LibraryFiles).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

fn service(config: &Config) -> &Service {
    config.service.as_ref().expect("a service")
}

fn domain<'c>(config: &'c Config, name: &str) -> &'c Domain {
    service(config).domains.get(name).expect("a domain")
}

/// Returns the name of the limit that a descriptor finds.
fn found<'d>(domain: &'d Domain, entries: &[(&str, &str)]) -> Option<&'d str> {
    let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
    domain.trace(&entries).limit.map(|limit| limit.name)
}

#[test]
fn service_needs_no_routes_and_no_listener() {
    let config = parse(RULES);
    assert!(config.listen.is_empty() && config.rules.routes.iter().next().is_none());
    let Service { grpc, http, files, control_plane: _, domains } = service(&config);
    let grpc = grpc.as_ref().expect("an address");
    assert_eq!(grpc.address, ListenAddress::parse("127.0.0.1:8081").expect("an address"));
    assert_eq!(http.as_ref().map(ToString::to_string).as_deref(), Some("unix:/run/limits.sock"));
    assert!(grpc.tls.is_none() && files.is_empty() && domains.iter().count() == 2);
}

#[test]
fn limits_of_a_domain_have_their_own_quota() {
    let config = parse(RULES);
    let limits: Vec<_> = domain(&config, "edge").rule_limits().filter_map(|named| named.limit).collect();
    let quota = |rate, interval, algorithm| Quota::new(rate, interval, algorithm).expect("a quota");
    let expected = [
        ("per-user", Mode::PerClient, quota(100, 60_000, Algorithm::Gcra { burst: 100 })),
        ("search", Mode::Overall, quota(50, 1_000, Algorithm::SlidingWindow { segments: 4 })),
        ("admins", Mode::PerClient, quota(9, 10_000, Algorithm::GcraWarmUp(WarmUp { burst: 3, millis: 30_000 }))),
        ("code", Mode::Overall, quota(1, 86_400_000, Algorithm::Gcra { burst: 1 })),
    ];
    let found: Vec<_> = limits.iter().map(|limit| (&*limit.name, limit.mode(), limit.limiter.quota)).collect();
    assert_eq!(found, expected);
    assert_eq!((limits[1].on_store_failure, limits[1].shadow), (OnStoreFailure::Allow, true));
    assert_eq!((limits[0].on_store_failure, limits[0].shadow), (OnStoreFailure::Local, false));
    assert_eq!(limits[0].limiter.name, "{tidegate:/edge}:per-user");
    assert_eq!(limits[0].location.line, 10);
    let month = domain(&config, "calendar").rule_limits().next().and_then(|named| named.limit).expect("a limit");
    let rome = Calendar::new(Unit::Month, "Europe/Rome").expect("a time zone");
    assert_eq!(month.limiter.quota.algorithm(), Algorithm::FixedWindow(rome));
}

#[test]
fn descriptor_finds_the_limit_with_its_keys() {
    let config = parse(RULES);
    let find = |entries: &[(&str, &str)]| found(domain(&config, "edge"), entries);
    assert_eq!(find(&[("user", "alice")]), Some("per-user"));
    assert_eq!(find(&[("user", "admin-1")]), Some("admins"), "`*` alone is the last");
    assert_eq!(find(&[("generic_key", "search"), ("path", "/v1/x")]), Some("search"));
    assert_eq!(find(&[("path", "/v1/x"), ("generic_key", "search")]), None, "another order");
    assert_eq!(find(&[("code", "404"), ("first", "true")]), Some("code"));
    assert_eq!(find(&[("code", "404")]), None);
}

/// Without `listen`, no client could use the routes; without `routes`, the listener.
#[test]
fn listener_and_routes_come_together() {
    let error = |more: &str| {
        let text = format!("{RULES}{more}");
        Config::parse_for_gateway(&text, &LibraryFiles).expect_err("an error").to_string()
    };
    assert!(error("listen: 127.0.0.1:80\n").contains("the rule file needs `routes`"));
    assert!(error("routes: [{ name: a, match: {}, respond: { status: 204 } }]\n").contains("a gateway needs `listen`"));
    let both = "listen: 127.0.0.1:80\nroutes: [{ name: a, match: {}, respond: { status: 204 } }]\n";
    assert_eq!(parse(&format!("{RULES}{both}")).listen.len(), 1);
}

#[test]
fn saved_texts_replace_the_files_of_descriptors() {
    let main = "service: { grpc: 127.0.0.1:8081, descriptors: ['*.yaml', '?none.yaml'] }";
    let file = |name: &str| {
        let text =
            format!("domain: {name}\ndescriptors: [{{ key: k, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]\n");
        IncludedText { path: format!("{name}.yaml").into(), team: None, text: Some(text.into()) }
    };
    let texts = RuleTexts::new(main.into(), vec![file("a"), file("b")]);
    let source = Source { texts: Some(&texts), name: Path::new("rules.yaml"), ..Source::text(Purpose::Gateway) };
    let load = |main: &str| -> Result<Config, Problems> { load::run(main.into(), source, &mut SourceFiles::default()) };
    let config = load(main).expect("valid texts");
    assert_eq!(service(&config).files, ["./a.yaml", "./b.yaml"].map(|name| name.trim_start_matches("./")));
    assert_eq!(found(domain(&config, "b"), &[("k", "x")]), Some("k"));
    let error = load(&main.replace("?none", "none")).expect_err("an error").to_string();
    assert!(error.contains("`none.yaml` is not among the saved files"), "{error}");
}

/// A proxy waits for an answer for a shorter time than for a response.
#[test]
fn service_shortens_the_default_timeout_of_the_store() {
    let timeout = |text: &str| match parse(text).store {
        StoreSettings::Redis(redis) => redis.timeout.as_millis(),
        StoreSettings::Memory { .. } => panic!("no Redis: {text}"),
    };
    let store = "store: redis://127.0.0.1:6379";
    assert_eq!(timeout(&format!("{store}{RULES}")), 12);
    assert_eq!(timeout(&format!("store: {{ url: 'redis://127.0.0.1:6379', timeout: 50ms }}{RULES}")), 50);
    assert_eq!(
        timeout(&format!("{store}\nlisten: 127.0.0.1:8080\nroutes: [{{ name: a, match: {{}}, respond: {{}} }}]")),
        50
    );
}
