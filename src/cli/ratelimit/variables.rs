//! All environment variables of envoyproxy/ratelimit (`src/settings/settings.go` of the commit f2fb157), and their effects.

/// A variable without an effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct IgnoredVariable {
    pub(super) name: &'static str,
    pub(super) reason: &'static str,
}

/// The variables that change the rule file or the log.
pub(super) const USED: &[&str] = &[
    "BACKEND_TYPE",
    "CACHE_KEY_PREFIX",
    "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
    "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
    "CONFIG_GRPC_XDS_NODE_ID",
    "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
    "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
    "CONFIG_GRPC_XDS_SERVER_URL",
    "CONFIG_GRPC_XDS_SERVER_USE_TLS",
    "CONFIG_TYPE",
    "DEBUG_HOST",
    "DEBUG_PORT",
    "FORCE_START_WITHOUT_INITIAL_CONFIG",
    "GRPC_CLIENT_TLS_CACERT",
    "GRPC_CLIENT_TLS_SAN",
    "GRPC_HOST",
    "GRPC_PORT",
    "GRPC_SERVER_TLS_CERT",
    "GRPC_SERVER_TLS_KEY",
    "GRPC_SERVER_USE_TLS",
    "GRPC_UDS",
    "HOST",
    "LIMIT_LIMIT_HEADER",
    "LIMIT_REMAINING_HEADER",
    "LIMIT_RESET_HEADER",
    "LIMIT_RESPONSE_HEADERS_ENABLED",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "MERGE_DOMAIN_CONFIG",
    "PORT",
    "PROMETHEUS_ADDR",
    "QUOTA_MODE",
    "REDIS_AUTH",
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
    "REDIS_SENTINEL_AUTH",
    "REDIS_SOCKET_TYPE",
    "REDIS_TLS",
    "REDIS_TLS_CACERT",
    "REDIS_TLS_CLIENT_CERT",
    "REDIS_TLS_CLIENT_KEY",
    "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
    "REDIS_TYPE",
    "REDIS_URL",
    "RESPONSE_DYNAMIC_METADATA",
    "RUNTIME_APPDIRECTORY",
    "RUNTIME_ROOT",
    "RUNTIME_SUBDIRECTORY",
    "RUNTIME_WATCH_ROOT",
    "SHADOW_MODE",
    "USE_PROMETHEUS",
];

const ONE_STORE: &str = "all limits use REDIS_URL";
const NO_POOL: &str = "a worker sends all decisions over one connection";
const NO_STATSD: &str = "metrics are only for Prometheus";
const NO_MEMCACHE: &str = "the store is Redis";
const OWN_BOUNDS: &str = "connections have the bounds of docs/service.md";
const OWN_BACKOFF: &str = "the client has its own back-off";
const NO_TRACES: &str = "calls are not traced";

/// The variables without an effect. A name that ends in `*` stands for all variables with this start.
pub(super) const IGNORED: &[IgnoredVariable] = &[
    ignored("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "calls to the xDS server have no further fields"),
    ignored("CONFIG_GRPC_XDS_NODE_METADATA", "the xDS server knows the node by its ID"),
    ignored("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", OWN_BACKOFF),
    ignored("DISABLE_STATS", "metrics cost nothing until they are read"),
    ignored("EXPIRATION_JITTER_MAX_SECONDS", "buckets expire after their last use"),
    ignored("EXTRA_TAGS", NO_STATSD),
    ignored("GRPC_MAX_CONNECTION_AGE*", OWN_BOUNDS),
    ignored(
        "GRPC_SERVER_TLS_CA_CERT",
        "envoyproxy/ratelimit does not know it either; GRPC_CLIENT_TLS_CACERT verifies clients",
    ),
    ignored("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "health checks follow the readiness of the gateway"),
    ignored("LOCAL_CACHE_SIZE_IN_BYTES", "refusals are always cached"),
    ignored("MEMCACHE_*", NO_MEMCACHE),
    ignored("NEAR_LIMIT_RATIO", "metrics have the remaining permits instead"),
    ignored("PROMETHEUS_MAPPER_YAML", "metrics have other names (docs/metrics.md)"),
    ignored("PROMETHEUS_PATH", "the path is /metrics"),
    ignored("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "durations are in seconds"),
    ignored("REDIS_CLUSTER_PIPELINE_PARALLELISM", NO_POOL),
    ignored("REDIS_PERSECOND*", ONE_STORE),
    ignored("REDIS_PIPELINE_*", NO_POOL),
    ignored("REDIS_POOL_*", NO_POOL),
    ignored("REDIS_STARTUP_*", "the gateway starts without waiting for Redis"),
    ignored("REDIS_TIMEOUT", "a decision takes at most 12 ms, since proxies wait 20 ms"),
    ignored("RUNTIME_IGNOREDOTFILES", "hidden files are never read"),
    ignored("STATSD_*", NO_STATSD),
    ignored("STATS_FLUSH_INTERVAL", NO_STATSD),
    ignored("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "a rejected call is never charged"),
    ignored("TRACING_*", NO_TRACES),
    ignored("USE_DOG_STATSD*", NO_STATSD),
    ignored("USE_STATSD", NO_STATSD),
    ignored("XDS_CLIENT_*", OWN_BACKOFF),
];

const fn ignored(name: &'static str, reason: &'static str) -> IgnoredVariable {
    IgnoredVariable { name, reason }
}

impl IgnoredVariable {
    /// Returns `true` if this is the variable, or stands for it.
    pub(super) fn includes(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.name == name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_is_both_used_and_ignored() {
        let both: Vec<_> = USED.iter().filter(|name| IGNORED.iter().any(|other| other.includes(name))).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn page_lists_every_variable() {
        let page = include_str!("../../../docs/ratelimit.md");
        let all = USED.iter().copied().chain(IGNORED.iter().map(|ignored| ignored.name));
        let missing: Vec<_> = all.filter(|name| !page.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
