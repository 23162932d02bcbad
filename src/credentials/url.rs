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

    pub(super) fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Returns the host and the port, as in the URL.
    pub(super) fn authority(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }

    /// Returns the path and the query.
    pub(super) fn target(&self) -> &str {
        self.0.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl fmt::Display for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
