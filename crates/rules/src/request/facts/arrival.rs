//! How a request arrived: its scheme, and the listener that received it.

use std::sync::Arc;

use http::HeaderName;

use super::Facts;
use tidegate_limit::text::words::words;

words! {
    /// The scheme of a request.
    pub enum Scheme {
        /// The client used no TLS.
        Http = "http",
        /// The client used TLS.
        Https = "https",
    }
}

/// The name of the listener that received a request, in the request's extensions. Listeners without a name insert none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerName(pub Arc<str>);

/// The field in which proxies report the scheme of their clients.
const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-proto");

impl Facts<'_> {
    /// Returns the scheme: as a trusted proxy reports it, or of the connection.
    pub fn scheme(&self) -> Scheme {
        let of_connection = if self.tls.is_some() { Scheme::Https } else { Scheme::Http };
        if !self.peer_is_trusted {
            return of_connection;
        }
        let mut reported = self.headers.get_all(FORWARDED_SCHEME).iter();
        match (reported.next().and_then(|value| value.to_str().ok()), reported.next()) {
            (Some(value), None) if value.eq_ignore_ascii_case("http") => Scheme::Http,
            (Some(value), None) if value.eq_ignore_ascii_case("https") => Scheme::Https,
            _ => of_connection,
        }
    }

    /// Returns the name of the listener. Returns `None` if the listener has no name, and in a layer.
    pub fn listener(&self) -> Option<&str> {
        self.extensions?.get::<ListenerName>().map(|listener| &*listener.0)
    }
}

#[cfg(test)]
mod tests {
    use http::{Extensions, HeaderMap, HeaderValue, Method, Uri, Version};

    use super::*;
    use crate::request::facts::{Requests, TlsPeer};

    fn scheme(sent: &[&'static str], is_trusted: bool, is_tls: bool) -> Scheme {
        let fields = sent.iter().map(|value| (FORWARDED_SCHEME, HeaderValue::from_static(value)));
        let (headers, uri, tls) = (fields.collect::<HeaderMap>(), Uri::from_static("/"), TlsPeer::default());
        let mut facts =
            Facts::read(&Method::GET, &uri, Version::HTTP_10, &headers, None, &Requests::default()).expect("facts");
        facts.peer_is_trusted = is_trusted;
        facts.tls = is_tls.then_some(&tls);
        facts.scheme()
    }

    #[test]
    fn only_a_trusted_proxy_reports_the_scheme() {
        for (sent, is_trusted, is_tls, expected) in [
            (&[][..], false, false, Scheme::Http),
            (&[], false, true, Scheme::Https),
            (&["https"], false, false, Scheme::Http),
            (&["HTTPS"], true, false, Scheme::Https),
            (&["http"], true, true, Scheme::Http),
            (&["https", "http"], true, false, Scheme::Http),
            (&["https, http"], true, false, Scheme::Http),
            (&["wss"], true, true, Scheme::Https),
        ] {
            assert_eq!(scheme(sent, is_trusted, is_tls), expected, "{sent:?} {is_trusted} {is_tls}");
        }
    }

    #[test]
    fn listener_is_in_the_extensions() {
        let (headers, uri, mut extensions) = (HeaderMap::new(), Uri::from_static("/"), Extensions::new());
        let facts =
            Facts::read(&Method::GET, &uri, Version::HTTP_10, &headers, None, &Requests::default()).expect("facts");
        assert_eq!(facts.listener(), None);
        extensions.insert(ListenerName("public".into()));
        assert_eq!(Facts { extensions: Some(&extensions), ..facts }.listener(), Some("public"));
    }
}
