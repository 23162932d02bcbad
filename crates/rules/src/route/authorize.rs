//! The original request that a proxy asks about. Envoy sends its path as the path of the request to this gateway;
//! nginx, Caddy, Traefik and others send it in fields.
//!
//! Proxies forward fields of their clients. So two fields with the same property are an error: a client could have
//! added one of them to have another request evaluated.

use http::{HeaderMap, HeaderName, Method, Uri};
use serde::Serialize;

use crate::request::facts::Facts;

const URIS: [HeaderName; 3] = [
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-forwarded-uri"),
];
const METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-original-method"), HeaderName::from_static("x-forwarded-method")];
const FORWARDED_URI: &str = "x-forwarded-uri";
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// How a route evaluates the original requests of proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Authorize {
    /// Whether rejections have the status 403, unless it is 401: nginx turns other statuses into 500.
    pub nginx: bool,
    /// The number of path segments before the original path; `None` if fields contain the target.
    #[serde(skip)]
    pub prefix: Option<usize>,
}

/// The method and the target of an original request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalRequest {
    /// The method of the original request.
    pub method: Method,
    /// The target of the original request.
    pub uri: Uri,
}

/// Why the original request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginalRequestError {
    /// Not exactly one valid field contains the target.
    Target,
    /// Not exactly one valid field contains the method.
    Method,
    /// The method, the target or the host is invalid.
    Invalid,
    /// The original request is to an `authorize` route itself.
    Recursive,
}

impl OriginalRequest {
    /// Reads the original request.
    ///
    /// # Errors
    /// The original request is unknown.
    pub fn read(authorize: Authorize, facts: &Facts<'_>) -> Result<Self, OriginalRequestError> {
        let host = Some(&*facts.host).filter(|host| !host.is_empty());
        if let Some(prefix) = authorize.prefix {
            let path = facts.path.normalized().match_indices('/').nth(prefix);
            let path = path.and_then(|(start, _)| facts.path.normalized().get(start..)).unwrap_or("/");
            let target = facts.query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
            return Ok(Self { method: facts.method.clone(), uri: on_host(host, &target)? });
        }
        let uris = URIS;
        let (name, target) = single(facts.headers, &uris).ok_or(OriginalRequestError::Target)?;
        let (_, method) = single(facts.headers, &METHODS).ok_or(OriginalRequestError::Method)?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| OriginalRequestError::Invalid)?;
        if !target.starts_with('/') {
            let (scheme, rest) = target.split_once("://").ok_or(OriginalRequestError::Invalid)?;
            let (host, target) = rest.split_at(rest.find('/').ok_or(OriginalRequestError::Invalid)?);
            let is_http = ["http", "https"].iter().any(|allowed| scheme.eq_ignore_ascii_case(allowed));
            let uri = absolute(scheme, host, target).filter(|_| is_http).ok_or(OriginalRequestError::Invalid)?;
            return Ok(Self { method, uri });
        }
        // Proxies that set `X-Forwarded-Uri` also set `X-Forwarded-Host`. Others may forward the field of a client.
        let host = match facts.headers.contains_key(FORWARDED_HOST) && name == FORWARDED_URI {
            true => Some(single(facts.headers, &[FORWARDED_HOST]).ok_or(OriginalRequestError::Invalid)?.1),
            false => host,
        };
        Ok(Self { method, uri: on_host(host, target)? })
    }
}

/// Returns the value of the only field with one of these names, and its name. Returns `None` for none or
/// several such fields, and for a value that is not ASCII.
fn single<'h, 'n>(fields: &'h HeaderMap, names: &'n [HeaderName]) -> Option<(&'n HeaderName, &'h str)> {
    let mut all = names.iter().flat_map(|name| fields.get_all(name).iter().map(move |value| (name, value)));
    let (name, value) = all.next().filter(|_| all.next().is_none())?;
    Some((name, value.to_str().ok()?))
}

fn on_host(host: Option<&str>, target: &str) -> Result<Uri, OriginalRequestError> {
    let uri = match host {
        Some(host) => absolute("http", host, target),
        None => target.parse().ok().filter(|uri| has_path(uri, target)),
    };
    uri.ok_or(OriginalRequestError::Invalid)
}

/// Returns an absolute URL. Returns `None` if it would not have this host and this target: a client could send a host
/// such as `a?` to have another path evaluated.
fn absolute(scheme: &str, host: &str, target: &str) -> Option<Uri> {
    let uri: Uri = format!("{scheme}://{host}{target}").parse().ok()?;
    let is_same = uri.authority()?.as_str() == host && has_path(&uri, target);
    is_same.then_some(uri)
}

/// Returns `true` if `target` is the path and the query of the URL. `Uri` drops fragments.
fn has_path(uri: &Uri, target: &str) -> bool {
    uri.path_and_query().is_some_and(|found| found.as_str() == target)
}

