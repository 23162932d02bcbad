//! The rate limit service in `/api/v1/config`.

use http::HeaderName;
use serde_json::{Value, json};

use super::{extend, show_limiter};
use tidegate_config::Service;
use tidegate_service::{AnswerSettings, Domain, LegacyNames, Modes, NamedLimit, RuleLimit};

/// Returns the service with its domains.
pub(super) fn show(Service { grpc, http, files, control_plane, domains }: &Service) -> Value {
    json!({
        "grpc": grpc,
        "http": http.as_ref().map(ToString::to_string),
        "descriptors": files,
        "control_plane": control_plane,
        "headers": headers_of(domains.answers()),
        "dynamic_metadata": domains.answers().dynamic_metadata,
        "timeout_ms": u64::try_from(domains.answers().timeout.as_millis()).unwrap_or(u64::MAX),
        "domains": domains.iter().map(show_domain).collect::<Vec<_>>(),
    })
}

/// Returns the names of the fields of `legacy`, and whether there are fields of the IETF.
fn headers_of(AnswerSettings { headers, legacy_names, .. }: &AnswerSettings) -> Value {
    let LegacyNames { limit, remaining, reset } = legacy_names;
    let legacy = headers.legacy.then(|| [limit, remaining, reset].map(HeaderName::as_str));
    json!({ "ietf": headers.ietf, "legacy": legacy })
}

fn show_domain(domain: &Domain) -> Value {
    let Modes { shadow, quota } = domain.modes();
    let limits: Vec<_> = domain.rule_limits().map(show_limit).collect();
    json!({ "name": domain.name(), "route": domain.route(), "shadow": shadow, "quota_mode": quota, "limits": limits })
}

/// Returns a limit. Its rate is `null` if it is unlimited.
fn show_limit(NamedLimit { name, rule_name, client, rule, limit }: NamedLimit<'_>) -> Value {
    let RuleLimit { rate, replaces, shadow, quota_mode, metadata, on_store_failure, location, .. } = rule;
    let keys = json!({
        "name": name,
        "match": rule_name.unwrap_or(name),
        "client": Some(client).filter(|client| !client.is_empty()),
        "rate": rate.requests(),
        "replaces": replaces,
        "shadow": shadow,
        "quota_mode": quota_mode,
        "metadata": metadata.as_deref(),
        "on_store_failure": on_store_failure,
        "location": location,
    });
    limit.map_or_else(|| keys.clone(), |limit| extend(show_limiter(limit), keys.clone()))
}
