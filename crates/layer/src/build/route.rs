//! A route: the requests that it applies to, and their limits.

use super::{
    Case, Concurrency, Condition, Cors, FieldChanges, IdentityCondition, IdentityKind, Limit, Match, RateLimitFields,
    Redirect, Reject, Required, Respond, Scheme, setters,
};
use tidegate_config::built::{Item, Map, Part};

/// The limits of matching requests. A request is charged to all limits of its route or to none.
#[derive(Clone, Debug)]
#[must_use = "a route does nothing until rules have it"]
pub struct Route {
    name: String,
    conditions: Match,
    keys: Map,
}

/// Defines methods that add a condition to the match of a route.
macro_rules! conditions {
    ($($(#[$attribute:meta])+ $method:ident($($argument:ident: $type:ty),+);)+) => {
        $(
            $(#[$attribute])+
            pub fn $method(mut self, $($argument: $type),+) -> Self {
                self.conditions = self.conditions.$method($($argument),+);
                self
            }
        )+
    };
}

impl Route {
    /// Creates a route that all requests match until it has conditions. The name appears in metrics, logs and keys of the
    /// store: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub fn new(name: &str) -> Self {
        let mut keys = Map::default();
        keys.set("name", name);
        Self { name: name.to_owned(), conditions: Match::new(), keys }
    }

    conditions! {
        /// See [`Match::host`].
        host(host: &str);
        /// See [`Match::path`].
        path(path: &str);
        /// See [`Match::method`].
        method(method: &str);
        /// See [`Match::client`].
        client(network: &str);
        /// See [`Match::header`].
        header(name: &str, condition: impl Into<Condition>);
        /// See [`Match::query`].
        query(name: &str, condition: impl Into<Condition>);
        /// See [`Match::cookie`].
        cookie(name: &str, condition: impl Into<Condition>);
        /// See [`Match::identity`].
        identity(name: &str, condition: impl Into<IdentityCondition>);
        /// See [`Match::except`].
        except(conditions: Match);
        /// See [`Match::case`].
        case(case: Case);
        /// See [`Match::scheme`].
        scheme(scheme: Scheme);
    }

    /// Adds a limit.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.keys.push("limits", Item::from(limit));
        self
    }

    /// Adds the limit with this name of [`Rules::shared_limit`](super::Rules::shared_limit).
    pub fn shared_limit(mut self, name: &str) -> Self {
        self.keys.push("limits", name);
        self
    }

    /// Adds a kind of credentials. A request needs at least one of the added kinds; others are rejected with 401.
    pub fn require(mut self, kind: IdentityKind) -> Self {
        self.keys.push("require", kind.name());
        self
    }

    /// Adds credentials that suffice, as an alternative to others that were added. Requests whose valid credentials do not
    /// suffice are rejected with 403.
    pub fn require_credentials(mut self, required: Required) -> Self {
        self.keys.push("require", required.keys);
        self
    }

    /// Evaluates requests for a proxy instead of passing them to the inner service. `nginx` sets whether all rejections
    /// other than 401 have the status 403.
    pub fn authorize(mut self, nginx: bool) -> Self {
        self.keys.change("authorize", |authorize| authorize.set("nginx", nginx));
        self
    }

    /// Sets the fields that report the remaining permits to clients. By default [`RateLimitFields::Ietf`].
    pub fn headers(mut self, fields: impl IntoIterator<Item = RateLimitFields>) -> Self {
        self.keys.set("headers", fields.into_iter().map(RateLimitFields::name).collect::<Item>());
        self
    }

    /// Calls the inner service also with requests that limits would reject. They have this field, with the names of the limits. A
    /// limit that refuses a request is not charged, and all others are. The field of a client is always removed.
    pub fn mark_over_limit(mut self, field: &str) -> Self {
        self.keys.change("on_limit", |on_limit| on_limit.set("mark", field));
        self
    }

    setters! {
        /// Bounds the requests in flight.
        concurrency(concurrency: Concurrency) = "concurrency", concurrency.keys;
        /// Sends clients to another URL instead of calling the inner service.
        redirect(redirect: Redirect) = "redirect", redirect.keys;
        /// Responds instead of calling the inner service.
        respond(respond: Respond) = "respond", respond.keys;
        /// Changes the header fields of all responses, also of the layer's own.
        response_headers(changes: FieldChanges) = "response_headers", changes.keys;
        /// Sets the response to requests that limits reject.
        reject(reject: Reject) = "reject", reject.keys;
        /// Sets the largest `Content-Length` of a request, in bytes. By default 1 GiB.
        max_body(bytes: u64) = "max_body", format!("{bytes}B");
        /// Sets a path where a client reads its own limits of this route as JSON. It takes precedence over all routes.
        quota(path: &str) = "quota", path;
        /// Sets the pages of other origins that may use the route in browsers.
        cors(cors: Cors) = "cors", cors.keys;
    }
}

impl From<Route> for Item {
    fn from(Route { name, conditions, mut keys }: Route) -> Self {
        keys.set("match", conditions.keys);
        Part { kind: "route", name, keys }.into()
    }
}
