//! The conditions of routes and limits on requests.

use super::{Case, IdentityCondition, Scheme, setters};
use tidegate_config::built::{Item, Map};

/// Conditions on a request, which must meet all of them. Without conditions, every request matches.
#[derive(Clone, Debug, Default)]
#[must_use = "conditions do nothing until a route or a limit uses them"]
pub struct Match {
    pub(super) keys: Map,
}

/// A condition on a value that a client sends: a header field, a query parameter or a cookie. A text is a condition that
/// the value is equal.
#[derive(Clone, Debug)]
#[must_use = "a condition does nothing until a match uses it"]
pub struct Condition(Item);

impl Match {
    /// Creates a match without conditions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host: `api.example.com`, or `*.example.com` for all hosts below it. A request must have one of the hosts.
    pub fn host(mut self, host: &str) -> Self {
        self.keys.push("host", host);
        self
    }

    /// Adds a path: `/a/b`, `/a/{segment}`, `/a/**` for the path `/a` and all paths below it, `/a/v*`, or `/**/*.css`. A
    /// request must have one of the paths.
    pub fn path(mut self, path: &str) -> Self {
        self.keys.push("path", path);
        self
    }

    /// Adds a method. A request must have one of the methods.
    pub fn method(mut self, method: &str) -> Self {
        self.keys.push("methods", method);
        self
    }

    /// Adds a network or an address. One of the networks must include the client's address.
    pub fn client(mut self, network: &str) -> Self {
        self.keys.push("clients", network);
        self
    }

    /// Adds a condition on a header field.
    pub fn header(mut self, name: &str, condition: impl Into<Condition>) -> Self {
        self.keys.change("headers", |headers| headers.add(name, condition.into().0));
        self
    }

    /// Adds a condition on a query parameter.
    pub fn query(mut self, name: &str, condition: impl Into<Condition>) -> Self {
        self.keys.change("query", |query| query.add(name, condition.into().0));
        self
    }

    /// Adds a condition on a cookie.
    pub fn cookie(mut self, name: &str, condition: impl Into<Condition>) -> Self {
        self.keys.change("cookies", |cookies| cookies.add(name, condition.into().0));
        self
    }

    /// Adds a condition on a value of verified credentials: `jwt:CLAIM`, `key:NAME` or `basic:user`. A request with missing
    /// or invalid credentials does not match. Not for [`except`](Self::except) and limits.
    pub fn identity(mut self, name: &str, condition: impl Into<IdentityCondition>) -> Self {
        self.keys.change("identity", |identity| identity.add(name, condition.into().0));
        self
    }

    /// Adds conditions of requests that do not match. The conditions contain no exclusions themselves.
    pub fn except(mut self, conditions: Self) -> Self {
        self.keys.push("not", conditions.keys);
        self
    }

    setters! {
        /// Sets how paths and values compare letters. By default, case matters.
        case(case: Case) = "case", case.name();
        /// Sets the scheme: of the connection, which is `https` if the request has an [`OverTls`](crate::OverTls), or as a trusted
        /// proxy reports it in `X-Forwarded-Proto`.
        scheme(scheme: Scheme) = "scheme", scheme.name();
    }
}

// === impl Condition ===

impl Condition {
    /// The request has the value.
    pub fn present() -> Self {
        Self("present".into())
    }

    /// The request does not have the value.
    pub fn absent() -> Self {
        Self("absent".into())
    }

    /// The value starts with this text.
    pub fn prefix(text: &str) -> Self {
        Self::pattern("prefix", text)
    }

    /// The value ends with this text.
    pub fn suffix(text: &str) -> Self {
        Self::pattern("suffix", text)
    }

    /// The value contains this text.
    pub fn contains(text: &str) -> Self {
        Self::pattern("contains", text)
    }

    /// The regular expression matches at any place of the value. At most 1,000 bytes; the classes are ASCII.
    pub fn regex(expression: &str) -> Self {
        Self::pattern("regex", expression)
    }

    /// The value meets one of these conditions, none of which is [`present`](Self::present) or [`absent`](Self::absent).
    pub fn any<C: Into<Self>>(conditions: impl IntoIterator<Item = C>) -> Self {
        let items = conditions.into_iter().flat_map(|condition| match condition.into().0 {
            Item::List(items) => items,
            item => vec![item],
        });
        Self(Item::List(items.collect()))
    }

    fn pattern(key: &str, text: &str) -> Self {
        let mut pattern = Map::default();
        pattern.set(key, text);
        Self(pattern.into())
    }
}

/// In a list, `present` and `absent` are values.
impl From<&str> for Condition {
    fn from(value: &str) -> Self {
        Self(Item::List(vec![value.into()]))
    }
}
