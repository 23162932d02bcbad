//! The verified identities of a request: an API key, the claims of a token. Rules read values of them.

mod api_key;
mod client_keys;
mod fault;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName};
use serde_json::{Map, Value};

pub use self::api_key::ApiKey;
pub use self::api_key::AttributeNames;
pub use self::client_keys::{ClientKey, ClientKeys};
pub use self::fault::IdentityFault;
use tidegate_limit::text::words::words;

/// The verified identities of one request.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The entry of the API key that the request contains.
    pub key: Option<Arc<ApiKey>>,
    /// The claims of the token that the request contains.
    pub token: Option<Arc<Claims>>,
    /// Why the request must be rejected. Only limits by address count it.
    pub fault: Option<IdentityFault>,
}

words! {
    /// A kind of credentials.
    pub enum IdentityKind {
        /// A token with a valid signature: `identities.jwt`.
        Token = "jwt",
        /// A known API key: `identities.keys`.
        Key = "keys",
    }
}

/// A set of kinds of credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityKinds {
    /// Whether the set contains tokens.
    pub token: bool,
    /// Whether the set contains API keys.
    pub key: bool,
}

/// The credentials that a route reads, and those that it requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityNeeds {
    /// The kinds whose values the rules read.
    pub reads: IdentityKinds,
    /// The kinds of which the route requires one.
    pub requires: IdentityKinds,
}

/// The claims of a verified token (RFC 7519 section 4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(pub Map<String, Value>);

/// Where a rule reads a value of the request's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IdentityValue {
    /// A claim of the token: `jwt:CLAIM`.
    Claim(Box<str>),
    /// The id of the API key's owner: `key:id`.
    KeyId,
    /// The tier of the API key's owner: `key:tier`.
    KeyTier,
    /// Another value of the API key: `key:ATTRIBUTE`.
    KeyAttribute(Box<str>),
    /// A header field of a trusted proxy: `header:NAME`.
    Header(HeaderName),
    /// A key that the program has inserted into the request's extensions: `extension:NAME`. Only in a layer.
    Extension(Box<str>),
}

// === impl Claims ===

impl Claims {
    /// Returns a claim as text. `None` if it is missing, or neither a text, a number nor a truth value.
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.0.get(name)? {
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

// === impl IdentityValue ===

impl IdentityValue {
    /// Parses the form of the rule file. Returns `None` for another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match (kind, name) {
            (_, "") => None,
            ("jwt", claim) => Some(Self::Claim(claim.into())),
            ("key", "id") => Some(Self::KeyId),
            ("key", "tier") => Some(Self::KeyTier),
            ("key", attribute) => Some(Self::KeyAttribute(attribute.into())),
            ("header", name) => Some(Self::Header(name.parse().ok()?)),
            ("extension", name) => Some(Self::Extension(name.into())),
            _ => None,
        }
    }

    /// Returns the value for a request with this identity, these header fields, which are `None` if the peer is not
    /// trusted, and these extensions. Returns `None` if the request has no such value.
    pub fn read<'f>(
        &self,
        identity: Option<&'f Identity>,
        fields: Option<&'f HeaderMap>,
        extensions: Option<&'f Extensions>,
    ) -> Option<Cow<'f, str>> {
        let key = || identity?.key.as_deref();
        match self {
            Self::Claim(name) => identity?.token.as_deref()?.text(name),
            Self::KeyId => Some(Cow::Borrowed(key()?.id())),
            Self::KeyTier => Some(Cow::Borrowed(key()?.tier()?)),
            Self::KeyAttribute(name) => Some(Cow::Borrowed(key()?.attribute(name)?)),
            Self::Extension(name) => {
                let key = extensions?.get::<ClientKeys>()?.get(name)?;
                (!key.is_empty()).then_some(Cow::Borrowed(key))
            }
            Self::Header(name) => {
                let mut values = fields?.get_all(name).iter();
                let value = values.next().filter(|_| values.next().is_none())?;
                Some(Cow::Borrowed(value.to_str().ok()?.trim()))
            }
        }
    }

    /// Returns the kinds of credentials that the value comes from.
    pub fn kinds(&self) -> IdentityKinds {
        IdentityKinds { token: self.reads_token(), key: self.reads_key() }
    }

    /// Returns `true` if the value comes from a token.
    pub fn reads_token(&self) -> bool {
        matches!(self, Self::Claim(_))
    }

    /// Returns `true` if the value comes from an API key.
    pub fn reads_key(&self) -> bool {
        matches!(self, Self::KeyId | Self::KeyTier | Self::KeyAttribute(_))
    }

    /// Returns the source and the name of the value, as in the rule file.
    pub fn source_and_name(&self) -> (&'static str, &str) {
        match self {
            Self::Claim(name) => ("jwt", name),
            Self::KeyId => ("key", "id"),
            Self::KeyTier => ("key", "tier"),
            Self::KeyAttribute(name) => ("key", name),
            Self::Header(name) => ("header", name.as_str()),
            Self::Extension(name) => ("extension", name),
        }
    }
}

impl fmt::Display for IdentityValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, name) = self.source_and_name();
        write!(f, "{source}:{name}")
    }
}

// === impl IdentityKinds ===

impl IdentityKinds {
    /// Returns `true` if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the kinds of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { token: self.token || other.token, key: self.key || other.key }
    }
}

impl FromIterator<IdentityKind> for IdentityKinds {
    fn from_iter<I: IntoIterator<Item = IdentityKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::default(), |set, kind| match kind {
            IdentityKind::Token => Self { token: true, ..set },
            IdentityKind::Key => Self { key: true, ..set },
        })
    }
}
