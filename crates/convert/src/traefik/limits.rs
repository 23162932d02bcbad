//! The middleware `rateLimit`: a token bucket for each source.

use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;

use super::conditions::network;
use super::model::{Item, duration, texts};
use crate::draft::value::{Map, Value};
use crate::draft::{Algorithm, Draft, Interval, Limit, Match, Mode};
use crate::fields::{Fields, Spelling, setting};
use crate::header_fields;
use crate::report::{Report, Verdict};
use crate::tree::{Entry, Node};

/// The largest rate of the rule file.
const MAX_RATE: u64 = 2_147_483_648;

/// The limits of a middleware.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) limits: Vec<Limit>,
    /// Whether the buckets are in Redis, where all routers share them.
    pub(super) is_shared: bool,
}

/// The part of a request that a middleware counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Ip,
    Host,
    Header(String),
}

/// Reads the middleware, and reports its settings.
pub(super) fn read(
    item: Item<'_>,
    limit: &Entry,
    replicas: NonZeroU32,
    draft: &mut Draft,
    report: &mut Report,
) -> Plan {
    let mut fields = Fields::of(&limit.value, Spelling::Relaxed);
    let (average, period, burst) = (fields.take("average"), fields.take("period"), fields.take("burst"));
    let source = read_source(item, fields.take("sourceCriterion"), Source::Ip, draft, report);
    let redis = fields.take("redis");
    if let Some(redis) = redis {
        read_redis(item, redis, draft, report);
    }
    fields.report_rest(item.text, "the rule file has no such key", report);
    let number = |entry: Option<&Entry>| entry.and_then(|entry| entry.value.number());
    let replicas = if redis.is_some() { NonZeroU32::MIN } else { replicas };
    let interval = period.and_then(|entry| entry.value.text()).map_or(Some(1_000), duration);
    let Some(interval) = interval.map(|millis| if millis == 0 { 1_000 } else { millis }) else {
        report_all(item, [average, period, burst], Verdict::Lost, "`period` is not a duration", report);
        return Plan::default();
    };
    let Some(rate) = number(average).filter(|rate| *rate > 0) else {
        report_all(item, [average, period, burst], Verdict::Same, "without `average`, nothing is limited", report);
        return Plan::default();
    };
    let law = Law { rate, interval, burst: number(burst).unwrap_or(1).max(1) };
    let (verdict, reason) = law.difference(replicas);
    report_all(item, [average, period], Verdict::Same, "`rate` and `interval`", report);
    let (burst_entry, shown) = (burst.or(average).unwrap_or(limit), burst.map_or("rateLimit".to_owned(), setting));
    report.add(&item.place_of(burst_entry), verdict, format!("{}.{shown}", item.entry.key), reason);
    Plan { limits: law.limits(item, &source, replicas), is_shared: redis.is_some() }
}

fn report_all<const N: usize>(
    item: Item<'_>,
    entries: [Option<&Entry>; N],
    verdict: Verdict,
    reason: &str,
    report: &mut Report,
) {
    for entry in entries.into_iter().flatten() {
        report.add(&item.place_of(entry), verdict, item.setting(entry), reason);
    }
}

/// Reads a `sourceCriterion`.
pub(super) fn read_source(
    item: Item<'_>,
    criterion: Option<&Entry>,
    default: Source,
    draft: &mut Draft,
    report: &mut Report,
) -> Source {
    let Some(criterion) = criterion else {
        draft.clients.ipv6_prefix.get_or_insert(128);
        return default;
    };
    let mut fields = Fields::of(&criterion.value, Spelling::Relaxed);
    let (strategy, header, host) =
        (fields.take("ipStrategy"), fields.take("requestHeaderName"), fields.take("requestHost"));
    fields.report_rest(item.text, "the rule file has no such key", report);
    if let Some(strategy) = strategy {
        draft.clients.ipv6_prefix.get_or_insert(128);
        read_strategy(item, strategy, draft, report);
        return Source::Ip;
    }
    let field = header.and_then(|entry| header_fields::name(entry.value.text()?));
    if let (Some(entry), Some(field)) = (header, field) {
        report.same(&item.place_of(entry), item.setting(entry), "`client`");
        return Source::Header(field);
    }
    if let Some(entry) = host.filter(|entry| entry.value.flag() == Some(true)) {
        report.same(&item.place_of(entry), item.setting(entry), "`client: host`");
        return Source::Host;
    }
    default
}

/// Reads how the address of a client is found.
fn read_strategy(item: Item<'_>, strategy: &Entry, draft: &mut Draft, report: &mut Report) {
    let mut fields = Fields::of(&strategy.value, Spelling::Relaxed);
    if let Some(depth) = fields.take("depth").filter(|depth| depth.value.number() != Some(0)) {
        let reason = "set `clients.trusted_proxies` to the networks of the proxies in front, instead of their number";
        report.lost(&item.place_of(depth), item.setting(depth), reason);
    }
    if let Some(excluded) = fields.take("excludedIPs") {
        let networks: Vec<_> = texts(&excluded.value).into_iter().filter_map(network).collect();
        networks.into_iter().for_each(|network| trust(network, draft));
        let reason = "`clients.trusted_proxies`: `X-Forwarded-For` of other peers is not read";
        report.stricter(&item.place_of(excluded), item.setting(excluded), reason);
    }
    if let Some(subnet) = fields.take("ipv6Subnet") {
        let prefix =
            subnet.value.number().and_then(|bits| u8::try_from(bits).ok()).filter(|bits| (32..=128).contains(bits));
        draft.clients.ipv6_prefix = prefix.or(draft.clients.ipv6_prefix);
        report.same(&item.place_of(subnet), item.setting(subnet), "`clients.ipv6_prefix`, for all limits");
    }
    fields.report_rest(item.text, "the rule file has no such key", report);
}

