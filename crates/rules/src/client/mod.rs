//! Identifies the client of a request.
//!
//! A client could pose as many clients if it sent its key in different spellings that an origin server treats as equal:
//! percent-encoded, quoted, or with extra spaces. Therefore values are normalized in the way of the most lenient origin
//! server. A value that lenient and strict servers read differently identifies no client. Of several values, [`Duplicates`]
//! decides which one counts.

mod address;
mod base64;
pub mod cookie;
mod credentials;
mod duplicates;
mod function;
pub mod pairs;
mod query;
pub mod spelling;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use http::{HeaderName, header};
use ipnet::IpNet;

pub use self::address::{AddressRules, AddressTrace, TraceEnd};
pub use self::duplicates::Duplicates;
use self::duplicates::Values;
pub use self::function::{ClientFunction, RequestParts};
use crate::charge::ClientId;
use crate::request::facts::Facts;
use crate::request::identity::{Claims, ClientKey, IdentityKinds, IdentityValue};
use tidegate_usage::{MemberValue, Pointer};

/// The property of a request that identifies its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSource {
    /// The client's address: `ip`.
    Ip,
    /// The value of a header field: `header:NAME`.
    Header(HeaderName),
    /// The value of a cookie: `cookie:NAME`.
    Cookie(String),
    /// The value of a query parameter: `query:NAME`.
    Query(String),
    /// The host of the request: `host`.
    Host,
    /// The path as routes match it, without a trailing slash: `path`.
    Path,
    /// A name in the client certificate: `tls:subject` or `tls:san`.
    Tls(TlsName),
    /// The client key in the request's extensions: `extension`. Only available in the Tower layer.
    Extension,
    /// A value of a JSON body: `json:POINTER`.
    Json(Pointer),
    /// The result of a function of the program. Only available in the Tower layer.
    Function(ClientFunction),
    /// A value of the verified token or API key, or a named key of the program: `jwt:CLAIM`, `key:NAME` or `extension:NAME`.
    Identity(IdentityValue),
    /// The combination of several sources: a list.
    All(Vec<ClientSource>),
}

/// A name in a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsName {
    /// The subject: `subject`.
    Subject,
    /// The first subject alternative name that is a URI, a DNS name or an email address: `san`.
    San,
}

/// Why the client of a request cannot be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The request does not contain the value.
    #[error("is missing")]
    Missing,
    /// The request contains several different values, and the upstream may use any of them.
    #[error("was sent twice")]
    Ambiguous,
    /// The value is invalid, or origin servers read it differently.
    #[error("is malformed")]
    Malformed,
}

/// A value in its normalized form.
type Value<'f> = Result<Cow<'f, [u8]>, ClientError>;

// === impl ClientSource ===

impl ClientSource {
    /// Returns the client of a request. Rejects different values.
    ///
    /// # Errors
    /// The value is missing, was sent twice, or is malformed.
    pub fn identify(&self, facts: &Facts<'_>, rules: &AddressRules) -> Result<ClientId, ClientError> {
        self.identify_with(facts, rules, Duplicates::Reject)
    }

    /// Returns the client of a request. `duplicates` decides about different values.
    ///
    /// # Errors
    /// The value is missing, was sent twice, or is malformed.
    pub fn identify_with(
        &self,
        facts: &Facts<'_>,
        rules: &AddressRules,
        duplicates: Duplicates,
    ) -> Result<ClientId, ClientError> {
        if let ClientSource::Ip = self {
            return Ok(ClientId::Address(network(facts, rules)?));
        }
        let mut value = Vec::new();
        self.encode(facts, rules, duplicates, &mut value)?;
        Ok(ClientId::Value(value.into_boxed_slice()))
    }

    /// Appends the kind, the name and the value. Their lengths are included, so that different clients never collide.
    fn encode(
        &self,
        facts: &Facts<'_>,
        rules: &AddressRules,
        duplicates: Duplicates,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        match self {
            ClientSource::Ip => append(out, b'i', "", network(facts, rules)?.to_string().as_bytes()),
            ClientSource::Header(name) => append(out, b'h', name.as_str(), &field(facts, name, duplicates)?),
            ClientSource::Cookie(name) => append(out, b'c', name, &cookie::value(facts.headers, name, duplicates)?),
            ClientSource::Query(name) => {
                append(out, b'q', name, &query::value(facts.query.unwrap_or_default(), name, duplicates)?);
            }
            ClientSource::Host => append(out, b'o', "", host(facts)?.as_bytes()),
            ClientSource::Path => append(out, b'p', "", path(facts).as_bytes()),
            ClientSource::Tls(name) => append(out, b't', name.as_str(), tls(facts, *name)?.as_bytes()),
            ClientSource::Extension => append(out, b'e', "", key(facts)?.as_bytes()),
            ClientSource::Json(pointer) => append(out, b'j', pointer.as_str(), json(facts, pointer)?.as_bytes()),
            ClientSource::Function(function) => {
                append(out, b'f', "", function.call(facts).ok_or(ClientError::Missing)?.as_bytes());
            }
            ClientSource::Identity(value) => {
                let (source, name) = value.source_and_name();
                append(out, source.as_bytes()[0], name, identity(facts, value)?.as_bytes());
            }
            ClientSource::All(sources) => {
                for source in sources {
                    source.encode(facts, rules, duplicates, out)?;
                }
            }
        }
        Ok(())
    }
}

