//! Random rules, as builders and as the text of a rule file. Most of them are valid.

use std::fmt::Write;

use proptest::prelude::*;
use proptest::sample::select;

use super::super::*;

/// A limit as a test describes it, also with values that are not valid.
#[derive(Clone, Debug)]
struct LimitSpec {
    name: String,
    /// `None` for an OVERALL limit.
    client: Option<&'static [&'static str]>,
    rate: u64,
    interval: u64,
    algorithm: Algorithm,
    burst: Option<u64>,
    segments: Option<u64>,
    max_wait: Option<u64>,
    queue: Option<u64>,
    permits: Option<u64>,
    tier: bool,
    shadow: Option<bool>,
    on_store_failure: Option<OnStoreFailure>,
    charge_on: Option<(u16, u16)>,
    candidate: Option<u64>,
    when: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(super) struct RouteSpec {
    name: String,
    paths: Vec<String>,
    methods: Vec<&'static str>,
    header: Option<&'static str>,
    limits: Vec<LimitSpec>,
    max_body: Option<u64>,
    max_in_flight: Option<u64>,
}

/// Usually one of the valid values.
fn mostly<T: Copy + std::fmt::Debug>(valid: &'static [T], invalid: &'static [T]) -> impl Strategy<Value = T> {
    prop_oneof![30 => select(valid), 1 => select(invalid)]
}

fn limit() -> impl Strategy<Value = LimitSpec> {
    const CLIENTS: [&[&str]; 4] = [&["ip"], &["header:x-key"], &["ip", "path"], &["extension:tenant"]];
    let clients = mostly(&CLIENTS, &[&["jwt:sub"] as &[&str]]);
    let option = |values: &'static [u64]| prop::option::weighted(0.04, select(values));
    let quota = (
        prop_oneof![50 => 1_u64..1_000, 1 => Just(0)],
        prop_oneof![50 => 1_u64..100_000, 1 => Just(0)],
        select(Algorithm::ALL),
        (option(&[1, 5_000]), option(&[3, 100_000])),
        (option(&[10, 100_000]), option(&[7])),
        option(&[1, 9]),
    );
    let rest = (
        prop::bool::weighted(0.02),
        prop::option::weighted(0.2, any::<bool>()),
        prop::option::weighted(0.2, select(OnStoreFailure::ALL)),
        prop::option::weighted(0.2, mostly(&[(401, 401), (500, 599)], &[(600, 1)])),
        option(&[0, 50]),
        prop::option::weighted(0.2, mostly(&["/a/**"], &["b"])),
    );
    let name = mostly(&[""], &["l0", "no name"]).prop_map(str::to_owned);
    let client = prop::option::weighted(0.7, clients);
    let all = (name, client, quota, rest);
    all.prop_map(|(name, client, (rate, interval, algorithm, (burst, segments), (max_wait, queue), permits), rest)| {
        let (tier, shadow, on_store_failure, charge_on, candidate, when) = rest;
        LimitSpec {
            name,
            client,
            rate,
            interval,
            algorithm,
            burst,
            segments,
            max_wait,
            queue,
            permits,
            tier,
            shadow,
            on_store_failure,
            charge_on,
            candidate,
            when,
        }
    })
}

fn route() -> impl Strategy<Value = RouteSpec> {
    let paths =
        prop::collection::vec(mostly(&["", "/**", "/{id}", "/b*"], &["a b", "/**/**"]).prop_map(str::to_owned), 0..3);
    let methods = prop::collection::vec(mostly(&["GET", "PUT"], &["get"]), 0..2);
    let header = prop::option::weighted(0.2, select(vec!["present", "x"]));
    let bounds = (prop::option::weighted(0.2, 0_u64..9_000), prop::option::weighted(0.2, 0_u64..9));
    let name = mostly(&[""], &["r0", "no name"]).prop_map(str::to_owned);
    let all = (name, paths, methods, header, prop::collection::vec(limit(), 0..4), bounds);
    all.prop_map(|(name, paths, methods, header, limits, (max_body, max_in_flight))| RouteSpec {
        name,
        paths,
        methods,
        header,
        limits,
        max_body,
        max_in_flight,
    })
}

fn client_of(source: &str) -> Client {
    match source.split_once(':') {
        Some(("header", name)) => Client::header(name),
        Some(("jwt", name)) => Client::claim(name),
        Some((_, name)) => Client::extension_named(name),
        None if source == "ip" => Client::ip(),
        None if source == "path" => Client::path(),
        None => unreachable!("{source}"),
    }
}

