//! The JSON of `/api/v1/limits`: each limit with its number of buckets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Admin;
use super::limit_list::{ListedLimit, all};
use super::problem::Problem;
use tidegate_config::Config;
use tidegate_rules::charge::Limiter;
use tidegate_rules::limits::rates::Rates;
use tidegate_rules::limits::rule::Limit;
use tidegate_service::Domain;
use tidegate_store::{Store, Usage};

/// Returns each limit of each route with its file and line, its tiers, its decisions in the last minute, and for OVERALL
/// limits the permits in use; with buckets in memory, also their number. A shared limit has the route `@` and the names of
/// its `routes`; a limit of a domain of the rate limit service has the route `/DOMAIN`.
#[utoipa::path(
    get,
    path = "/limits",
    tag = "limits",
    responses((status = 200, description = "The limits", body = [Object]), Problem)
)]
pub(super) async fn limits(State(admin): State<Admin>) -> Json<Value> {
    let active = admin.active.load_full();
    let mut value = show(&active.config, &active.store);
    admin.add_last_minute(&mut value);
    active.overall.add_permits(&mut value).await;
    active.config.secrets.mask_json(&mut value);
    Json(value)
}

/// Returns one entry for each limit, in the order in which the routes use them. Limits of domains come last.
fn show(config: &Config, store: &Store) -> Value {
    let show = |listed: ListedLimit<'_>| {
        let mut shown = show_limit(listed, store.usage(&listed.limit.limiter));
        shown["routes"] = routes_of(config, listed.route, listed.limit);
        shown
    };
    all(config).map(show).collect()
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
fn show_limit(listed: ListedLimit<'_>, usage: Option<Usage>) -> Value {
    let ListedLimit { route, limit, domain, .. } = listed;
    let buckets = usage
        .map(|Usage { held, share, overflowing }| json!({ "held": held, "share": share, "overflowing": overflowing }));
    let quota = &limit.limiter.quota;
    json!({
        "route": route,
        "limit": limit.name,
        "mode": limit.mode().to_string(),
        "domain": domain.map(Domain::name),
        "client": listed.client(),
        "rate": (!quota.is_adopted()).then(|| quota.rate()),
        "interval_ms": (!quota.is_adopted()).then(|| quota.interval()),
        "rates": limit.rates.as_deref().map(show_rates),
        "algorithm": quota.algorithm().name(),
        "shadow": limit.shadow,
        "location": limit.location,
        "buckets": buckets,
    })
}
