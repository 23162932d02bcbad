//! Who is asking, and why we think so.
//!
//! A value that tells clients apart can be spelt in many ways that an origin reads alike: encoded or not, in quotes, with
//! blanks. It is read as the most generous of them reads it, so that no spelling is another client; what generous and strict
//! ones read differently, and what was sent twice, identifies no client.

mod address;
mod base64;
mod cookie;
mod credentials;
mod query;
mod spelling;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use http::{HeaderName, header};
use ipnet::IpNet;

pub use self::address::{AddressRules, Trace, TraceEnd};
use crate::facts::Facts;
use crate::limit::ClientId;

/// What makes two requests come from the same client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientSource {
    /// The client's address: `ip`.
    Ip,
    /// The value of a header field: `header:NAME`.
    Header(HeaderName),
    /// The value of a cookie: `cookie:NAME`.
    Cookie(String),
    /// The value of a query parameter: `query:NAME`.
    Query(String),
    /// The host that was asked for: `host`.
    Host,
    /// The path as routes match it, without a slash at its end: `path`.
    Path,
    /// A name in the certificate that its client has shown: `tls:subject` or `tls:san`.
    Tls(TlsName),
    /// The client key in the request's extensions: `extension`. Only a layer has it.
    Extension,
    /// All of these together: a list.
    All(Vec<ClientSource>),
}

/// A name in a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsName {
    /// The subject: `subject`.
    Subject,
    /// The first alternative name that is a URI, a host's or an address of mail: `san`.
    San,
}

/// Why a request has no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoClient {
    /// It does not carry the value.
    #[error("is missing")]
    Missing,
    /// It carries the value more than once; whom the upstream would believe is anybody's guess.
    #[error("was sent twice")]
    Ambiguous,
    /// It carries the value in a spelling that is none, or one that origins read differently.
    #[error("is malformed")]
    Malformed,
}

/// A value, in the one spelling that tells it from all others.
type Value<'f> = Result<Cow<'f, [u8]>, NoClient>;

// === impl ClientSource ===

impl ClientSource {
    /// The client that `facts` come from.
    ///
    /// # Errors
    /// A request that lacks the value, has it twice, or spells it so that origins would not agree on it.
    pub fn identify(&self, facts: &Facts<'_>, rules: &AddressRules) -> Result<ClientId, NoClient> {
        if let ClientSource::Ip = self {
            return Ok(ClientId::Address(network(facts, rules)?));
        }
        let mut value = Vec::new();
        self.encode(facts, rules, &mut value)?;
        Ok(ClientId::Value(value.into_boxed_slice()))
    }

    /// Appends a kind, the length of the name, the name, the length of the value, the value: no two clients alike.
    fn encode(&self, facts: &Facts<'_>, rules: &AddressRules, out: &mut Vec<u8>) -> Result<(), NoClient> {
        match self {
            ClientSource::Ip => put(out, b'i', "", network(facts, rules)?.to_string().as_bytes()),
            ClientSource::Header(name) => put(out, b'h', name.as_str(), &field(facts, name)?),
            ClientSource::Cookie(name) => put(out, b'c', name, &cookie::value(facts.headers, name)?),
            ClientSource::Query(name) => put(out, b'q', name, &query::value(facts.query.unwrap_or_default(), name)?),
            ClientSource::Host => put(out, b'o', "", host(facts)?.as_bytes()),
            ClientSource::Path => put(out, b'p', "", path(facts).as_bytes()),
            ClientSource::Tls(name) => put(out, b't', name.as_str(), tls(facts, *name)?.as_bytes()),
            ClientSource::Extension => put(out, b'e', "", key(facts)?.as_bytes()),
            ClientSource::All(sources) => {
                for source in sources {
                    source.encode(facts, rules, out)?;
                }
            }
        }
        Ok(())
    }
}

impl ClientSource {
    /// Does it look at the client's address?
    pub(crate) fn reads_address(&self) -> bool {
        match self {
            Self::Ip => true,
            Self::All(sources) => sources.iter().any(Self::reads_address),
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) => false,
            Self::Host | Self::Path | Self::Tls(_) | Self::Extension => false,
        }
    }

    /// The header fields that it reads.
    pub(crate) fn fields(&self, found: &mut impl FnMut(&HeaderName)) {
        match self {
            Self::Header(name) => found(name),
            Self::Cookie(_) => found(&header::COOKIE),
            Self::All(sources) => sources.iter().for_each(|source| source.fields(found)),
            Self::Ip | Self::Query(_) | Self::Host | Self::Path | Self::Tls(_) | Self::Extension => {}
        }
    }
}

impl fmt::Display for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Tls(name) => write!(f, "tls:{}", name.as_str()),
            Self::Extension => f.write_str("extension"),
            Self::All(sources) => {
                let words: Vec<_> = sources.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", words.join(", "))
            }
        }
    }
}

impl TlsName {
    /// Its name in the rule file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::San => "san",
        }
    }
}

fn put(out: &mut Vec<u8>, kind: u8, name: &str, value: &[u8]) {
    out.reserve_exact(1 + 2 * size_of::<u64>() + name.len() + value.len());
    out.push(kind);
    for text in [name.as_bytes(), value] {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text);
    }
}

/// A service of somebody's own may not know where its requests come from.
fn network(facts: &Facts<'_>, rules: &AddressRules) -> Result<IpNet, NoClient> {
    rules.address(facts).map(|address| rules.network(address)).ok_or(NoClient::Missing)
}

/// A request of HTTP/1.0 may have none, nor need it in somebody's own service.
fn host<'f>(facts: &'f Facts<'_>) -> Result<&'f str, NoClient> {
    if facts.host.is_empty() { Err(NoClient::Missing) } else { Ok(&facts.host) }
}

/// Who showed no certificate has no name, and neither has one whose certificate has none.
fn tls<'f>(facts: &'f Facts<'_>, name: TlsName) -> Result<&'f str, NoClient> {
    let found = facts.tls.and_then(|peer| match name {
        TlsName::Subject => peer.subject.as_deref(),
        TlsName::San => peer.san.as_deref(),
    });
    found.ok_or(NoClient::Missing)
}

/// Returns the service's own key; an empty one identifies no client.
fn key<'f>(facts: &'f Facts<'_>) -> Result<&'f str, NoClient> {
    facts.key.filter(|key| !key.is_empty()).ok_or(NoClient::Missing)
}

/// Parameters, and a slash at the end, make no other client of the same path.
fn path<'f>(facts: &'f Facts<'_>) -> &'f str {
    let path = facts.path.matched();
    path.strip_suffix('/').unwrap_or(path)
}

/// A comma is part of the value: names of certificates, user agents and signatures have some.
fn field<'f>(facts: &'f Facts<'_>, name: &HeaderName) -> Value<'f> {
    let mut values = facts.headers.get_all(name).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Err(NoClient::Missing),
        (Some(_), Some(_)) => return Err(NoClient::Ambiguous),
        (Some(value), None) => spelling::trim(value.as_bytes()),
    };
    match *name {
        _ if value.is_empty() => Err(NoClient::Missing),
        header::AUTHORIZATION | header::PROXY_AUTHORIZATION => credentials::spell(value),
        _ => spelling::sound(Cow::Borrowed(value)),
    }
}
