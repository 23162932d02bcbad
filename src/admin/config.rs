//! The JSON of `/api/v1/config`: the active configuration with defaults and without secrets.

use serde_json::{Value, json};

use crate::client::ClientSource;
use crate::config::{AccessLog, Config, Listen};
use crate::cost::{Cost, HeaderCost};
use crate::limit::{Algorithm, Mode};
use crate::policy::{RateLimitFields, RateLimitHeaders};
use crate::route::{Matcher, Route};
use crate::rule::Limit;
use crate::rules::{FieldRules, Rules};
use crate::store::Store;
use crate::store::settings::{RedisSettings, RedisTls, SentinelSettings, StoreSettings};
use crate::tls::settings::{CertificateFiles, ListenTls};
use crate::upgrade::Upgrades;
use crate::upstream::settings::{UpstreamSettings, UpstreamTls};

/// Returns the whole configuration.
pub(super) fn show(config: &Config, store: &Store) -> Value {
    let upstreams: serde_json::Map<String, Value> =
        config.upstreams.values().map(|upstream| (upstream.name.to_string(), show_upstream(upstream))).collect();
    let addresses = &config.rules.addresses;
    let trusted: Vec<String> = addresses.trusted_proxies.iter().map(ToString::to_string).collect();
    json!({
        "listen": config.listen.iter().map(show_listen).collect::<Vec<_>>(),
        "max_connections": config.max_connections,
        "admin": config.admin.as_ref().map(ToString::to_string),
        "access_log": show_access_log(&config.access_log),
        "store": show_store(&config.store, store),
        "clients": { "trusted_proxies": trusted, "ipv6_prefix": addresses.ipv6_prefix },
        "requests": show_requests(&config.rules),
        "upstreams": upstreams,
        "routes": config.rules.routes.iter().map(show_route).collect::<Vec<_>>(),
    })
}

fn show_requests(Rules { requests, fields: FieldRules { strip, underscores }, .. }: &Rules) -> Value {
    json!({
        "encoded_slash": requests.encoded_slash.name(),
        "underscores": underscores.name(),
        "strip": strip.patterns().collect::<Vec<_>>(),
        "keep": strip.kept().collect::<Vec<_>>(),
    })
}

fn show_listen(listen: &Listen) -> Value {
    json!({
        "address": listen.address.to_string(),
        "mode": listen.address.path().map(|_| format!("{:04o}", listen.mode)),
        "tls": listen.tls.as_ref().map(show_listen_tls),
        "http2": listen.http2,
        "proxy_protocol": listen.proxy_protocol,
        "trust_unknown": listen.trust_unknown,
        "max_connections": listen.max_connections,
        "max_connections_per_client": listen.max_connections_per_client,
        "max_requests": listen.max_requests,
        "max_streams": listen.max_streams,
        "header_timeout_ms": listen.header_timeout.as_millis(),
        "idle_timeout_ms": listen.idle_timeout.as_millis(),
        "body_timeout_ms": listen.body_timeout.as_millis(),
        "min_rate_bytes": listen.min_rate,
        "max_fields": listen.max_fields,
        "max_field_bytes": listen.max_field_bytes,
        "max_target_bytes": listen.max_target,
    })
}

fn show_listen_tls(tls: &ListenTls) -> Value {
    let ListenTls { certificates, min_version, client_auth, max_handshake_rate, .. } = tls;
    let show =
        |CertificateFiles { cert, key, ocsp }: &CertificateFiles| json!({ "cert": cert, "key": key, "ocsp": ocsp });
    json!({
        "certificates": certificates.iter().map(show).collect::<Vec<_>>(),
        "min_version": min_version.name(),
        "client_auth": client_auth.as_ref().map(|auth| json!({ "ca": auth.ca, "required": auth.required })),
        "max_handshake_rate": max_handshake_rate,
    })
}

fn show_access_log(log: &AccessLog) -> Value {
    match log {
        AccessLog::Off => "off".into(),
        AccessLog::Stdout => "stdout".into(),
        AccessLog::File(path) => path.display().to_string().into(),
    }
}

