//! A limit, and the tiers that its rate can come from.

use std::ops::RangeInclusive;

use super::{Client, Duplicates, Interval, Match, OnMissingClient, OnStoreFailure, Quota, setters};
use tidegate_config::built::{Item, Map, Part};
use tidegate_limit::Mode;

/// A rate limit of one route, or of several routes ([`Rules::shared_limit`](super::Rules::shared_limit)).
///
/// A limit needs a rate: [`rate`](Self::rate), [`quota`](Self::quota), [`tier`](Self::tier) or
/// [`rate_by`](Self::rate_by).
#[derive(Clone, Debug)]
#[must_use = "a limit does nothing until a route uses it"]
pub struct Limit {
    name: String,
    keys: Map,
}

/// A tier of clients: the rate of limits with [`Limit::tier`].
#[derive(Clone, Debug)]
#[must_use = "a tier does nothing until rules have it"]
pub struct Tier {
    pub(super) keys: Map,
}

/// The value of a request from which a limit takes its tier or its rate.
#[derive(Clone, Debug)]
#[must_use = "a value does nothing until a limit uses it"]
pub struct By(String);

/// A status, or a range of statuses: `401` or `500..=599`.
#[derive(Clone, Debug)]
pub struct Statuses(String);

// === impl Limit ===

impl Limit {
    /// Creates a limit with one bucket for each client. The name appears in metrics, logs, keys of the store and response
    /// fields: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub fn per_client(name: &str, client: Client) -> Self {
        let mut limit = Self::new(name, Mode::PerClient);
        limit.keys.set("client", client);
        limit
    }

    /// Creates a limit with one bucket for all clients.
    pub fn overall(name: &str) -> Self {
        Self::new(name, Mode::Overall)
    }

    fn new(name: &str, mode: Mode) -> Self {
        let mut keys = Map::default();
        keys.set("name", name);
        keys.set("mode", mode.name());
        Self { name: name.to_owned(), keys }
    }

    /// Sets the permits in each interval, with the default algorithm.
    pub fn rate(self, rate: u64, interval: impl Into<Interval>) -> Self {
        self.quota(Quota::new(rate, interval))
    }

    /// Sets the rate, the algorithm and their settings.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.keys.extend(quota.keys);
        self
    }

    /// Takes the rate from the tier that the value names. `default` is the tier of requests without a value, or with an
    /// unknown tier.
    pub fn tier(mut self, by: By, default: &str) -> Self {
        self.keys.change("tier", |tier| {
            tier.set("by", by.0);
            tier.set("default", default);
        });
        self
    }

    /// Takes the rate from a number of the request, at most `max`. `default` is the rate of requests without a valid number.
    pub fn rate_by(mut self, by: By, default: u64, max: u64, interval: impl Into<Interval>) -> Self {
        let mut rate = Map::default();
        rate.set("by", by.0);
        rate.set("default", default);
        rate.set("max", max);
        self.keys.set("rate", rate);
        self.keys.set("interval", interval.into());
        self
    }

    /// Takes the cost of a request from a header field. A request without the field costs `default` permits; a request
    /// with more than `max` is rejected with 400.
    pub fn permits_from_header(mut self, name: &str, default: u64, max: u64) -> Self {
        let mut permits = Map::default();
        permits.set("header", name);
        permits.set("default", default);
        permits.set("max", max);
        self.keys.set("permits", permits);
        self
    }

    /// Counts only requests that meet all these conditions.
    pub fn when(mut self, conditions: Match) -> Self {
        self.keys.change("when", |when| when.extend(conditions.keys));
        self
    }

    /// Counts only requests of these tiers: of the limit's `tier`, or otherwise of their API keys.
    pub fn when_tier<'n>(mut self, tiers: impl IntoIterator<Item = &'n str>) -> Self {
        self.keys.change("when", |when| when.set("tier", Item::from_iter(tiers)));
        self
    }

    /// Counts only requests within this span of each day, such as `08:00-20:00`, by the store's clock.
    pub fn when_time(mut self, span: &str) -> Self {
        self.keys.change("when", |when| when.set("time", span));
        self
    }

    /// Counts only requests on these days of the week: `mon`, or a range such as `mon-fri`.
    pub fn when_days<'n>(mut self, days: impl IntoIterator<Item = &'n str>) -> Self {
        self.keys.change("when", |when| when.set("days", Item::from_iter(days)));
        self
    }

    /// Sets the time zone of [`when_time`](Self::when_time) and [`when_days`](Self::when_days). By default UTC.
    pub fn when_timezone(mut self, zone: &str) -> Self {
        self.keys.change("when", |when| when.set("timezone", zone));
        self
    }

    /// Charges a request only if its response has one of these statuses. Other requests only have to find enough permits.
    pub fn charge_on<S: Into<Statuses>>(mut self, statuses: impl IntoIterator<Item = S>) -> Self {
        self.keys.set("charge_on", statuses.into_iter().map(|statuses| statuses.into().0).collect::<Item>());
        self
    }

    setters! {
        /// Sets the permits of a request. By default 1.
        permits(permits: u64) = "permits", permits;
        /// With [`charge_on`](Self::charge_on): charges a request at its start, and refunds it after a response with
        /// another status.
        reserve(reserve: bool) = "reserve", reserve;
        /// Sets how the limit decides while the store is unreachable. By default, each program enforces its share.
        on_store_failure(action: OnStoreFailure) = "on_store_failure", action.name();
        /// Sets how to handle a request without a client key. By default, it is rejected with 400.
        on_missing_client(action: OnMissingClient) = "on_missing_client", action.name();
        /// Sets how to handle a request with several different client keys. By default, it is rejected with 400.
        duplicates(action: Duplicates) = "duplicates", action.name();
        /// Evaluates and counts requests without rejecting any.
        shadow(shadow: bool) = "shadow", shadow;
        /// Adds a second quota, which is evaluated as a shadow.
        candidate(quota: Quota) = "candidate", quota.keys;
        /// Distributes the clients over this number of hash tags, and so over the nodes of a Redis Cluster.
        partitions(partitions: u64) = "partitions", partitions;
        /// Distributes the rate of an OVERALL limit over this number of buckets.
        shards(shards: u64) = "shards", shards;
        /// Shares the limiter with this name with Java services, in the format of Redisson.
        key(name: &str) = "key", name;
        /// With [`key`](Self::key): takes the rate, the interval and the mode from the Java service.
        adopt(adopt: bool) = "adopt", adopt;
    }

    pub(super) fn into_shared(mut self) -> Part {
        self.keys.remove("name");
        Part { kind: "shared limit", name: self.name, keys: self.keys }
    }
}

