//! The JSON of `/api/v1/limits`: each limit with its number of buckets.

use std::collections::HashMap;

use serde_json::{Value, json};

use tidegate_config::Config;
use tidegate_layer::rejected::LimitId;
use tidegate_limit::Mode;
use tidegate_rules::limits::rule::Limit;
use tidegate_store::{Store, Usage};

/// Returns one entry for each limit, in the order in which the routes use them.
pub(super) fn show(config: &Config, store: &Store) -> Value {
    let limits = config.rules.limits();
    limits.map(|(route, limit)| show_limit(route, limit, store.usage(&limit.limiter))).collect()
}

/// Returns one entry. `buckets` is null for limits in Redis, `rate` and `interval_ms` are null if only Redis knows them.
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
        "algorithm": quota.algorithm().name(),
        "shadow": limit.shadow,
        "location": limit.location,
        "buckets": buckets,
    })
}

/// Returns all limits with the names of their routes.
pub(super) fn by_id(config: &Config) -> HashMap<LimitId, (&str, &Limit)> {
    config.rules.limits().map(|(route, limit)| (LimitId::new(route, &limit.name), (route, limit))).collect()
}
