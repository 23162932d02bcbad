//! The keys of the service: modes, and what answers contain.

use super::environment::Environment;
use super::yaml::{FlowMap, quoted};

/// The variables with the names of fields, each with the key of `legacy_names` and the default of envoyproxy/ratelimit.
const NAMES: [(&str, &str, &str); 3] = [
    ("limit", "LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
    ("remaining", "LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
    ("reset", "LIMIT_RESET_HEADER", "RateLimit-Reset"),
];

/// Adds the keys.
pub(super) fn service(env: &mut Environment, keys: &mut FlowMap) {
    for (key, name) in [
        ("merge_domains", "MERGE_DOMAIN_CONFIG"),
        ("shadow", "SHADOW_MODE"),
        ("quota_mode", "QUOTA_MODE"),
        ("dynamic_metadata", "RESPONSE_DYNAMIC_METADATA"),
    ] {
        keys.add_flag(key, env.flag(name, false));
    }
    if env.flag("LIMIT_RESPONSE_HEADERS_ENABLED", false) {
        let mut names = FlowMap::default();
        NAMES.iter().for_each(|(key, name, default)| names.add(key, quoted(env.text_or(name, default))));
        keys.add("headers", "[ietf, legacy]");
        keys.add("legacy_names", names.flow());
    }
}