/// Adds a network of trusted proxies.
pub(super) fn trust(network: IpNet, draft: &mut Draft) {
    const MAX: usize = 1_000;
    let networks = &mut draft.clients.trusted_proxies;
    if networks.len() < MAX && !networks.contains(&network) {
        networks.push(network);
    }
}

/// Reads the Redis. The first one becomes the store.
fn read_redis(item: Item<'_>, redis: &Entry, draft: &mut Draft, report: &mut Report) {
    let place = item.place_of(redis);
    let setting = format!("{}.redis", item.entry.key);
    let get = |key: &str| redis.value.get(key);
    let endpoints = get("endpoints").map(texts).unwrap_or_default();
    let is_address = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte));
    let scheme = if get("tls").is_some() { "rediss" } else { "redis" };
    let database = get("db").and_then(Node::number).filter(|number| *number > 0 && *number < 65_536);
    let database = database.map_or_else(String::new, |number| format!("/{number}"));
    let url = match endpoints[..] {
        [] => format!("{scheme}://127.0.0.1:6379{database}"),
        [endpoint] if is_address(endpoint) => format!("{scheme}://{endpoint}{database}"),
        _ => return report.lost(&place, setting, "set `store` to the Redis: it has several addresses"),
    };
    let url = Value::Text(url);
    if draft.store.as_ref().is_some_and(|store| *store != url) {
        return report.lost(&place, setting, "the rule file has one store, which an earlier middleware has set");
    }
    draft.store = Some(url);
    match get("password").is_some() {
        true => report.lost(&place, setting, "`store`; write the password to a file, and name it in `password_file`"),
        false => report.same(&place, setting, "`store`"),
    }
}

/// The numbers of a middleware.
struct Law {
    rate: u64,
    /// In milliseconds.
    interval: u64,
    burst: u64,
}

// === impl Law ===

impl Law {
    /// Returns the longest wait for a permit, in milliseconds: half the time of a permit, at most half a second. Traefik
    /// rounds the rate per second down before.
    fn max_wait(&self) -> u64 {
        let per_second = self.rate.saturating_mul(1_000) / self.interval;
        if per_second == 0 { 500 } else { 1_000 / (per_second * 2) }
    }

    /// Returns how the limit differs. Traefik forgets clients after some idle time, and then grants the whole burst.
    fn difference(&self, replicas: NonZeroU32) -> (Verdict, &'static str) {
        let per_second = self.rate.saturating_mul(1_000) / self.interval;
        let idle = if per_second == 0 { 1 + self.interval / self.rate.saturating_mul(1_000).max(1) } else { 2 };
        let refilled = self.rate.saturating_mul(idle).saturating_mul(1_000) / self.interval;
        match () {
            () if self.burst > refilled.max(1) => (
                Verdict::Stricter,
                "Traefik forgets a client after a few idle seconds, and then grants the whole burst again",
            ),
            () if replicas.get() > 1 => {
                (Verdict::Looser, "the sum of the replicas, also for clients of only one of them")
            }
            () => (Verdict::Same, "`burst` and `max_wait`"),
        }
    }

    /// Returns the limits. Requests without the header field share one bucket.
    fn limits(&self, item: Item<'_>, source: &Source, replicas: NonZeroU32) -> Vec<Limit> {
        let of_all = |number: u64| number.saturating_mul(replicas.get().into()).clamp(1, MAX_RATE);
        let wait = self.max_wait();
        let base = Limit {
            name: crate::draft::valid_name(&item.entry.key),
            rate: Some(of_all(self.rate)),
            interval: Some(Interval::Time(Duration::from_millis(self.interval))),
            algorithm: Some(Algorithm::Gcra),
            burst: Some(of_all(self.burst)),
            max_wait: (wait > 0).then(|| Duration::from_millis(wait)),
            place: Some(item.place()),
            ..Limit::default()
        };
        let per = |client: &str| Limit { mode: Mode::PerClient, client: vec![client.to_owned()], ..base.clone() };
        match source {
            Source::Ip => vec![per("ip")],
            Source::Host => vec![per("host")],
            Source::Header(field) => {
                let mut with = per(&format!("header:{field}"));
                with.on_missing_client = Some("skip");
                with.more = Map::of([("duplicates", "first".into())]);
                let when = Match { headers: Map::of([(field.as_str(), "absent".into())]), ..Match::default() };
                vec![with, Limit { name: format!("{}-without", base.name), when, ..base }]
            }
        }
    }
}
