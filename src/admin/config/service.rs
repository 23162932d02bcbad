//! The rate limit service in `/api/v1/config`.

use serde_json::{Value, json};

use super::{extend, show_limiter};
use tidegate_config::Service;
use tidegate_service::{Domain, NamedLimit, RuleLimit};

/// Returns the service with its domains.
pub(super) fn show(Service { grpc, http, files, domains }: &Service) -> Value {
    json!({
        "grpc": grpc,
        "http": http.as_ref().map(ToString::to_string),
        "descriptors": files,
        "domains": domains.iter().map(show_domain).collect::<Vec<_>>(),
    })
}

fn show_domain(domain: &Domain) -> Value {
    json!({ "name": domain.name(), "limits": domain.rule_limits().map(show_limit).collect::<Vec<_>>() })
}

/// Returns a limit. Its rate is `null` if it is unlimited.
fn show_limit(NamedLimit { name, rule_name, rule, limit }: NamedLimit<'_>) -> Value {
    let RuleLimit { rate, replaces, shadow, on_store_failure, location, name: _, limit_name: _, mode: _ } = rule;
    let keys = json!({
        "name": name,
        "match": rule_name.unwrap_or(name),
        "rate": rate.requests(),
        "replaces": replaces,
        "shadow": shadow,
        "on_store_failure": on_store_failure,
        "location": location,
    });
    limit.map_or_else(|| keys.clone(), |limit| extend(show_limiter(limit), keys.clone()))
}
