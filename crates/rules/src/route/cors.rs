//! Cross-origin access to a route: the fields that let browsers read responses, ours included (Fetch, section "CORS
//! protocol").

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::origin::OriginPattern;

/// The fields of the CORS protocol in responses. The gateway replaces these fields of an upstream.
const RESPONSE_FIELDS: [HeaderName; 7] = [
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN,
    HeaderName::from_static("access-control-allow-private-network"),
    ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

/// The fields of a response that depend on the fields of a preflight.
const VARY_PREFLIGHT: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Method, Access-Control-Request-Headers");

/// The origins that may access a route, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// The origins.
    pub origins: Vec<OriginPattern>,
    /// The allowed methods; if empty, the requested method.
    pub methods: Vec<Method>,
    /// The allowed request fields; if empty, the requested fields.
    pub headers: Vec<HeaderName>,
    /// The response fields that scripts can read.
    pub expose: HeaderValue,
    /// Whether requests may contain cookies and other credentials.
    pub credentials: bool,
    /// For how many seconds a browser may use the response to a preflight.
    pub max_age: Option<u64>,
}

/// The CORS fields of a request.
#[derive(Clone, Debug, Default)]
pub struct CorsRequest {
    origin: Option<HeaderValue>,
    preflight: Option<Preflight>,
}

/// The questions of a preflight.
#[derive(Clone, Debug)]
struct Preflight {
    method: HeaderValue,
    headers: Option<HeaderValue>,
}

/// Returns the method that the preflight `OPTIONS` with these fields asks for. Returns `None` for other requests.
pub(crate) fn requested_method(method: &Method, fields: &HeaderMap) -> Option<Method> {
    if *method != Method::OPTIONS || !fields.contains_key(ORIGIN) {
        return None;
    }
    Method::from_bytes(fields.get(ACCESS_CONTROL_REQUEST_METHOD)?.as_bytes()).ok()
}

// === impl Cors ===

impl Cors {
    /// The response fields that scripts can always read.
    pub const EXPOSED: [&'static str; 7] = [
        "Retry-After",
        "RateLimit",
        "RateLimit-Policy",
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "X-Request-Id",
    ];

    /// Returns `true` if the origin of the request may access the route.
    #[doc(hidden)]
    pub fn allows(&self, request: &CorsRequest) -> bool {
        request.origin.as_ref().is_some_and(|origin| self.origins.iter().any(|pattern| pattern.matches(origin)))
    }

    /// Returns `true` if the origin in these fields may access the route.
    #[doc(hidden)]
    pub fn allows_origin(&self, fields: &HeaderMap) -> bool {
        fields.get(ORIGIN).is_some_and(|origin| self.origins.iter().any(|pattern| pattern.matches(origin)))
    }

    /// Sets the CORS fields of the response to a request, and removes the CORS fields of the upstream.
    #[doc(hidden)]
    pub fn add_fields(&self, fields: &mut HeaderMap, request: &CorsRequest) {
        for name in &RESPONSE_FIELDS {
            fields.remove(name);
        }
        let is_public = !self.credentials && self.origins.contains(&OriginPattern::Any);
        if request.preflight.is_some() {
            fields.append(VARY, VARY_PREFLIGHT);
        } else if !is_public {
            // Also without an origin: a cache must not send this response to other origins.
            fields.append(VARY, HeaderValue::from_static("Origin"));
        }
        let origin = match &request.origin {
            _ if is_public => HeaderValue::from_static("*"),
            Some(origin) if self.allows(request) => origin.clone(),
            _ => return,
        };
        fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials {
            fields.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        match &request.preflight {
            Some(preflight) => self.add_answers(fields, preflight),
            None => _ = fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.expose.clone()),
        }
    }

    /// Sets the fields that only the response to a preflight has.
    fn add_answers(&self, fields: &mut HeaderMap, preflight: &Preflight) {
        let methods = list(self.methods.iter().map(Method::as_str)).unwrap_or_else(|| preflight.method.clone());
        fields.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        let headers = list(self.headers.iter().map(HeaderName::as_str)).or_else(|| preflight.headers.clone());
        if let Some(headers) = headers {
            fields.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers);
        }
        if let Some(seconds) = self.max_age {
            fields.insert(ACCESS_CONTROL_MAX_AGE, seconds.into());
        }
    }
}

