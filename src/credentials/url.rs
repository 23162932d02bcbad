//! The address of a key set.

use std::fmt;

use http::Uri;

/// An `http` or `https` URL with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySetUrl(Uri);

impl KeySetUrl {
    /// Parses a URL. Returns `None` for other texts, and for a URL with credentials or a fragment.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let url: Uri = text.parse().ok()?;
        let authority = url.authority()?;
        let is_valid = matches!(url.scheme_str(), Some("http" | "https"))
            && !authority.as_str().contains('@')
            && !authority.host().is_empty()
            && !text.contains('#');
        is_valid.then_some(Self(url))
    }

    /// Returns `true` for `https`.
    pub(crate) fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        let host = self.0.host().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }
}

impl fmt::Display for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
