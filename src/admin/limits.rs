//! The JSON of `/api/v1/limits`: each limit with its number of buckets.

use std::sync::Arc;

use serde_json::{Value, json};

use tidegate_config::Config;
use tidegate_limit::Mode;
use tidegate_rules::charge::Limiter;
use tidegate_rules::limits::rates::Rates;
use tidegate_rules::limits::rule::Limit;
use tidegate_store::{Store, Usage};

/// Returns one entry for each limit, in the order in which the routes use them.
pub(super) fn show(config: &Config, store: &Store) -> Value {
    let limits = config.rules.limits();
    let show = |(route, limit): (&str, &Limit)| {
        let mut shown = show_limit(route, limit, store.usage(&limit.limiter));
        shown["routes"] = routes_of(config, route, limit);
        shown
    };
    limits.map(show).collect()
}

/// Returns the names of the routes that use a limit: several for a shared limit.
fn routes_of(config: &Config, route: &str, limit: &Limit) -> Value {
    if !limit.is_shared {
        return json!([route]);
    }
    let uses = |other: &Limit| other.is_shared && other.name == limit.name;
    let routes = config.rules.routes.iter().filter(|route| route.limits.iter().any(uses));
    routes.map(|route| &*route.name).collect()
}

/// Returns the rates of a limit that takes its rate from the request: its tiers, or the largest number.
fn show_rates(rates: &Rates) -> Value {
    let tier = |(name, limiter): (&str, &Arc<Limiter>)| {
        let quota = &limiter.quota;
        json!({ "tier": name, "rate": quota.rate(), "interval_ms": quota.interval(), "burst": quota.capacity() })
    };
    let tiers: Vec<_> = rates.tiers().map(tier).collect();
    json!({ "by": rates.by.to_string(), "default": rates.default_tier(), "max": rates.max(), "tiers": tiers })
}

/// Returns one entry. `buckets` is null for limits in Redis, `rate` and `interval_ms` are null if only Redis knows them. They
/// are the default if `rates` has the rates of requests.
fn show_limit(route: &str, limit: &Limit, usage: Option<Usage>) -> Value {
    let buckets = usage
        .map(|Usage { held, share, overflowing }| json!({ "held": held, "share": share, "overflowing": overflowing }));
    let quota = &limit.limiter.quota;
    json!({
        "route": route,
        "limit": limit.name,
        "mode": limit.mode().to_string(),
        "client": (limit.mode() == Mode::PerClient).then(|| limit.client.to_string()),
        "rate": (!quota.is_adopted()).then(|| quota.rate()),
        "interval_ms": (!quota.is_adopted()).then(|| quota.interval()),
        "rates": limit.rates.as_deref().map(show_rates),
        "algorithm": quota.algorithm().name(),
        "shadow": limit.shadow,
        "location": limit.location,
        "buckets": buckets,
    })
}
