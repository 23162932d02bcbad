//! Client keys that a program inserts into the extensions of a request.

use std::fmt;

/// The client of a request for limits with `client: extension`, in the request's extensions. A service inserts it after
/// it has identified the client, for example by an account, a tenant or a verified token. An empty key counts as
/// missing.
///
/// [`ClientKeys`] is for several keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKey(pub String);

/// Named client keys of a request, in the request's extensions: for limits with `client: extension:NAME`, and for rates
/// with `by: extension:NAME`. An empty key counts as missing.
///
/// ```
/// # use tidegate_rules::request::identity as tidegate_layer;
/// use tidegate_layer::ClientKeys;
///
/// # let (user, tenant) = ("ada", "acme");
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(ClientKeys::new().with("user", user).with("tenant", tenant).with("plan", "pro"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientKeys(Vec<(String, String)>);

impl ClientKeys {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key. Replaces a key with this name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, key: impl Into<String>) -> Self {
        let name = name.into();
        self.0.retain(|(other, _)| *other != name);
        self.0.push((name, key.into()));
        self
    }

    /// Returns the key with this name. `None` if it was not added.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(other, key)| (other == name).then_some(key.as_str()))
    }
}

/// Prints only the names: keys can be secrets.
impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_key_replaces_a_key_with_its_name() {
        let keys = ClientKeys::new().with("user", "a").with("tenant", "t").with("user", "b");
        assert_eq!((keys.get("user"), keys.get("tenant"), keys.get("plan")), (Some("b"), Some("t"), None));
        assert_eq!(format!("{keys:?}"), r#"["tenant", "user"]"#);
    }
}
