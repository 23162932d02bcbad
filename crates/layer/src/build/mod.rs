//! Builds rules without a rule file: the same keys, checks and defaults as in a rule file (`docs/rules.md`).
//!
//! ```
//! use tidegate_layer::build::{Algorithm, Client, Limit, MINUTE, Quota, Route, Rules, SECOND};
//! use tidegate_layer::{ClientKey, RateLimitLayer};
//!
//! let per_user = Limit::per_client("per-user", Client::extension()).rate(100, MINUTE);
//! let attempts = Limit::per_client("attempts", Client::ip()).quota(Quota::new(5, MINUTE).algorithm(Algorithm::Gcra));
//! let rules = Rules::new()
//!     .route(Route::new("login").path("/login").limit(attempts))
//!     .route(Route::new("rest").limit(per_user).limit(Limit::overall("total").rate(1_000, SECOND)));
//! let layer = RateLimitLayer::from_rules(rules)?;
//! # Ok::<(), tidegate_layer::LayerError>(())
//! ```
//!
//! Texts are used as they are: `$` and `${NAME}` have no special meaning. A method that is called again replaces the
//! earlier value, except for methods that say "adds". All values are checked when the rules are built. The errors name the
//! route and the limit:
//!
//! ```
//! use tidegate_layer::build::{Client, Limit, MINUTE, Route, Rules};
//!
//! let limit = Limit::per_client("per-user", Client::header("x-api-key")).rate(0, MINUTE);
//! let error = Rules::new().route(Route::new("all").limit(limit)).build().expect_err("a rate of 0");
//! assert!(error.to_string().starts_with("limit `per-user` of route `all`: `rate` must be a whole number from 1 "));
//! ```
//!
//! The store and the metrics are not rules: give them to [`RateLimitLayer::builder`](crate::RateLimitLayer::builder).