/// Returns the settings of the store and its state.
fn show_store(settings: &StoreSettings, store: &Store) -> Value {
    let cause = store.outage();
    match settings {
        StoreSettings::Memory { key_secret } => json!({ "kind": "memory", "key_secret": key_secret.map(|_| "***") }),
        StoreSettings::Redis(settings) => {
            let RedisSettings { url, sentinel, cluster, tls, password_file, timeout, .. } = settings;
            let RedisSettings { prefix, pool_size, key_secret, fail_readiness, min_gateways, .. } = settings;
            json!({
                "kind": "redis",
                "state": if cause.is_none() { "up" } else { "down" },
                "cause": cause,
                "gateways": store.gateways(),
                "owed": store.owed(),
                "url": url.to_string(),
                "sentinel": sentinel.as_ref().map(|sentinel| show_sentinel(sentinel, store)),
                "cluster": cluster.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "tls": show_tls(tls),
                "password_file": password_file,
                "timeout_ms": timeout.as_millis(),
                "prefix": prefix,
                "pool_size": pool_size,
                "fail_readiness": fail_readiness,
                "min_gateways": min_gateways,
                "key_secret": key_secret.map(|_| "***"),
            })
        }
    }
}

fn show_sentinel(SentinelSettings { urls, password_file, tls }: &SentinelSettings, store: &Store) -> Value {
    json!({
        "master": store.master(),
        "urls": urls.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "password_file": password_file,
        "tls": show_tls(tls),
    })
}

fn show_tls(RedisTls { ca, identity }: &RedisTls) -> Value {
    let (cert, key) = identity.as_ref().map(|files| (&files.cert, &files.key)).unzip();
    json!({ "ca": ca, "cert": cert, "key": key })
}

fn show_upstream_tls(UpstreamTls { ca, server_name, identity, verify, .. }: &UpstreamTls) -> Value {
    json!({
        "ca": ca,
        "server_name": server_name,
        "cert": identity.as_ref().map(|identity| &identity.cert),
        "verify": verify,
    })
}

fn show_upstream(upstream: &UpstreamSettings) -> Value {
    let targets: Vec<String> = upstream.targets.iter().map(ToString::to_string).collect();
    json!({
        "targets": targets,
        "protocol": upstream.protocol.name(),
        "tls": upstream.tls.as_ref().map(show_upstream_tls),
        "connect_timeout_ms": upstream.connect_timeout.as_millis(),
        "response_timeout_ms": upstream.response_timeout.as_millis(),
        "body_timeout_ms": upstream.body_timeout.as_millis(),
        "max_connections": upstream.max_connections,
        "queue": upstream.queue,
        "queue_timeout_ms": upstream.queue_timeout.as_millis(),
    })
}

fn show_route(route: &Route) -> Value {
    json!({
        "name": *route.name,
        "match": show_match(&route.matcher),
        "upstream": route.upstream.as_deref(),
        "max_body_bytes": route.max_body,
        "upgrades": show_upgrades(&route.upgrades),
        "headers": show_headers(route.rate_limit_headers),
        "limits": route.limits.iter().map(show_limit).collect::<Vec<_>>(),
    })
}

fn show_upgrades(Upgrades { protocols, limits }: &Upgrades) -> Value {
    let names = protocols.iter().map(|name| String::from_utf8_lossy(name.as_bytes()));
    json!({
        "protocols": names.collect::<Vec<_>>(),
        "idle_timeout_ms": limits.idle_timeout.as_millis(),
        "max_time_ms": limits.max_time.map(|time| time.as_millis()),
        "max_bytes": limits.max_bytes,
    })
}

fn show_headers(headers: RateLimitHeaders) -> Vec<&'static str> {
    [(RateLimitFields::Ietf.name(), headers.ietf), (RateLimitFields::Legacy.name(), headers.legacy)]
        .into_iter()
        .filter(|(_, is_sent)| *is_sent)
        .map(|(word, _)| word)
        .collect()
}

