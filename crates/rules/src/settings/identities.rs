//! The settings of API keys, tokens and passwords.

use std::fmt;
use std::path::PathBuf;

use http::Uri;

use crate::request::identity::IdentityCondition;

/// The credentials that the rules accept: `identities` in the rule file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentitySettings {
    /// The file of API keys. `None` without API keys.
    pub keys: Option<PathBuf>,
    /// The file of users with the hashes of their passwords. `None` without users.
    pub users: Option<PathBuf>,
    /// The accepted tokens of each issuer. No two entries have the same issuer.
    pub tokens: Vec<TokenSettings>,
}

/// The accepted tokens of an issuer: `identities.jwt` in the rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// The name of the issuer. `None` for a single issuer without a name.
    pub name: Option<Box<str>>,
    /// The source of the key set that verifies tokens.
    pub jwks: KeySetSource,
    /// The trusted authorities of an `https` server of the key set. By default the authorities of the system.
    pub ca: Option<PathBuf>,
    /// The required `iss`.
    pub issuer: String,
    /// The accepted values of `aud`. An empty list accepts all.
    pub audiences: Vec<String>,
    /// The conditions that the claims must meet.
    pub claims: Vec<IdentityCondition>,
    /// The longest token, in bytes.
    pub max_token: usize,
}

impl TokenSettings {
    /// The longest token, in bytes, if the rule file sets no `max_token`.
    pub const DEFAULT_MAX_TOKEN: usize = 8 << 10;
}

/// The source of the key set that verifies tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySetSource {
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// A URL, which is fetched at intervals.
    Url(KeySetUrl),
}

/// An `http` or `https` URL with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySetUrl(Uri);

impl KeySetUrl {
    /// Parses a URL. Returns `None` for other texts, and for a URL with credentials or a fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let url: Uri = text.parse().ok()?;
        let authority = url.authority()?;
        let is_valid = matches!(url.scheme_str(), Some("http" | "https"))
            && !authority.as_str().contains('@')
            && !authority.host().is_empty()
            && !text.contains('#');
        is_valid.then_some(Self(url))
    }

    /// Returns `true` if the key set is fetched over TLS.
    pub fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.0.host().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the URL, which has a scheme and a host.
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

impl fmt::Display for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for KeySetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => url.fmt(f),
        }
    }
}
