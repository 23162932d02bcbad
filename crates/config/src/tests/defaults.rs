//! `defaults`: what routes inherit, and from where.

use crate::Config;
use tidegate_rules::route::{Action, FieldChanges, FieldValue, Route};

const FILE: &str = "upstreams: { api: { targets: ['builtin:echo'] } }
limits: { daily: { mode: OVERALL, rate: 9, interval: day, algorithm: fixed_window } }
defaults:
  timeout: 5s
  max_body: 1KiB
  limits:
    - daily
    - { name: base, mode: OVERALL, rate: 1, interval: 1s, charge_on: 404 }
  request_headers: { set: { X-A: '1', X-B: '1' }, remove: [X-C] }
  response_headers: { set: { Server: default } }
routes:";

/// Returns the route with these keys.
fn route(keys: &str) -> Route {
    let config = Config::parse(&format!("{FILE}\n  - {{ name: own, match: {{}}, {keys} }}")).expect("rules");
    config.rules.routes.iter().next().expect("a route").clone()
}

/// Returns the name and the rate of each limit.
fn limits(route: &Route) -> Vec<(&str, u32)> {
    route.limits.iter().map(|limit| (limit.name.as_str(), limit.limiter.quota.rate())).collect()
}

fn inherited(route: &Route) -> Vec<String> {
    route.inherited.iter().map(|value| format!("{} {}", value.key, value.location)).collect()
}

/// Returns the fields that are set and removed.
fn changes(changes: Option<&FieldChanges>) -> Vec<String> {
    let changes = changes.expect("changes");
    let set = changes.set.iter().map(|(name, value)| match value {
        FieldValue::Fixed(value) => format!("{name}={}", value.to_str().expect("ASCII")),
        FieldValue::Template(template) => format!("{name}={template}"),
    });
    set.chain(changes.remove.iter().map(|name| format!("-{name}"))).collect()
}

#[test]
fn route_inherits_the_keys_that_it_does_not_set() {
    let all = route("upstream: api");
    assert_eq!((all.timeout.map(|timeout| timeout.as_secs()), all.max_body), (Some(5), 1024));
    assert_eq!(limits(&all), [("daily", 9), ("base", 1)]);
    assert_eq!(all.limits[1].location.line, 8);
    assert_eq!(changes(all.response_headers.as_deref()), ["server=default"]);
    assert_eq!(
        inherited(&all),
        [
            "timeout <text>:4",
            "max_body <text>:5",
            "limits.daily <text>:7",
            "limits.base <text>:8",
            "request_headers.set.X-A <text>:9",
            "request_headers.set.X-B <text>:9",
            "request_headers.remove.X-C <text>:9",
            "response_headers.set.Server <text>:10",
        ]
    );
    let own =
        route("upstream: api, timeout: 1s, max_body: 2KiB, limits: [], request_headers: none, response_headers: none");
    assert_eq!((own.timeout.map(|timeout| timeout.as_secs()), own.max_body), (Some(1), 2048));
    assert!(own.limits.is_empty() && own.request_headers.is_none() && own.response_headers.is_none());
    assert!(own.inherited.is_empty());
    let none = route("upstream: api, timeout: none, max_body: none, limits: none");
    assert_eq!((none.timeout, none.max_body, none.limits.len()), (None, Route::DEFAULT_MAX_BODY, 0));
}

#[test]
fn limits_are_extended_and_replaced_by_name() {
    let limit = |name: &str| format!("{{ name: {name}, mode: OVERALL, rate: 7, interval: 1s }}");
    let extended = route(&format!("upstream: api, limits: [{}, default]", limit("more")));
    assert_eq!(limits(&extended), [("more", 7), ("daily", 9), ("base", 1)]);
    let replaced = route(&format!("upstream: api, limits: [default, {}]", limit("base")));
    assert_eq!(limits(&replaced), [("daily", 9), ("base", 7)]);
    assert_eq!(limits(&route(&format!("upstream: api, limits: [{}]", limit("only")))), [("only", 7)]);
}

#[test]
fn changes_of_fields_are_merged_by_name() {
    let merged = route("upstream: api, request_headers: { set: { x-b: '2', X-C: '2' }, remove: [X-D] }");
    assert_eq!(changes(merged.request_headers.as_deref()), ["x-b=2", "x-c=2", "x-a=1", "-x-d"]);
    assert!(inherited(&merged).contains(&"request_headers.set.X-A <text>:9".to_owned()));
    let removed = route("upstream: api, request_headers: { remove: [x-a, X-B] }");
    assert_eq!(changes(removed.request_headers.as_deref()), ["-x-a", "-x-b", "-x-c"]);
}

/// Otherwise each redirect would have to leave out the keys that it must not have.
#[test]
fn routes_inherit_only_keys_that_apply() {
    let redirect = route("redirect: { to: /other }");
    assert!(matches!(redirect.action, Action::Redirect(_)));
    assert_eq!((redirect.timeout, redirect.request_headers.is_none(), redirect.max_body), (None, true, 1024));
    assert_eq!(limits(&redirect), [("daily", 9)], "`charge_on` has no effect on a redirect");
}

#[test]
fn inherited_values_are_bounded() {
    let limits = "{ name: x, mode: OVERALL, rate: 1, interval: 1s },".repeat(2_000);
    let routes = |count| "{ name: r, match: {} },".repeat(count);
    let problems = |count| {
        let text = format!("defaults: {{ limits: [{limits}] }}\nroutes: [{}]", routes(count));
        Config::parse(&text).expect_err("errors").to_string()
    };
    let message = "all routes together inherit more than 1000000 values of `defaults`";
    assert!(!problems(2).contains(message) && problems(120).contains(message));
}