fn built_limit(spec: &LimitSpec) -> Limit {
    let millis = Duration::from_millis;
    let mut quota = Quota::new(spec.rate, millis(spec.interval)).algorithm(spec.algorithm);
    if let Some(burst) = spec.burst {
        quota = quota.burst(burst);
    }
    if let Some(segments) = spec.segments {
        quota = quota.segments(segments);
    }
    if let Some(max_wait) = spec.max_wait {
        quota = quota.max_wait(millis(max_wait));
    }
    if let Some(queue) = spec.queue {
        quota = quota.queue(queue);
    }
    let clients = spec.client.map(|sources| sources.iter().map(|source| client_of(source)).reduce(Client::and));
    let mut limit = match clients.flatten() {
        Some(client) => Limit::per_client(&spec.name, client),
        None => Limit::overall(&spec.name),
    };
    limit = limit.quota(quota);
    if spec.tier {
        limit = limit.tier(By::extension("plan"), "pro");
    }
    if let Some(permits) = spec.permits {
        limit = limit.permits(permits);
    }
    if let Some(shadow) = spec.shadow {
        limit = limit.shadow(shadow);
    }
    if let Some(action) = spec.on_store_failure {
        limit = limit.on_store_failure(action);
    }
    if let Some((first, last)) = spec.charge_on {
        limit = limit.charge_on([first..=last]);
    }
    if let Some(rate) = spec.candidate {
        limit = limit.candidate(Quota::per_minute(rate));
    }
    if let Some(path) = spec.when {
        limit = limit.when(Match::new().path(path));
    }
    limit
}

pub(super) fn built(routes: &[RouteSpec]) -> Rules {
    let mut rules = Rules::new().tier("pro", Tier::new(7, SECOND).burst(70)).ipv6_prefix(56);
    for spec in routes {
        let mut route = Route::new(&spec.name);
        for path in &spec.paths {
            route = route.path(path);
        }
        for method in &spec.methods {
            route = route.method(method);
        }
        if let Some(value) = spec.header {
            let condition = if value == "present" { Condition::present() } else { value.into() };
            route = route.header("x-a", condition);
        }
        for limit in &spec.limits {
            route = route.limit(built_limit(limit));
        }
        if let Some(bytes) = spec.max_body {
            route = route.max_body(bytes);
        }
        if let Some(max) = spec.max_in_flight {
            route = route.concurrency(Concurrency::new().max(max));
        }
        rules = rules.route(route);
    }
    rules
}

/// The same rules as a rule file.
pub(super) fn yaml(routes: &[RouteSpec]) -> String {
    let mut text =
        "clients: { ipv6_prefix: 56 }\ntiers: { pro: { rate: 7, interval: 1s, burst: 70 } }\nroutes:\n".to_owned();
    let mut add = |line: &str| _ = writeln!(text, "{line}");
    for spec in routes {
        let RouteSpec { name, paths, methods, header, .. } = spec;
        add(&format!("- name: {name}"));
        let mut conditions = Vec::new();
        if !paths.is_empty() {
            conditions.push(format!("path: ['{}']", paths.join("', '")));
        }
        if !methods.is_empty() {
            conditions.push(format!("methods: ['{}']", methods.join("', '")));
        }
        if let Some(value) = header {
            conditions.push(format!("headers: {{ x-a: {value} }}"));
        }
        add(&format!("  match: {{ {} }}", conditions.join(", ")));
        if let Some(bytes) = spec.max_body {
            add(&format!("  max_body: {bytes}B"));
        }
        if let Some(max) = spec.max_in_flight {
            add(&format!("  concurrency: {{ max: {max} }}"));
        }
        if !spec.limits.is_empty() {
            add("  limits:");
        }
        for limit in &spec.limits {
            add(&format!("  - name: {}", limit.name));
            add(&format!("    mode: {}", if limit.client.is_some() { "PER_CLIENT" } else { "OVERALL" }));
            let mut key = |key: &str, value: Option<String>| {
                if let Some(value) = value {
                    add(&format!("    {key}: {value}"));
                }
            };
            key("client", limit.client.map(|sources| format!("['{}']", sources.join("', '"))));
            key("rate", Some(limit.rate.to_string()));
            key("interval", Some(format!("{}ms", limit.interval)));
            key("algorithm", Some(limit.algorithm.name().to_owned()));
            key("burst", limit.burst.map(|burst| burst.to_string()));
            key("segments", limit.segments.map(|segments| segments.to_string()));
            key("max_wait", limit.max_wait.map(|wait| format!("{wait}ms")));
            key("queue", limit.queue.map(|queue| queue.to_string()));
            key("tier", limit.tier.then(|| "{ by: 'extension:plan', default: pro }".to_owned()));
            key("permits", limit.permits.map(|permits| permits.to_string()));
            key("shadow", limit.shadow.map(|shadow| shadow.to_string()));
            key("on_store_failure", limit.on_store_failure.map(|action| action.name().to_owned()));
            key("charge_on", limit.charge_on.map(|(first, last)| format!("['{first}-{last}']")));
            key("candidate", limit.candidate.map(|rate| format!("{{ rate: {rate}, interval: 1m }}")));
            key("when", limit.when.map(|path| format!("{{ path: {path} }}")));
        }
    }
    text
}

/// Gives each route and limit its own name and paths, unless its name is set.
fn numbered(mut routes: Vec<RouteSpec>) -> Vec<RouteSpec> {
    let name = |name: &mut String, kind, number| {
        if name.is_empty() {
            *name = format!("{kind}{number}");
        }
    };
    for (number, route) in routes.iter_mut().enumerate() {
        name(&mut route.name, 'r', number);
        route.paths.iter_mut().for_each(|path| *path = format!("/r{number}{path}"));
        route.limits.iter_mut().enumerate().for_each(|(number, limit)| name(&mut limit.name, 'l', number));
    }
    routes
}

/// Returns random rules.
pub(super) fn routes() -> impl Strategy<Value = Vec<RouteSpec>> {
    prop::collection::vec(route(), 1..4).prop_map(numbered)
}
