//! The sources of the client of a request.

use super::RequestParts;
use tidegate_config::built::Item;
use tidegate_rules::client::ClientFunction;

/// The value that identifies the client of a request. Each client of a PER_CLIENT limit has its own bucket.
#[derive(Clone, Debug)]
#[must_use = "a client does nothing until a limit uses it"]
pub struct Client(Vec<Item>);

impl Client {
    /// The address, behind trusted proxies. It needs a [`Peer`](crate::Peer).
    pub fn ip() -> Self {
        Self::text("ip")
    }

    /// The value of a header field.
    pub fn header(name: &str) -> Self {
        Self::text(&format!("header:{name}"))
    }

    /// The value of a cookie.
    pub fn cookie(name: &str) -> Self {
        Self::text(&format!("cookie:{name}"))
    }

    /// The value of a query parameter.
    pub fn query(name: &str) -> Self {
        Self::text(&format!("query:{name}"))
    }

    /// The host of the request.
    pub fn host() -> Self {
        Self::text("host")
    }

    /// The path of the request.
    pub fn path() -> Self {
        Self::text("path")
    }

    /// The subject of the client certificate in [`OverTls`](crate::OverTls).
    pub fn tls_subject() -> Self {
        Self::text("tls:subject")
    }

    /// The first alternative name of the client certificate in [`OverTls`](crate::OverTls).
    pub fn tls_san() -> Self {
        Self::text("tls:san")
    }

    /// A claim of the verified token. It needs [`Rules::tokens`](super::Rules::tokens).
    pub fn claim(name: &str) -> Self {
        Self::text(&format!("jwt:{name}"))
    }

    /// The id or another attribute of the API key. It needs [`Rules::api_keys`](super::Rules::api_keys).
    pub fn api_key(attribute: &str) -> Self {
        Self::text(&format!("key:{attribute}"))
    }

    /// The [`ClientKey`](crate::ClientKey) in the request's extensions.
    pub fn extension() -> Self {
        Self::text("extension")
    }

    /// The key with this name of the [`ClientKeys`](crate::ClientKeys) in the request's extensions.
    pub fn extension_named(name: &str) -> Self {
        Self::text(&format!("extension:{name}"))
    }

    /// The result of a function. A request for which the function returns `None` or an empty text has no client key:
    /// [`Limit::on_missing_client`](super::Limit::on_missing_client) applies.
    ///
    /// The layer calls the function for each request of the limit's routes, before it admits the request. A function must
    /// be fast and not block.
    ///
    /// ```
    /// use tidegate_layer::build::{Client, Limit, MINUTE};
    ///
    /// struct User { id: String }
    ///
    /// let user = Client::from_fn(|parts| Some(parts.extension::<User>()?.id.clone()));
    /// let limit = Limit::per_client("per-user", user).rate(5, MINUTE);
    /// ```
    pub fn from_fn(function: impl Fn(&RequestParts<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(vec![Item::Function(ClientFunction::new(function))])
    }

    /// Identifies a client by both values: requests with other values in any of them are of other clients.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    fn text(text: &str) -> Self {
        Self(vec![text.into()])
    }
}

impl From<Client> for Item {
    fn from(client: Client) -> Self {
        Self::List(client.0)
    }
}