/// Returns the names as a list field; `None` for an empty list.
fn list<'n>(names: impl Iterator<Item = &'n str>) -> Option<HeaderValue> {
    let names: Vec<&str> = names.collect();
    HeaderValue::try_from(names.join(", ")).ok().filter(|_| !names.is_empty())
}

// === impl CorsRequest ===

impl CorsRequest {
    /// Reads the fields of a request.
    pub fn new(method: &Method, fields: &HeaderMap) -> Self {
        let preflight = requested_method(method, fields).and_then(|_| {
            let requested = fields.get(ACCESS_CONTROL_REQUEST_METHOD)?.clone();
            Some(Preflight { method: requested, headers: fields.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned() })
        });
        Self { origin: fields.get(ORIGIN).cloned(), preflight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str], credentials: bool) -> Cors {
        Cors {
            origins: origins.iter().map(|text| OriginPattern::parse(text).expect(text)).collect(),
            methods: Vec::new(),
            headers: Vec::new(),
            expose: HeaderValue::from_static("Retry-After"),
            credentials,
            max_age: Some(600),
        }
    }

    fn request(method: &Method, fields: &[(HeaderName, &'static str)]) -> CorsRequest {
        let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        CorsRequest::new(method, &fields)
    }

    #[test]
    fn fields_of_the_upstream_are_replaced() {
        let mut fields = HeaderMap::new();
        for name in &RESPONSE_FIELDS {
            fields.append(name, HeaderValue::from_static("*"));
            fields.append(name, HeaderValue::from_static("*"));
        }
        let cors = cors(&["https://a.b"], true);
        cors.add_fields(&mut fields.clone(), &request(&Method::GET, &[]));
        let mut refused = fields.clone();
        cors.add_fields(&mut refused, &request(&Method::GET, &[(ORIGIN, "https://c.d")]));
        assert_eq!((refused.len(), refused.get(VARY)), (1, Some(&HeaderValue::from_static("Origin"))));
        cors.add_fields(&mut fields, &request(&Method::GET, &[(ORIGIN, "https://a.b")]));
        let texts: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect();
        assert_eq!(texts.len(), 4, "{texts:?}");
        for field in [
            ("access-control-allow-origin", "https://a.b"),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", "Retry-After"),
            ("vary", "Origin"),
        ] {
            assert!(texts.contains(&field), "{texts:?}");
        }
    }

    #[test]
    fn preflight_allows_the_requested_method_and_fields_by_default() {
        let preflight = request(
            &Method::OPTIONS,
            &[
                (ORIGIN, "https://a.b"),
                (ACCESS_CONTROL_REQUEST_METHOD, "PUT"),
                (ACCESS_CONTROL_REQUEST_HEADERS, "x-a,x-b"),
            ],
        );
        let answer = |cors: &Cors| {
            let mut fields = HeaderMap::new();
            cors.add_fields(&mut fields, &preflight);
            [ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_MAX_AGE]
                .map(|name| fields.get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default())
        };
        let all = cors(&["*"], false);
        assert_eq!(answer(&all), ["PUT", "x-a,x-b", "600"]);
        let listed = Cors {
            methods: vec![Method::GET, Method::POST],
            headers: vec![http::header::CONTENT_TYPE],
            max_age: None,
            ..all
        };
        assert_eq!(answer(&listed), ["GET, POST", "content-type", ""]);
        assert_eq!(answer(&cors(&["https://c.d"], false)), ["", "", ""]);
    }

    #[test]
    fn options_without_an_origin_or_a_method_is_no_preflight() {
        let method = |method, fields: &[(HeaderName, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
            requested_method(&method, &fields)
        };
        let both = [(ORIGIN, "https://a.b"), (ACCESS_CONTROL_REQUEST_METHOD, "PUT")];
        assert_eq!(method(Method::OPTIONS, &both), Some(Method::PUT));
        assert_eq!(method(Method::GET, &both), None);
        assert_eq!((method(Method::OPTIONS, &both[..1]), method(Method::OPTIONS, &both[1..])), (None, None));
        assert_eq!(method(Method::OPTIONS, &[both[0].clone(), (ACCESS_CONTROL_REQUEST_METHOD, "P UT")]), None);
    }
}
