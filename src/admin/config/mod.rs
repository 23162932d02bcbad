//! The JSON of `/api/v1/config`: the active configuration with defaults and without secrets.
//!
//! serde writes the settings. The functions here add the values that no field of the settings contains.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use tidegate_config::{Config, Listen};
use tidegate_limit::calendar::schedule::Day;
use tidegate_limit::{Algorithm, Mode};
use tidegate_rules::charge::Limiter;
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::policy::{RateLimitFields, RateLimitHeaders};
use tidegate_rules::limits::rates::Rates;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::upgrade::Upgrades;
use tidegate_rules::route::{ClientNetworks, Cors, InheritedValue, Matcher, Route};
use tidegate_rules::rules::{FieldRules, Rules, When};
use tidegate_rules::settings::store::{RedisTls, StoreSettings};
use tidegate_store::Store;

mod action;
mod identities;
mod service;

/// Returns the whole configuration.
pub(crate) fn show(config: &Config, store: &Store) -> Value {
    let addresses = &config.rules.addresses;
    let trusted: Vec<String> = addresses.trusted_proxies.iter().map(ToString::to_string).collect();
    json!({
        "listen": config.listen.iter().map(show_listen).collect::<Vec<_>>(),
        "max_connections": config.max_connections,
        "admin": config.admin.as_ref().map(ToString::to_string),
        "admin_tokens": config.admin_tokens,
        "show_clients": config.show_clients,
        "talkers": config.talkers,
        "access_log": config.access_log,
        "dashboard": config.dashboard,
        "metrics": { "buckets_ms": config.buckets.iter().map(Duration::as_millis).collect::<Vec<_>>() },
        "store": show_store(&config.store, store),
        "clients": { "trusted_proxies": trusted, "ipv6_prefix": addresses.ipv6_prefix },
        "requests": show_requests(&config.rules),
        "bans": config.rules.bans.as_deref().map(action::show_fixed),
        "identities": identities::show(config),
        "dns": { "servers": config.dns_servers },
        "upstreams": config.upstreams.iter().map(|(name, upstream)| (name.to_string(), json!(upstream))).collect::<serde_json::Map<_, _>>(),
        "include": config.included,
        "teams": config.teams,
        "service": config.service.as_ref().map(service::show),
        "routes": config.rules.routes.iter().map(|route| show_route(route, &config.rules)).collect::<Vec<_>>(),
    })
}

fn show_requests(Rules { requests, fields: FieldRules { strip, underscores }, .. }: &Rules) -> Value {
    json!({
        "encoded_slash": requests.encoded_slash,
        "slashes": requests.slashes,
        "request_id": requests.request_id,
        "json_bytes": requests.body_bytes.0,
        "underscores": underscores,
        "strip": strip.patterns().collect::<Vec<_>>(),
        "keep": strip.kept().collect::<Vec<_>>(),
    })
}

fn show_listen(listen: &Listen) -> Value {
    let mode = listen.address.path().map(|_| format!("{:04o}", listen.mode));
    extend(json!(listen), json!({ "mode": mode, "name": listen.name.as_deref() }))
}

/// Returns the settings of the store and its state.
fn show_store(settings: &StoreSettings, store: &Store) -> Value {
    let cause = store.outage();
    match settings {
        StoreSettings::Memory { key_secret } => json!({ "kind": "memory", "key_secret": key_secret.map(|_| "***") }),
        StoreSettings::Redis(settings) => {
            let sentinel = settings.sentinel.as_ref().map(|sentinel| {
                extend(json!(sentinel), json!({ "master": store.master(), "tls": show_tls(&sentinel.tls) }))
            });
            let state = json!({
                "kind": "redis",
                "state": if cause.is_none() { "up" } else { "down" },
                "cause": cause,
                "gateways": store.gateways(),
                "owed": store.owed_permits(),
                "sentinel": sentinel,
                "tls": show_tls(&settings.tls),
            });
            extend(json!(settings), state)
        }
    }
}

fn show_tls(RedisTls { ca, identity }: &RedisTls) -> Value {
    let (cert, key) = identity.as_ref().map(|files| (&files.cert, &files.key)).unzip();
    json!({ "ca": ca, "cert": cert, "key": key })
}