impl From<Limit> for Item {
    fn from(Limit { name, keys }: Limit) -> Self {
        Part { kind: "limit", name, keys }.into()
    }
}

// === impl Tier ===

impl Tier {
    /// Creates a tier with this rate.
    pub fn new(rate: u64, interval: impl Into<Interval>) -> Self {
        Self { keys: Quota::new(rate, interval).keys }
    }

    setters! {
        /// Sets the permits in a full bucket of limits with [`Algorithm::Gcra`](super::Algorithm::Gcra). By default, the
        /// rate.
        burst(permits: u64) = "burst", permits;
    }
}

// === impl By ===

impl By {
    /// The key with this name of the [`ClientKeys`](crate::ClientKeys) in the request's extensions.
    pub fn extension(name: &str) -> Self {
        Self(format!("extension:{name}"))
    }

    /// A claim of the verified token.
    pub fn claim(name: &str) -> Self {
        Self(format!("jwt:{name}"))
    }

    /// The tier or another attribute of the API key.
    pub fn api_key(attribute: &str) -> Self {
        Self(format!("key:{attribute}"))
    }

    /// A header field that a trusted proxy has sent.
    pub fn header(name: &str) -> Self {
        Self(format!("header:{name}"))
    }
}

// === impl Statuses ===

impl From<u16> for Statuses {
    fn from(status: u16) -> Self {
        Self(status.to_string())
    }
}

impl From<RangeInclusive<u16>> for Statuses {
    fn from(range: RangeInclusive<u16>) -> Self {
        Self(format!("{}-{}", range.start(), range.end()))
    }
}
