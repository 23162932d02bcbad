//! The keys of the rule file whose values differ. Each function names all fields of a type, so that the compiler
//! reports a new field.

use crate::{Config, Listen, Service};
use tidegate_rules::charge::{Limiter, Spread};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::route::{Action, Route};
use tidegate_rules::rules::Rules;
use tidegate_rules::settings::upstream::UpstreamSettings;
use tidegate_service::Domain;

/// Returns the keys of the fields that differ: the names of the fields, or other keys. Fields with the key `""` are
/// compared elsewhere, or have no effect on requests.
macro_rules! changed_keys {
    ($old:expr, $new:expr, $kind:ident: $($field:ident $(= $key:literal)?)+) => {{
        let (old, new) = ($old, $new);
        let $kind { $($field: _),+ } = old;
        let keys = [$({
            let key = changed_keys!(@key $field $($key)?);
            (key, !key.is_empty() && old.$field != new.$field)
        }),+];
        different(&keys)
    }};
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}

fn different(keys: &[(&'static str, bool)]) -> Vec<&'static str> {
    keys.iter().filter(|(_, differs)| *differs).map(|(key, _)| *key).collect()
}

pub(super) fn listener(old: &Listen, new: &Listen) -> Vec<&'static str> {
    changed_keys!(old, new, Listen:
        address name mode tls http2 proxy_protocol trust_unknown max_connections max_connections_per_client
        max_requests max_streams header_timeout idle_timeout body_timeout min_rate max_fields max_field_bytes
        max_target)
}

pub(super) fn upstream(old: &UpstreamSettings, new: &UpstreamSettings) -> Vec<&'static str> {
    changed_keys!(old, new, UpstreamSettings:
        name targets weights="weight" balance eject slow_start protocol tls timeouts health retry
        max_connections queue queue_timeout max_fields max_field_bytes)
}

/// Compares routes without their limits, which are compared one by one.
pub(super) fn route(old: &Route, new: &Route) -> Vec<&'static str> {
    let mut keys = changed_keys!(old, new, Route:
        name matcher="match" limits="" inherited="" max_body upgrades quota concurrency rate_limit_headers="headers" require
        cors authorize action="" rewrite request_headers response_headers timeout compression reject on_limit);
    if old.action != new.action {
        keys.push(key_of(&old.action));
        keys.extend(Some(key_of(&new.action)).filter(|key| *key != key_of(&old.action)));
    }
    let name = |limit: &Limit| (limit.is_shared, limit.name.clone());
    if old.limits.iter().map(name).ne(new.limits.iter().map(name)) {
        keys.push("limits");
    }
    keys
}

/// Returns the key of an action in the rule file.
fn key_of(action: &Action) -> &'static str {
    match action {
        Action::Forward(_) => "upstream",
        Action::Redirect(_) => "redirect",
        Action::Respond(_) => "respond",
    }
}

pub(super) fn limit(old: &Limit, new: &Limit) -> Vec<&'static str> {
    let mut keys = changed_keys!(old, new, Limit:
        name limiter="" rates="" when="" reads_key_tier="" body_conditions="" client permits on_missing_client duplicates
        on_store_failure wait_policy="max_wait" charge_on shadow sets_partitions="" is_shared="" location="");
    let rates_differ = old.rates != new.rates;
    let is_by_tier = [old, new].iter().any(|limit| limit.rates.as_ref().is_some_and(|rates| rates.max().is_none()));
    let (Limiter { name, mode, quota, spread, .. }, new) = (&*old.limiter, &*new.limiter);
    let differences = [
        ("key", *name != new.name),
        ("mode", *mode != new.mode),
        ("tier", is_by_tier && rates_differ),
        ("rate", quota.rate() != new.quota.rate() || (!is_by_tier && rates_differ)),
        ("interval", quota.interval() != new.quota.interval()),
        ("algorithm", quota.algorithm() != new.quota.algorithm()),
        ("partitions", !has_same_parts(spread, &new.spread)),
    ];
    keys.extend(different(&differences));
    keys
}

/// Returns `true` if the buckets are distributed over the same hash tags.
pub(super) fn has_same_parts(old: &Spread, new: &Spread) -> bool {
    match (old, new) {
        (Spread::Shards(old), Spread::Shards(new)) => {
            old.iter().map(|shard| &shard.name).eq(new.iter().map(|shard| &shard.name))
        }
        (old, new) => old == new,
    }
}

/// Compares the top-level keys that have no entries.
pub(super) fn settings(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut keys = changed_keys!(old, new, Config:
        listen="" max_connections admin admin_tokens="admin.tokens" show_clients="admin.show_clients" talkers="admin.talkers"
        dashboard="admin.dashboard" access_log buckets="metrics" store dns_servers="dns" upstreams=""
        included="" teams="" service="" identities="" verifier="" rules="" secrets="" warnings="");
    let Rules { requests, addresses, fields, credentials, bans, routes: _, when: _ } = &*old.rules;
    if *addresses != new.rules.addresses {
        keys.push("clients");
    }
    if (requests, fields) != (&new.rules.requests, &new.rules.fields) {
        keys.push("requests");
    }
    if *bans != new.rules.bans {
        keys.push("bans");
    }
    keys.extend(service(old.service.as_ref(), new.service.as_ref()));
    if *credentials != new.rules.credentials || old.identities != new.identities {
        keys.push("identities");
    }
    keys
}

/// Compares the addresses, the control plane and the answers of the service. Its domains are compared one by one.
fn service(old: Option<&Service>, new: Option<&Service>) -> Vec<&'static str> {
    let address = |service: Option<&Service>| {
        service.map(|Service { grpc, http, files: _, control_plane: _, domains: _ }| (grpc.clone(), http.clone()))
    };
    let ((old_grpc, old_http), (new_grpc, new_http)) =
        (address(old).unwrap_or_default(), address(new).unwrap_or_default());
    let planes = [old, new].map(|service| service.and_then(|service| service.control_plane.as_ref()));
    let has_same_plane = match planes {
        [Some(old), Some(new)] => old.has_same_connection(new) && old.is_required == new.is_required,
        [old, new] => old.is_none() && new.is_none(),
    };
    let answers =
        |service: Option<&Service>| service.map(|service| service.domains.answers().clone()).unwrap_or_default();
    let (old, new) = (answers(old), answers(new));
    different(&[
        ("service.grpc", old_grpc != new_grpc),
        ("service.http", old_http != new_http),
        ("service.headers", (old.headers, &old.legacy_names) != (new.headers, &new.legacy_names)),
        ("service.dynamic_metadata", old.dynamic_metadata != new.dynamic_metadata),
        ("service.timeout", old.timeout != new.timeout),
        ("service.descriptors", !has_same_plane),
    ])
}

/// Compares domains without the quotas of their limits, which are compared one by one.
pub(super) fn domain(old: &Domain, new: &Domain) -> Vec<&'static str> {
    let names = |domain: &Domain| domain.rule_limits().map(|limit| limit.name.to_owned()).collect::<Vec<_>>();
    let quota_modes = |domain: &Domain| domain.rule_limits().map(|limit| limit.rule.quota_mode).collect::<Vec<_>>();
    different(&[
        ("limits", names(old) != names(new)),
        ("match", !old.has_equal_search(new)),
        ("shadow", old.modes().shadow != new.modes().shadow),
        ("quota_mode", old.modes().quota != new.modes().quota || quota_modes(old) != quota_modes(new)),
    ])
}
