//! The credentials that a route requires, and conditions on them.

use tidegate_config::built::{Item, Map};

/// Credentials that suffice for a route: all of these kinds, and they meet all conditions.
#[derive(Clone, Debug)]
#[must_use = "required credentials do nothing until a route requires them"]
pub struct Required {
    pub(super) keys: Map,
}

/// A condition on a value of credentials. A text is a condition that the value is equal. An array of a token meets it if one
/// of its items does.
#[derive(Clone, Debug)]
#[must_use = "a condition does nothing until required credentials have it"]
pub struct IdentityCondition(pub(super) Item);

impl Required {
    /// A token.
    pub fn token() -> Self {
        Self::kind("jwt")
    }

    /// An API key.
    pub fn api_key() -> Self {
        Self::kind("keys")
    }

    /// A user with a password.
    pub fn password() -> Self {
        Self::kind("basic")
    }

    /// Adds a token whose claim meets a condition. The claim can be a JSON pointer, such as `/realm_access/roles`.
    pub fn claim(self, name: &str, condition: impl Into<IdentityCondition>) -> Self {
        self.condition("jwt", name, condition.into())
    }

    /// Adds an API key whose `id`, `tier` or attribute meets a condition.
    pub fn key(self, name: &str, condition: impl Into<IdentityCondition>) -> Self {
        self.condition("keys", name, condition.into())
    }

    /// Adds a user whose name meets a condition.
    pub fn user(self, condition: impl Into<IdentityCondition>) -> Self {
        self.condition("basic", "user", condition.into())
    }

    fn kind(kind: &str) -> Self {
        let mut keys = Map::default();
        keys.set(kind, Map::default());
        Self { keys }
    }

    fn condition(mut self, kind: &str, name: &str, condition: IdentityCondition) -> Self {
        self.keys.change(kind, |conditions| conditions.add(name, condition.0));
        self
    }
}

impl IdentityCondition {
    /// The value exists.
    pub fn present() -> Self {
        Self("present".into())
    }

    /// The value does not exist.
    pub fn absent() -> Self {
        Self("absent".into())
    }

    /// The value is one of these.
    pub fn any<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        Self(Item::from_iter(values))
    }

    /// The value exists, and is not one of these.
    pub fn not<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        let mut exclusion = Map::default();
        exclusion.set("not", Item::from_iter(values));
        Self(exclusion.into())
    }
}

impl From<&str> for IdentityCondition {
    fn from(value: &str) -> Self {
        Self::any([value])
    }
}
