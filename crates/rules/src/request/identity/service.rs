//! The service that has to allow requests: `service` of `require` in the rule file.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, Uri, header};

use tidegate_limit::text::words::words;

/// A service that has to allow requests, and what it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCheck {
    /// The URL of the service.
    pub url: ServiceUrl,
    /// The name of the upstream with the connections to the service.
    pub upstream: Arc<str>,
    /// The trusted authorities of an `https` service. By default the authorities of the system.
    pub ca: Option<PathBuf>,
    /// The fields of a request that the service receives.
    pub headers: Vec<HeaderName>,
    /// The fields of the service's response that the upstream of the route receives. Fields of the client with these names
    /// are removed.
    pub pass: Vec<HeaderName>,
    /// How long a permission is valid for equal requests. `None` asks for each request.
    pub cache: Option<Duration>,
    /// The longest time until the response of the service.
    pub timeout: Duration,
    /// The treatment of requests while the service is unavailable.
    pub on_failure: OnServiceFailure,
}

/// An `http` or `https` URL with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrl(Uri);

words! {
    /// The treatment of a request if the service cannot be asked, does not respond in time, or responds with a server error.
    pub enum OnServiceFailure, default Deny {
        /// The request is rejected with 503.
        Deny = "deny",
        /// The request is admitted without the permission of the service, also while an attacker overloads it.
        Allow = "allow",
    }
}

/// The decision of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceVerdict {
    /// The service allows the request.
    Allowed,
    /// The service denies the request.
    Denied,
    /// The service cannot be asked, does not respond in time, or responds with a server error.
    Unavailable,
    /// The response is neither a permission nor a denial, or too many requests wait for the service.
    Undecided,
}

impl ServiceCheck {
    /// The fields of a request that the service receives if the rule file sets no `headers`.
    pub const DEFAULT_HEADERS: [HeaderName; 2] = [header::AUTHORIZATION, header::COOKIE];

    /// The longest time until the response if the rule file sets no `timeout`.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
}

impl ServiceUrl {
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

    /// Returns `true` if the gateway uses TLS.
    pub fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns the host and the port.
    pub fn authority(&self) -> Option<&Authority> {
        self.0.authority()
    }

    /// Returns the target of requests to the service.
    pub fn path(&self) -> PathAndQuery {
        self.0.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_a_scheme_and_a_host() {
        let url = ServiceUrl::parse("https://auth.internal:9000/check?zone=a").expect("a URL");
        let authority = url.authority().map(Authority::as_str);
        assert_eq!(
            (url.is_https(), authority, url.path().as_str()),
            (true, Some("auth.internal:9000"), "/check?zone=a")
        );
        assert_eq!(ServiceUrl::parse("http://auth").map(|url| url.path().to_string()), Some("/".to_owned()));
        for other in
            ["auth:9000/check", "/check", "ftp://auth/", "http:///check", "http://user@auth/", "http://auth/#a", ""]
        {
            assert_eq!(ServiceUrl::parse(other), None, "{other}");
        }
    }
}