fn show_route(route: &Route, rules: &Rules) -> Value {
    let keys = json!({
        "match": show_match(&route.matcher),
        "require": identities::show_required(&route.require),
        "upgrades": show_upgrades(&route.upgrades),
        "quota": route.quota.as_ref().map(ToString::to_string),
        "cors": route.cors.as_deref().map(show_cors),
        "headers": show_headers(route.rate_limit_headers),
        "inherited": route.inherited.iter().map(show_inherited).collect::<serde_json::Map<_, _>>(),
        "limits": route.limits.iter().map(|limit| show_limit(limit, rules)).collect::<Vec<_>>(),
    });
    extend(extend(json!(route), keys), action::show(route))
}

/// Returns the key of a value from `defaults`, and its position.
fn show_inherited(InheritedValue { key, location }: &InheritedValue) -> (String, Value) {
    (key.to_string(), location.to_string().into())
}

fn show_upgrades(Upgrades { protocols, limits }: &Upgrades) -> Value {
    let names = protocols.iter().map(|name| String::from_utf8_lossy(name.as_bytes()));
    extend(json!(limits), json!({ "protocols": names.collect::<Vec<_>>() }))
}

fn show_cors(cors: &Cors) -> Value {
    json!({
        "origins": cors.origins.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "methods": cors.methods.iter().map(http::Method::as_str).collect::<Vec<_>>(),
        "headers": cors.headers.iter().map(http::HeaderName::as_str).collect::<Vec<_>>(),
        "expose": String::from_utf8_lossy(cors.expose.as_bytes()),
        "credentials": cors.credentials,
        "max_age": cors.max_age,
    })
}

fn show_headers(headers: RateLimitHeaders) -> Vec<&'static str> {
    let fields = [
        (RateLimitFields::Ietf, headers.ietf),
        (RateLimitFields::Legacy, headers.legacy),
        (RateLimitFields::OpenAi, headers.openai),
        (RateLimitFields::Anthropic, headers.anthropic),
    ];
    fields.into_iter().filter(|(_, is_sent)| *is_sent).map(|(fields, _)| fields.name()).collect()
}

fn show_match(matcher: &Matcher) -> Value {
    let values = |kind| show_values(matcher, kind);
    let networks = matcher.clients.iter().flat_map(ClientNetworks::networks);
    json!({
        "host": one_or_many(&matcher.hosts),
        "path": one_or_many(&matcher.paths),
        "case": matcher.case,
        "methods": matcher.methods.iter().map(http::Method::as_str).collect::<Vec<_>>(),
        "headers": values("header "),
        "query": values("query "),
        "cookies": values("cookie "),
        "clients": networks.map(ToString::to_string).collect::<Vec<_>>(),
        "identity": matcher.identity.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "scheme": matcher.scheme,
        "listener": one_or_many(&matcher.listeners),
        "not": matcher.not.iter().map(show_match).collect::<Vec<_>>(),
    })
}

/// Returns the conditions on values of one kind. The required value of a header is often a secret of a proxy, so only the name
/// is shown.
fn show_values(matcher: &Matcher, kind: &str) -> Vec<String> {
    let conditions = matcher.values.iter().map(ToString::to_string);
    conditions.filter_map(|condition| condition.strip_prefix(kind).map(str::to_owned)).collect()
}

/// Returns the source of a limit's rates: the tiers, or the largest number.
fn show_rates(rates: &Rates) -> Value {
    let tier = |(name, limiter): (&str, &Arc<Limiter>)| {
        let Limiter { quota, .. } = &**limiter;
        (name.to_owned(), json!({ "rate": quota.rate(), "interval_ms": quota.interval(), "burst": quota.capacity() }))
    };
    let tiers: serde_json::Map<_, _> = rates.tiers().map(tier).collect();
    json!({ "by": rates.by.to_string(), "max": rates.max(), "tiers": tiers })
}

fn show_when(When { matcher, tiers, schedule }: &When) -> Value {
    let schedule = schedule.as_ref();
    let days = schedule.map(|schedule| schedule.days().map(Day::name).collect::<Vec<_>>());
    let (time, zone) = (schedule.map(|schedule| schedule.time()), schedule.map(|schedule| schedule.zone()));
    let own =
        json!({ "tier": tiers, "time": time, "days": days, "timezone": zone, "json": show_values(matcher, "json ") });
    extend(show_match(matcher), own)
}