impl ClientSource {
    /// Returns `true` if the source includes the client's address.
    pub fn reads_address(&self) -> bool {
        match self {
            Self::Ip => true,
            Self::All(sources) => sources.iter().any(Self::reads_address),
            Self::Header(_) | Self::Cookie(_) | Self::Query(_) => false,
            Self::Host | Self::Path | Self::Tls(_) | Self::Json(_) => false,
            Self::Extension | Self::Function(_) | Self::Identity(_) => false,
        }
    }

    /// Returns `true` if the source includes the path of the request.
    pub fn reads_path(&self) -> bool {
        match self {
            Self::Path => true,
            Self::All(sources) => sources.iter().any(Self::reads_path),
            Self::Ip | Self::Header(_) | Self::Cookie(_) | Self::Query(_) => false,
            Self::Host | Self::Tls(_) | Self::Json(_) => false,
            Self::Function(_) => true,
            Self::Extension | Self::Identity(_) => false,
        }
    }

    /// Returns `true` if the source includes a value of the body.
    pub fn reads_body(&self) -> bool {
        match self {
            Self::Json(_) => true,
            Self::All(sources) => sources.iter().any(Self::reads_body),
            _ => false,
        }
    }

    /// Returns the single sources of a combination, in order.
    pub fn sources(&self) -> Vec<&Self> {
        match self {
            Self::All(sources) => sources.iter().flat_map(Self::sources).collect(),
            value => vec![value],
        }
    }

    /// Returns the first claim that the source reads and this token lacks.
    pub fn missing_claim(&self, token: &Claims) -> Option<&str> {
        match self {
            Self::Identity(IdentityValue::Claim(name)) if token.text(name).is_none() => Some(name),
            Self::All(sources) => sources.iter().find_map(|source| source.missing_claim(token)),
            _ => None,
        }
    }

    /// Calls `found` for each header field that the source reads.
    pub fn fields(&self, found: &mut impl FnMut(&HeaderName)) {
        match self {
            Self::Header(name) => found(name),
            Self::Cookie(_) => found(&header::COOKIE),
            Self::All(sources) => sources.iter().for_each(|source| source.fields(found)),
            Self::Ip | Self::Query(_) | Self::Host | Self::Path | Self::Tls(_) | Self::Json(_) => {}
            Self::Extension | Self::Function(_) | Self::Identity(_) => {}
        }
    }

    /// Returns the value of credentials that the source reads.
    pub fn identity_value(&self) -> Option<&IdentityValue> {
        match self {
            Self::Identity(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the kinds of credentials that the source reads.
    pub fn identity_kinds(&self) -> IdentityKinds {
        match self {
            Self::Identity(value) => value.kinds(),
            Self::All(sources) => {
                sources.iter().fold(IdentityKinds::default(), |kinds, source| kinds.union(source.identity_kinds()))
            }
            _ => IdentityKinds::default(),
        }
    }

    /// Returns the API key in a field, a cookie or a query parameter. Does not normalize the key, because similar keys
    /// can belong to different clients. In `Authorization` the key follows `Bearer`. Returns [`ClientError::Missing`]
    /// for other sources.
    pub fn sent_key<'f>(&self, facts: &'f Facts<'_>) -> Result<Cow<'f, [u8]>, ClientError> {
        let key = match self {
            Self::Header(name) if *name == header::AUTHORIZATION => {
                let (scheme, key) = credentials::split_scheme(only_field(facts, name, Duplicates::Reject)?);
                if scheme.eq_ignore_ascii_case(b"bearer") { key } else { b"" }
            }
            Self::Header(name) => only_field(facts, name, Duplicates::Reject)?,
            Self::Cookie(name) => cookie::sent(facts.headers, name, Duplicates::Reject)?,
            Self::Query(name) => return query::decoded(facts.query.unwrap_or_default(), name),
            _ => b"",
        };
        if key.is_empty() { Err(ClientError::Missing) } else { Ok(Cow::Borrowed(key)) }
    }

    /// Returns the value of a field, a cookie or a query parameter. Returns [`ClientError::Missing`] for other sources.
    pub fn sent_value<'f>(&self, facts: &'f Facts<'_>, duplicates: Duplicates) -> Value<'f> {
        match self {
            Self::Header(name) => field(facts, name, duplicates),
            Self::Cookie(name) => cookie::value(facts.headers, name, duplicates),
            Self::Query(name) => query::value(facts.query.unwrap_or_default(), name, duplicates),
            _ => Err(ClientError::Missing),
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
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Function(_) => f.write_str("function"),
            Self::Identity(value) => value.fmt(f),
            Self::All(sources) => {
                let words: Vec<_> = sources.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", words.join(", "))
            }
        }
    }
}

impl TlsName {
    /// Returns the name in the rule file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::San => "san",
        }
    }
}

/// Appends a value to an encoded client. `kind` and `name` are the source of the value. Different sources or values never have
/// equal encodings.
pub fn append(out: &mut Vec<u8>, kind: u8, name: &str, value: &[u8]) {
    out.reserve_exact(1 + 2 * size_of::<u64>() + name.len() + value.len());
    out.push(kind);
    for text in [name.as_bytes(), value] {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text);
    }
}

