//! Identifies a client that an operator names, as if the client had sent a request with these values.

use std::sync::Arc;

use http::header::{COOKIE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Method, Uri};

use super::Rules;
use crate::charge::ClientId;
use crate::client::{ClientError, ClientSource, TlsName};
use crate::limits::rule::Limit;
use crate::request::body::ReadBody;
use crate::request::facts::{BadRequest, Facts, HostRequirement, TlsPeer};
use crate::request::identity::{ApiKey, Claims, ClientKey, Identity, IdentityValue};
use tidegate_limit::Mode;
use tidegate_usage::Pointer;

/// Why values identify no client of a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamedClientError {
    /// An OVERALL limit has no clients.
    #[error("the limit is OVERALL: all clients share its bucket")]
    Overall,
    /// The limit identifies clients by another number of values.
    #[error("the limit identifies clients by {expected}: {needed} value(s) needed, {given} given")]
    Count {
        /// The sources of the values, as in the rule file.
        expected: String,
        /// Their number.
        needed: usize,
        /// The number of values.
        given: usize,
    },
    /// The value cannot be sent in a request.
    #[error("the value for {0} is not valid in a request")]
    Unsendable(String),
    /// A request with the values would be rejected.
    #[error("a request with this value is rejected: {0}")]
    Rejected(#[from] BadRequest),
    /// The limit would not identify the client of the request.
    #[error("the client {0}")]
    Unidentified(#[from] ClientError),
}

/// The parts of the request.
#[derive(Default)]
pub(super) struct Request {
    headers: HeaderMap,
    path: Option<String>,
    query: String,
    cookies: String,
    address: Option<std::net::IpAddr>,
    tls: TlsPeer,
    extensions: Extensions,
    identity: NamedIdentity,
    json: Vec<(Pointer, String)>,
}

/// The values of an API key, of a token, and a user.
#[derive(Default)]
struct NamedIdentity {
    key: Option<NamedKey>,
    claims: Claims,
    user: Option<Arc<str>>,
}

/// The values of an API key.
#[derive(Default)]
struct NamedKey {
    id: String,
    tier: Option<Arc<str>>,
    attributes: Vec<(Arc<str>, String)>,
}

impl Rules {
    /// Returns the client of a PER_CLIENT limit whose requests contain these values: one for each source of the client, in the
    /// order of the rule file, as the client sends them.
    ///
    /// # Errors
    /// The values identify no client.
    #[doc(hidden)]
    pub fn named_client(&self, limit: &Limit, values: &[String]) -> Result<ClientId, NamedClientError> {
        if limit.mode() == Mode::Overall {
            return Err(NamedClientError::Overall);
        }
        let sources = limit.client.sources();
        if sources.len() != values.len() {
            let expected = limit.client.to_string();
            return Err(NamedClientError::Count { expected, needed: sources.len(), given: values.len() });
        }
        let request = Request::new(&sources, values)?;
        request.with_facts(limit, self, |facts| Ok(limit.client.identify(&facts, &self.addresses)?))?
    }
}

impl Request {
    /// Creates a request with a value for each source.
    pub(super) fn new(sources: &[&ClientSource], values: &[String]) -> Result<Self, NamedClientError> {
        let mut request = Self::default();
        for (source, value) in sources.iter().zip(values) {
            request.add(source, value).ok_or_else(|| NamedClientError::Unsendable(source.to_string()))?;
        }
        Ok(request)
    }

    /// Adds a value. Returns `None` if a request cannot contain it.
    fn add(&mut self, source: &ClientSource, value: &str) -> Option<()> {
        match source {
            ClientSource::Ip => self.address = Some(value.parse::<std::net::IpAddr>().ok()?.to_canonical()),
            ClientSource::Header(name) => self.add_field(name.clone(), value)?,
            ClientSource::Cookie(name) => {
                let separator = if self.cookies.is_empty() { "" } else { "; " };
                self.cookies.push_str(&format!("{separator}{name}={value}"));
            }
            ClientSource::Query(name) => {
                let separator = if self.query.is_empty() { "" } else { "&" };
                self.query.push_str(&format!("{separator}{name}={}", sendable(value)));
            }
            ClientSource::Host => self.add_field(HOST, value)?,
            ClientSource::Path if !value.starts_with('/') => return None,
            ClientSource::Path => self.path = Some(sendable(value)),
            ClientSource::Tls(TlsName::Subject) => self.tls.subject = Some(value.to_owned()),
            ClientSource::Tls(TlsName::San) => self.tls.san = Some(value.to_owned()),
            ClientSource::Extension => _ = self.extensions.insert(ClientKey(value.to_owned())),
            ClientSource::Json(pointer) => self.json.push((pointer.clone(), value.to_owned())),
            ClientSource::Function(_) => return None,
            ClientSource::Identity(source) => self.identity.add(source, value)?,
            ClientSource::All(_) => return None,
        }
        Some(())
    }

    fn add_field(&mut self, name: HeaderName, value: &str) -> Option<()> {
        self.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        Some(())
    }

    /// Passes the facts of the request to a function.
    pub(super) fn with_facts<T>(
        mut self,
        limit: &Limit,
        rules: &Rules,
        read: impl FnOnce(Facts<'_>) -> T,
    ) -> Result<T, NamedClientError> {
        let unsendable = || NamedClientError::Unsendable(limit.client.to_string());
        if !self.cookies.is_empty() {
            let cookies = std::mem::take(&mut self.cookies);
            self.add_field(COOKIE, &cookies).ok_or_else(unsendable)?;
        }
        let target = format!("{}?{}", self.path.as_deref().unwrap_or("/"), self.query);
        let target: Uri = target.parse().map_err(|_| unsendable())?;
        let (host, requests) = (HostRequirement::Optional, &rules.requests);
        let facts = Facts::read(&Method::GET, &target, host, &self.headers, self.address, requests)?;
        let identity = Some(Box::new(self.identity.into()));
        let body = Some(Box::new(ReadBody::with_texts(&self.json)));
        let (tls, extensions) = (Some(&self.tls), Some(&self.extensions));
        let facts = Facts { peer_is_client: true, tls, extensions, identity, body, ..facts };
        Ok(read(facts))
    }
}

// === impl NamedIdentity ===

impl NamedIdentity {
    /// Adds a value. Returns `None` if credentials cannot contain it.
    fn add(&mut self, source: &IdentityValue, value: &str) -> Option<()> {
        match source {
            IdentityValue::Claim(name) => return self.claims.insert(name, value),
            IdentityValue::User => {
                self.user = Some(value.into());
                return Some(());
            }
            _ if value.contains('\0') => return None,
            _ => {}
        }
        let key = self.key.get_or_insert_default();
        match source {
            IdentityValue::KeyId => key.id = value.into(),
            IdentityValue::KeyTier => key.tier = Some(value.into()),
            IdentityValue::KeyAttribute(name) => key.attributes.push((Arc::from(&**name), value.into())),
            _ => return None,
        }
        Some(())
    }
}

impl From<NamedIdentity> for Identity {
    fn from(named: NamedIdentity) -> Self {
        let key = named.key.and_then(|NamedKey { id, tier, attributes }| {
            let names = attributes.iter().map(|(name, _)| Arc::clone(name)).collect();
            ApiKey::new(&id, tier, names, attributes.iter().map(|(_, value)| value.as_str()))
        });
        let (key, token) = (key.map(Arc::new), Some(Arc::new(named.claims)));
        Self { key, token, user: named.user, ..Self::default() }
    }
}

/// Percent-encodes the characters that would end a value in a target.
fn sendable(value: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'!'..=b'~' if !matches!(byte, b'#' | b'?' | b'&' | b';' | b'"' | b'<' | b'>') => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    value.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Limiter;
    use tidegate_limit::{Algorithm, Quota};

    fn limit(client: ClientSource) -> Limit {
        let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Limiter::new("{tidegate:r}:l".to_owned(), Mode::PerClient, quota);
        Limit { client, ..Limit::new("l".to_owned(), Arc::new(limiter)) }
    }

    fn named(client: &ClientSource, values: &[&str]) -> Result<ClientId, NamedClientError> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        Rules::default().named_client(&limit(client.clone()), &values)
    }

    /// The client of a real request with the same values.
    fn requested(client: &ClientSource, target: &str, fields: &[(&'static str, &str)]) -> ClientId {
        let (target, rules): (Uri, _) = (target.parse().expect("a target"), Rules::default());
        let field = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
        };
        let headers: HeaderMap = fields.iter().map(field).collect();
        let peer: std::net::IpAddr = "2001:db8::7".parse().expect("an address");
        let facts = rules.read(&Method::GET, &target, HostRequirement::Optional, &headers, peer).expect("facts");
        client.identify(&facts, &rules.addresses).expect("a client")
    }

    #[test]
    fn named_client_is_the_client_of_a_request() {
        let header = || ClientSource::Header(HeaderName::from_static("x-api-key"));
        let (cookie, query) = (ClientSource::Cookie("sid".into()), ClientSource::Query("key".into()));
        let all = ClientSource::All(vec![ClientSource::Ip, header(), query.clone(), ClientSource::Host]);
        let key = ("x-api-key", " K-1 ");
        for (client, values, target, fields) in [
            (header(), &["K-1"][..], "/", &[key][..]),
            (cookie, &["abc"], "/", &[("cookie", "a=1; sid=\"abc\"")]),
            (query, &["a b;&c"], "/?x=1&key=a%20b%3B%26c", &[]),
            (ClientSource::Path, &["/a/b/"], "//a/./b", &[]),
            (ClientSource::Host, &["Example.com:80"], "/", &[("host", "example.COM")]),
            (ClientSource::Ip, &["2001:db8::1"], "/", &[]),
            (all, &["2001:db8::9", "K-1", "q", "a"], "/?key=q", &[key, ("host", "a")]),
        ] {
            assert_eq!(named(&client, values), Ok(requested(&client, target, fields)), "{client}");
        }
    }

    #[test]
    fn values_of_no_client_are_errors() {
        let query = ClientSource::Query("key".into());
        let expected = "query:key".to_owned();
        assert_eq!(named(&query, &[]), Err(NamedClientError::Count { expected, needed: 1, given: 0 }));
        assert_eq!(named(&query, &[""]), Err(NamedClientError::Unidentified(ClientError::Missing)));
        assert_eq!(named(&ClientSource::Ip, &["x"]), Err(NamedClientError::Unsendable("ip".to_owned())));
        assert_eq!(named(&ClientSource::Host, &["a b"]), Err(NamedClientError::Rejected(BadRequest::BadHost)));
        assert!(named(&ClientSource::Path, &["a"]).is_err());
        assert!(named(&ClientSource::Header(HeaderName::from_static("x")), &["a\nb"]).is_err());
    }
}