fn show_match(matcher: &Matcher) -> Value {
    // The required value of a header is often a secret of a proxy, so only the name is shown.
    let headers: Vec<&str> = matcher.headers.iter().map(|(name, _)| name.as_str()).collect();
    json!({
        "host": matcher.host.as_ref().map(ToString::to_string),
        "path": matcher.path.as_ref().map(ToString::to_string),
        "methods": matcher.methods.iter().map(http::Method::as_str).collect::<Vec<_>>(),
        "headers": headers,
    })
}

fn show_limit(limit: &Limit) -> Value {
    let quota = &limit.limiter.quota;
    let waits = waits(limit);
    json!({
        "name": limit.name,
        "mode": limit.mode().to_string(),
        "client": (limit.mode() == Mode::PerClient).then(|| show_client(&limit.client)),
        "rate": (!quota.is_adopted()).then(|| quota.rate()),
        "interval_ms": (!quota.is_adopted()).then(|| quota.interval()),
        "adopt": quota.is_adopted(),
        "algorithm": quota.algorithm().name(),
        "burst": match quota.algorithm() {
            Algorithm::Gcra { burst } => Some(burst),
            _ => None,
        },
        "max_wait_ms": waits.map(|(max_wait, _)| max_wait),
        "queue": waits.map(|(_, queue)| queue),
        "shadow": limit.shadow,
        "permits": show_cost(&limit.permits),
        "partitions": limit.limiter.partitions(),
        "shards": (!limit.limiter.shards().is_empty()).then(|| limit.limiter.shards().len()),
        "segments": segments(&quota.algorithm()),
        "calendar": calendar(&quota.algorithm()),
        "key": limit.limiter.name,
        "on_missing_client": limit.on_missing_client.name(),
        "on_store_failure": limit.on_store_failure.name(),
    })
}

fn show_cost(cost: &Cost) -> Value {
    match cost {
        Cost::Fixed(permits) => (*permits).into(),
        Cost::Header(HeaderCost { name, default, max }) => {
            json!({ "header": name.as_str(), "default": default, "max": max })
        }
    }
}

/// Returns the longest wait in milliseconds and the length of the queue. Returns `None` if requests do not wait.
fn waits(limit: &Limit) -> Option<(u128, u128)> {
    match limit.limiter.quota.algorithm() {
        Algorithm::LeakyBucket(queue) => Some((queue.max_wait.into(), queue.length.into())),
        _ => limit.wait_policy.map(|policy| (policy.max_wait.as_millis(), policy.queue as u128)),
    }
}

fn segments(algorithm: &Algorithm) -> Option<u32> {
    match algorithm {
        Algorithm::SlidingWindow { segments } => Some(*segments),
        _ => None,
    }
}

fn calendar(algorithm: &Algorithm) -> Option<Value> {
    match algorithm {
        Algorithm::FixedWindow(calendar) => {
            Some(json!({ "unit": calendar.unit().name(), "timezone": calendar.zone() }))
        }
        _ => None,
    }
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
        ClientSource::All(sources) => sources.iter().map(show_client).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::RuleFile;
    use crate::metrics::Metrics;

    /// The rule files use every key, which `config/tests/every_key.rs` checks.
    #[test]
    fn config_shows_every_key_and_no_secret() {
        let metrics = Metrics::default().into();
        let store = Store::open(&StoreSettings::Memory { key_secret: None }, metrics).expect("a store");
        for name in ["cluster", "defaults", "memory", "redis", "sentinel"] {
            let file = RuleFile::Path(PathBuf::from(format!("tests/fixtures/every_key/{name}.yaml")));
            let config = file.load_without_referenced_files().expect("a valid rule file");
            let shown = serde_json::to_string_pretty(&show(&config, &store)).expect("JSON");
            assert!(!shown.contains("hunter2"), "{shown}");
            let snapshots = "../../tests/fixtures/every_key";
            insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => snapshots }, {
                insta::assert_snapshot!(name, shown);
            });
        }
    }
}