/// Returns the values of an encoded client for operators: at most `max` bytes, then `...` if there are more.
pub fn shown_value(encoded: &[u8], max: usize) -> String {
    let (mut rest, mut text) = (encoded, String::new());
    while let Some(value) = split_value(&mut rest) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        // Copies up to one character beyond the maximum, so that the check below finds longer values.
        text.push_str(&String::from_utf8_lossy(&value[..value.len().min(max + 4)]));
        if text.len() > max {
            let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push_str("...");
            break;
        }
    }
    text
}

/// Splits off the value that one call of `append` has added.
fn split_value<'e>(encoded: &mut &'e [u8]) -> Option<&'e [u8]> {
    *encoded = encoded.get(1..)?;
    let mut text = || {
        let (length, rest) = encoded.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        *encoded = rest;
        Some(text)
    };
    let _name = text()?;
    text()
}

fn network(facts: &Facts<'_>, rules: &AddressRules) -> Result<IpNet, ClientError> {
    rules.address(facts).map(|address| rules.network(address)).ok_or(ClientError::Missing)
}

fn host<'f>(facts: &'f Facts<'_>) -> Result<&'f str, ClientError> {
    if facts.host.is_empty() { Err(ClientError::Missing) } else { Ok(&facts.host) }
}

fn tls<'f>(facts: &'f Facts<'_>, name: TlsName) -> Result<&'f str, ClientError> {
    let found = facts.tls.and_then(|peer| match name {
        TlsName::Subject => peer.subject.as_deref(),
        TlsName::San => peer.san.as_deref(),
    });
    found.ok_or(ClientError::Missing)
}

/// Returns a value of the request's credentials. An empty value identifies no client.
fn identity<'f>(facts: &'f Facts<'_>, value: &IdentityValue) -> Result<Cow<'f, str>, ClientError> {
    facts.identity_value(value).filter(|value| !value.is_empty()).ok_or(ClientError::Missing)
}

/// Returns the key in the extensions. An empty key identifies no client.
fn key<'f>(facts: &'f Facts<'_>) -> Result<&'f str, ClientError> {
    let key = facts.extensions.and_then(|extensions| extensions.get::<ClientKey>()).map(|key| key.0.as_str());
    key.filter(|key| !key.is_empty()).ok_or(ClientError::Missing)
}

/// Returns a value of the body. A string and a number with the same text are the same client: some servers convert them.
fn json<'f>(facts: &'f Facts<'_>, pointer: &Pointer) -> Result<Cow<'f, str>, ClientError> {
    match facts.body.as_ref().and_then(|body| body.value(pointer)) {
        None | Some(MemberValue::Null) => Err(ClientError::Missing),
        Some(value) => match value.text() {
            Some(text) if text.is_empty() => Err(ClientError::Missing),
            text => text.ok_or(ClientError::Malformed),
        },
    }
}

/// Returns the path without path parameters and trailing slash, because they do not identify another client.
fn path<'f>(facts: &'f Facts<'_>) -> &'f str {
    let path = facts.path.matched();
    path.strip_suffix('/').unwrap_or(path)
}

/// Returns the value of a field, trimmed. A comma does not separate values: user agents and signatures contain commas.
fn only_field<'f>(facts: &'f Facts<'_>, name: &HeaderName, duplicates: Duplicates) -> Result<&'f [u8], ClientError> {
    let mut values = Values::NONE;
    for value in facts.headers.get_all(name) {
        values.add(spelling::trim(value.as_bytes()));
    }
    let value = values.get(duplicates)?;
    if value.is_empty() { Err(ClientError::Missing) } else { Ok(value) }
}

/// Returns the value of a field, normalized.
fn field<'f>(facts: &'f Facts<'_>, name: &HeaderName, duplicates: Duplicates) -> Value<'f> {
    let value = only_field(facts, name, duplicates)?;
    match *name {
        header::AUTHORIZATION | header::PROXY_AUTHORIZATION => credentials::normalize(value),
        _ => spelling::checked(Cow::Borrowed(value)),
    }
}