mod actions;
mod client;
mod conditions;
mod identities;
mod limit;
mod quota;
mod required;
mod route;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::actions::{Concurrency, Cors, FieldChanges, Redirect, Reject, Respond};
pub use self::client::Client;
pub use self::conditions::{Condition, Match};
pub use self::identities::{ApiKeys, Passwords, Tokens};
pub use self::limit::{By, Limit, Statuses, Tier};
pub use self::quota::{Interval, Quota};
pub use self::required::{IdentityCondition, Required};
pub use self::route::Route;
use tidegate_config::built::{self, Item, Map, Part};
use tidegate_config::{Config, FileChecks, LibraryFiles, Problems};
pub use tidegate_limit::AlgorithmName as Algorithm;
pub use tidegate_limit::calendar::Unit as CalendarUnit;
pub use tidegate_rules::client::{Duplicates, RequestParts};
pub use tidegate_rules::limits::policy::RateLimitFields;
pub use tidegate_rules::limits::rule::{OnMissingClient, OnStoreFailure};
pub use tidegate_rules::request::facts::Scheme;
pub use tidegate_rules::request::identity::IdentityKind;
pub use tidegate_rules::route::Case;
pub use tidegate_rules::rules::{EncodedSlash, Slashes, Underscores};

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// 60 seconds.
pub const MINUTE: Duration = Duration::from_secs(60);
/// 60 minutes.
pub const HOUR: Duration = Duration::from_secs(60 * 60);
/// 24 hours.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Defines methods that set a key to a value.
macro_rules! setters {
    ($($(#[$attribute:meta])+ $method:ident($argument:ident: $type:ty) = $key:literal, $value:expr;)+) => {
        $(
            $(#[$attribute])+
            pub fn $method(mut self, $argument: $type) -> Self {
                self.keys.set($key, $value);
                self
            }
        )+
    };
}
use setters;

/// Rules: routes in the order in which requests are compared with them, and what they share. The first route that matches a
/// request applies. Requests that match no route are not limited.
#[derive(Clone, Debug, Default)]
#[must_use = "rules do nothing until a layer uses them"]
pub struct Rules {
    keys: Map,
}

impl Rules {
    /// Creates rules without routes. They need at least one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route.
    pub fn route(mut self, route: Route) -> Self {
        self.keys.push("routes", Item::from(route));
        self
    }

    /// Adds a limit that several routes can use by its name, with the same buckets:
    /// [`Route::shared_limit`].
    pub fn shared_limit(mut self, limit: Limit) -> Self {
        let Part { name, keys, .. } = limit.into_shared();
        let key = name.clone();
        self.keys.change("limits", |limits| limits.add(&key, Part { kind: "shared limit", name, keys }));
        self
    }

    /// Adds a tier of clients, from which limits with [`Limit::tier`] take their rates.
    pub fn tier(mut self, name: &str, tier: Tier) -> Self {
        let part = Part { kind: "tier", name: name.to_owned(), keys: tier.keys };
        self.keys.change("tiers", |tiers| tiers.add(name, part));
        self
    }

    /// Sets the networks of proxies whose `X-Forwarded-For` is trusted, such as `10.0.0.0/8`. None by default.
    pub fn trusted_proxies<'n>(mut self, networks: impl IntoIterator<Item = &'n str>) -> Self {
        self.keys.change("clients", |clients| clients.set("trusted_proxies", Item::from_iter(networks)));
        self
    }

    /// Sets the leading bits of an IPv6 address that identify a client, 32 to 128. By default 64.
    pub fn ipv6_prefix(mut self, bits: u64) -> Self {
        self.keys.change("clients", |clients| clients.set("ipv6_prefix", bits));
        self
    }

    /// Sets how to interpret an encoded slash in a path. By default such requests are rejected.
    pub fn encoded_slash(self, encoded_slash: EncodedSlash) -> Self {
        self.requests("encoded_slash", encoded_slash.name())
    }

    /// Sets how to treat empty segments of a path. By default they are merged.
    pub fn slashes(self, slashes: Slashes) -> Self {
        self.requests("slashes", slashes.name())
    }

    /// Sets how to handle header fields whose names have other characters than letters, digits and hyphens. By default they
    /// are dropped.
    pub fn underscores(self, underscores: Underscores) -> Self {
        self.requests("underscores", underscores.name())
    }

    /// Sets the header fields to ignore unless a trusted proxy sent them. `default` stands for the default list.
    pub fn strip<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.requests("strip", Item::from_iter(names))
    }

    /// Sets the exceptions to [`strip`](Self::strip).
    pub fn keep<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.requests("keep", Item::from_iter(names))
    }

    /// Sets whether each request has an `X-Request-Id`, which the layer adds.
    pub fn request_id(self, request_id: bool) -> Self {
        self.requests("request_id", request_id)
    }

    /// Sets the API keys that identify clients. Only a layer of
    /// `tidegate::Gateway::layer_builder` verifies them.
    pub fn api_keys(mut self, keys: ApiKeys) -> Self {
        self.keys.change("identities", |identities| identities.set("keys", keys.keys));
        self
    }

    /// Sets the signed tokens that identify clients. Only a layer of
    /// `tidegate::Gateway::layer_builder` verifies them.
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.keys.change("identities", |identities| identities.set("jwt", Item::from_iter([tokens.keys])));
        self
    }

    /// Adds the tokens of an issuer with this name, if there are several issuers. See [`tokens`](Self::tokens).
    pub fn issuer(mut self, name: &str, mut tokens: Tokens) -> Self {
        tokens.keys.set("name", name);
        self.keys.change("identities", |identities| identities.push("jwt", tokens.keys));
        self
    }

    /// Sets the users with passwords that identify clients. Only a layer of
    /// `tidegate::Gateway::layer_builder` verifies them.
    pub fn passwords(mut self, passwords: Passwords) -> Self {
        self.keys.change("identities", |identities| identities.set("basic", passwords.keys));
        self
    }

    /// Checks the rules. The result is equal to the [`Config`] of a rule file with these rules.
    ///
    /// # Errors
    /// Returns all errors, with the texts of the errors of a rule file. Instead of a line, each has the route, the limit or the
    /// tier.
    pub fn build(&self) -> Result<Config, Problems> {
        self.build_with(&LibraryFiles)
    }

    /// Like [`build`](Self::build), with these checks of files.
    #[doc(hidden)]
    pub fn build_with(&self, checks: &'static dyn FileChecks) -> Result<Config, Problems> {
        built::check(&self.keys, checks)
    }

    fn requests(mut self, key: &str, value: impl Into<Item>) -> Self {
        self.keys.change("requests", |requests| requests.set(key, value));
        self
    }
}

/// Rules with one route.
impl From<Route> for Rules {
    fn from(route: Route) -> Self {
        Self::new().route(route)
    }
}

/// Rules with one limit for all requests. Its route has the name `all`.
impl From<Limit> for Rules {
    fn from(limit: Limit) -> Self {
        Route::new("all").limit(limit).into()
    }
}