impl OriginalRequestError {
    /// Returns the description for the response.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Target => "exactly one field must contain the target of the original request",
            Self::Method => "exactly one field must contain the method of the original request",
            Self::Invalid => "the method, the target or the host of the original request is not valid",
            Self::Recursive => "the original request asks for an authorization itself",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::rules::Requests;

    fn read(authorize: Authorize, path: &str, fields: &[(&'static str, &str)]) -> Result<String, OriginalRequestError> {
        let fields: HeaderMap = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value")))
            .collect();
        let uri: Uri = path.parse().expect("a target");
        let facts = Facts::read(&Method::GET, &uri, http::Version::HTTP_11, &fields, None, &Requests::default());
        let OriginalRequest { method, uri } = OriginalRequest::read(authorize, &facts.expect("facts"))?;
        Ok(format!("{method} {uri}"))
    }

    fn by_fields(fields: &[(&'static str, &str)]) -> Result<String, OriginalRequestError> {
        read(Authorize::default(), "http://gateway/_authorize", fields)
    }

    #[test]
    fn fields_of_each_proxy_are_read() {
        let nginx = [("x-original-uri", "/a?b=1"), ("x-original-method", "PUT"), ("host", "h")];
        assert_eq!(by_fields(&nginx).as_deref(), Ok("PUT http://gateway/a?b=1"));
        let ingress = [("x-original-url", "https://x.y/a"), ("x-original-method", "GET")];
        assert_eq!(by_fields(&ingress).as_deref(), Ok("GET https://x.y/a"));
        let caddy = [("x-forwarded-uri", "/a"), ("x-forwarded-method", "POST"), ("x-forwarded-host", "x.y:8080")];
        assert_eq!(by_fields(&caddy).as_deref(), Ok("POST http://x.y:8080/a"));
        assert_eq!(by_fields(&caddy[..2]).as_deref(), Ok("POST http://gateway/a"));
        // nginx forwards a field of the client, which must not select the host.
        let forwarded = [nginx[0], nginx[1], ("x-forwarded-host", "x.y")];
        assert_eq!(by_fields(&forwarded).as_deref(), Ok("PUT http://gateway/a?b=1"));
    }

    #[test]
    fn fields_of_clients_never_replace_fields_of_proxies() {
        let (uri, method) = (("x-original-uri", "/a"), ("x-original-method", "GET"));
        for other in [("x-forwarded-uri", "/b"), ("x-original-url", "/a"), ("x-original-uri", "/a")] {
            assert_eq!(by_fields(&[uri, method, other]), Err(OriginalRequestError::Target), "{other:?}");
        }
        for other in [("x-forwarded-method", "GET"), ("x-original-method", "GET")] {
            assert_eq!(by_fields(&[uri, method, other]), Err(OriginalRequestError::Method), "{other:?}");
        }
        let hosts = [("x-forwarded-host", "a"), ("x-forwarded-host", "b")];
        let forwarded = [("x-forwarded-uri", "/a"), ("x-forwarded-method", "GET"), hosts[0], hosts[1]];
        assert_eq!(by_fields(&forwarded), Err(OriginalRequestError::Invalid));
    }

    #[test]
    fn missing_and_invalid_values_are_errors() {
        assert_eq!(by_fields(&[("x-original-method", "GET")]), Err(OriginalRequestError::Target));
        assert_eq!(by_fields(&[("x-original-uri", "/a")]), Err(OriginalRequestError::Method));
        let urls = ["http://x?/a", "http://x#/a", "http://x/a#b", "http://x", "http://x?", "http:///a", "ftp://a/b"];
        for uri in ["", "a", "*", "//", "a:1", "/a b", "/a#b"].into_iter().chain(urls) {
            let found = by_fields(&[("x-original-uri", uri), ("x-original-method", "GET")]);
            assert!(found == Err(OriginalRequestError::Invalid) || uri == "//", "{uri}: {found:?}");
        }
        for host in ["a/b?", "a@b", "a?", "a#", "", "a, b"] {
            let fields = [("x-forwarded-uri", "/a"), ("x-forwarded-method", "GET"), ("x-forwarded-host", host)];
            let found = by_fields(&fields);
            assert!(found == Err(OriginalRequestError::Invalid) || host == "a@b", "{host}: {found:?}");
        }
    }

    #[test]
    fn path_below_the_prefix_is_the_original_path() {
        let authorize = Authorize { nginx: false, prefix: Some(1) };
        for (path, original) in [
            ("/_authorize/a/b?c=1", "/a/b?c=1"),
            ("/_authorize/", "/"),
            ("/_authorize", "/"),
            ("/_authorize/_authorize/a", "/_authorize/a"),
        ] {
            // Fields of clients have no effect.
            let found = read(authorize, &format!("http://h{path}"), &[("x-original-uri", "/other")]);
            assert_eq!(found, Ok(format!("GET http://h{original}")));
        }
    }
}