/// Returns a list of several items, or a single item.
fn one_or_many<T: ToString>(items: &[T]) -> Value {
    match items {
        [] => Value::Null,
        [one] => one.to_string().into(),
        many => many.iter().map(ToString::to_string).collect(),
    }
}

fn show_limit(limit: &Limit, rules: &Rules) -> Value {
    let waits = waits(limit);
    let keys = json!({
        "client": (limit.mode() == Mode::PerClient).then(|| show_client(&limit.client)),
        "max_wait_ms": waits.map(|(max_wait, _)| max_wait),
        "queue": waits.map(|(_, queue)| queue),
        "rates": limit.rates.as_deref().map(show_rates),
        "when": rules.when(limit).map(show_when),
    });
    extend(extend(json!(limit), show_limiter(limit)), keys)
}

/// Returns the quota of a limit and its buckets.
fn show_limiter(limit: &Limit) -> Value {
    let quota = &limit.limiter.quota;
    let limiter = json!({
        "mode": limit.mode(),
        "rate": (!quota.is_adopted()).then(|| quota.rate()),
        "interval_ms": (!quota.is_adopted()).then(|| quota.interval()),
        "adopt": quota.is_adopted(),
        "algorithm": quota.algorithm().name(),
        "burst": quota.algorithm().burst(),
        "partitions": limit.limiter.partitions(),
        "shards": (!limit.limiter.shards().is_empty()).then(|| limit.limiter.shards().len()),
        "key": limit.limiter.name,
    });
    extend(limiter, show_parameters(&quota.algorithm()))
}

/// Adds the keys of a map to the keys of settings.
pub(super) fn extend(mut settings: Value, keys: Value) -> Value {
    if let (Value::Object(settings), Value::Object(keys)) = (&mut settings, keys) {
        settings.extend(keys);
    }
    settings
}

/// Returns the longest wait in milliseconds and the length of the queue. Returns `None` if requests do not wait.
fn waits(limit: &Limit) -> Option<(u128, u128)> {
    let of_time_slots = limit.limiter.quota.algorithm().queue();
    let of_time_slots = of_time_slots.map(|queue| (queue.max_wait.into(), queue.length.into()));
    of_time_slots.or_else(|| limit.wait_policy.map(|policy| (policy.max_wait.as_millis(), policy.queue as u128)))
}

/// Returns the parameters that only one algorithm has.
fn show_parameters(algorithm: &Algorithm) -> Value {
    let (warm_up, segments, calendar) = match algorithm {
        Algorithm::GcraWarmUp(warm_up) => (Some(warm_up.millis), None, None),
        Algorithm::SlidingWindow { segments } => (None, Some(*segments), None),
        Algorithm::FixedWindow(calendar) => {
            (None, None, Some(json!({ "unit": calendar.unit().name(), "timezone": calendar.zone() })))
        }
        Algorithm::TokenBucket | Algorithm::Gcra { .. } | Algorithm::LeakyBucket(_) | Algorithm::Redisson(_) => {
            (None, None, None)
        }
    };
    json!({ "warm_up_ms": warm_up, "segments": segments, "calendar": calendar })
}

fn show_client(client: &ClientSource) -> Value {
    match client {
        ClientSource::Ip => "ip".into(),
        ClientSource::Header(name) => format!("header:{name}").into(),
        ClientSource::Cookie(name) => format!("cookie:{name}").into(),
        ClientSource::Query(name) => format!("query:{name}").into(),
        ClientSource::Host => "host".into(),
        ClientSource::Path => "path".into(),
        ClientSource::Tls(name) => format!("tls:{}", name.as_str()).into(),
        ClientSource::Extension => "extension".into(),
        ClientSource::Json(pointer) => format!("json:{pointer}").into(),
        ClientSource::Function(_) => "function".into(),
        ClientSource::Identity(value) => value.to_string().into(),
        ClientSource::All(sources) => sources.iter().map(show_client).collect(),
    }
}
