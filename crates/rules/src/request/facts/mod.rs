//! The facts of a request: the properties by which routes are matched and clients are identified.
//!
//! The path has one normal form. The gateway forwards it; routes and client keys use [`Path::matched`], which is
//! derived from it. Therefore no spelling of a path avoids a limit.

mod arrival;
pub mod grpc_timeout;
mod host;
mod method;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{Extensions, HeaderMap, Method, Uri, Version};

pub use self::arrival::{ListenerName, Scheme};
pub use self::method::is_common;
use crate::request::body::ReadBody;
use crate::request::identity::{Identity, IdentityFault, IdentityValue};
use crate::request::path::{self, EncodedSlash, Path, Slashes};
use crate::request::sanitize::BadField;
use tidegate_limit::calendar::schedule::Minute;

/// The facts of a request: of a real one, or of one described in a log line or on the command line.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The host in lower case, without port and trailing dot. From the target if it has an authority, else from `Host`.
    /// Empty if the request has no host and needs none.
    pub host: Cow<'a, str>,
    /// The path in its normal form (see `path::normalize`). In a layer, this may be another
    /// interpretation of the path that matches a limit.
    pub path: Path<'a>,
    /// The query as it was sent, without the question mark.
    pub query: Option<&'a str>,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The address of the peer, with IPv4-mapped addresses converted to IPv4; `None` if unknown.
    pub peer: Option<IpAddr>,
    /// Whether the peer is the client, even if its address is a trusted proxy's. Then its forwarding fields are
    /// ignored.
    pub peer_is_client: bool,
    /// Whether the peer is a trusted proxy whose forwarding fields are used.
    pub peer_is_trusted: bool,
    /// The TLS identity of the peer. `None` for a plaintext connection, or if unknown.
    pub tls: Option<&'a TlsPeer>,
    /// The extensions of the request, which can have client keys of the program. `None` if it has none.
    pub extensions: Option<&'a Extensions>,
    /// The verified identities, as soon as the route is known, or a condition of a route needs them.
    pub identity: Option<Box<Identity>>,
    /// The time of the store. `None` if no rule depends on the time of day.
    pub time: Option<Minute>,
    /// The values of the body. `None` until it was read, and if no limit depends on it.
    pub body: Option<Box<ReadBody>>,
}

/// The names in the certificate of a TLS peer. Both are `None` without a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsPeer {
    /// The subject, in the text form of RFC 4514.
    pub subject: Option<String>,
    /// The first subject alternative name (RFC 5280 section 4.2.1.6) that is a URI, a DNS name or an email address.
    pub san: Option<String>,
}

/// The TLS peer without a client certificate.
pub static NO_CERTIFICATE: TlsPeer = TlsPeer::new(None, None);

impl TlsPeer {
    /// Creates the identity from the names of a certificate.
    #[doc(hidden)]
    pub const fn new(subject: Option<String>, san: Option<String>) -> Self {
        Self { subject, san }
    }
}

/// Whether a request must have a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRequirement {
    /// A request without a host is answered with 400.
    Required,
    /// A request without a host matches only routes without a host condition.
    Optional,
}

/// Settings for reading requests: `encoded_slash`, `slashes`, `request_id` and `json_bytes` of `requests` in the rule file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// The treatment of an encoded slash in a path. By default, the request is rejected with 400.
    pub encoded_slash: EncodedSlash,
    /// The treatment of empty segments of a path.
    pub slashes: Slashes,
    /// Whether each request has an `X-Request-Id`: the gateway adds one to requests without it.
    pub request_id: bool,
    /// The longest body that is read before limits decide, in bytes.
    pub body_bytes: BodyBytes,
}

/// The longest body that is read for limits: `json_bytes` of `requests` in the rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyBytes(pub usize);

impl Default for BodyBytes {
    fn default() -> Self {
        Self(1 << 20)
    }
}

/// Why a request is rejected before the rules are evaluated. The status is 400 unless documented otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// A known method in another case. Methods are case-sensitive (RFC 9110 section 9.1), but some servers ignore the
    /// case.
    #[error("method has the wrong case")]
    MethodCase,
    /// CONNECT (RFC 9110 section 9.3.6), which is not supported. The status is 501.
    #[error("CONNECT is not supported")]
    Tunnel,
    /// No host (RFC 9112 section 3.2).
    #[error("request has no host")]
    NoHost,
    /// More than one host, or an invalid host (RFC 9112 section 3.2).
    #[error("request has no valid host")]
    BadHost,
    /// A path that is malformed, or that origin servers read in different ways.
    #[error("path is not valid: {0}")]
    BadPath(#[from] path::PathError),
    /// A query with a byte that is not visible ASCII (RFC 3986 section 2).
    #[error("query has a byte that is not visible ASCII")]
    BadQuery,
    /// A header field that a route matches, with different values: upstream servers differ in which value they use.
    #[error("a header field that selects routes was sent with two values")]
    TwoValues,
    /// A value that a route matches, and that servers read in different ways.
    #[error("a value that selects the route is ambiguous")]
    AmbiguousValue,
    /// A header field that servers read in different ways.
    #[error(transparent)]
    BadField(#[from] BadField),
}

impl<'a> Facts<'a> {
    /// Reads the facts of a request.
    ///
    /// # Errors
    /// The host is missing or invalid, or servers would read the path differently.
    pub fn read(
        method: &'a Method,
        uri: &'a Uri,
        host: impl Into<HostRequirement>,
        headers: &'a HeaderMap,
        peer: impl Into<Option<IpAddr>>,
        requests: &Requests,
    ) -> Result<Self, BadRequest> {
        method::check(method)?;
        let host = host::read(uri, host.into(), headers)?;
        if !is_valid_query(uri.query()) {
            return Err(BadRequest::BadQuery);
        }
        let path = match uri.path() {
            ASTERISK if *method == Method::OPTIONS => Path::from(ASTERISK),
            path => path::normalize_with(path, requests.encoded_slash, requests.slashes)?,
        };
        Ok(Self::new(method, (host, path, uri.query()), headers, peer.into()))
    }

    /// Reads the facts of a request without normalizing the path and without checking the query.
    ///
    /// # Errors
    /// The method or the host is invalid.
    pub fn read_unnormalized(
        method: &'a Method,
        uri: &'a Uri,
        host: impl Into<HostRequirement>,
        headers: &'a HeaderMap,
        peer: impl Into<Option<IpAddr>>,
    ) -> Result<Self, BadRequest> {
        method::check(method)?;
        let host = host::read(uri, host.into(), headers)?;
        Ok(Self::new(method, (host, Path::from(uri.path()), uri.query()), headers, peer.into()))
    }

    #[inline]
    fn new(
        method: &'a Method,
        (host, path, query): (Cow<'a, str>, Path<'a>, Option<&'a str>),
        headers: &'a HeaderMap,
        peer: Option<IpAddr>,
    ) -> Self {
        let peer = peer.map(|peer| peer.to_canonical());
        let (peer_is_client, peer_is_trusted) = (false, false);
        let (tls, extensions, identity, time, body) = (None, None, None, None, None);
        Self {
            method,
            host,
            path,
            query,
            headers,
            peer,
            peer_is_client,
            peer_is_trusted,
            tls,
            extensions,
            identity,
            time,
            body,
        }
    }

    /// Uses the body's call with this number, from 0.
    pub(crate) fn select_call(&mut self, call: usize) {
        if let Some(body) = &mut self.body {
            body.select(call);
        }
    }

    /// Returns a value of the verified identity, or of a header field from a trusted peer.
    pub fn identity_value(&self, value: &IdentityValue) -> Option<Cow<'_, str>> {
        value.read(self.identity.as_deref(), self.peer_is_trusted.then_some(self.headers), self.extensions)
    }

    /// Returns the fault of the request's credentials; `None` if they have no fault.
    pub fn identity_fault(&self) -> Option<IdentityFault> {
        self.identity.as_ref().and_then(|identity| identity.fault)
    }

    /// Returns `true` if the query consists of visible ASCII characters.
    pub fn has_valid_query(&self) -> bool {
        is_valid_query(self.query)
    }

    /// Returns `true` for `OPTIONS *`, which is about the server and not about a resource (RFC 9110 section 9.3.7).
    pub fn is_for_server(&self) -> bool {
        self.path.normalized() == ASTERISK
    }
}

/// HTTP/1.0 requests, such as health checks of load balancers, may lack a host. HTTP/1.1 requires it (RFC 9112 section
/// 3.2).
impl From<Version> for HostRequirement {
    fn from(version: Version) -> Self {
        if version == Version::HTTP_10 { Self::Optional } else { Self::Required }
    }
}

fn is_valid_query(query: Option<&str>) -> bool {
    query.is_none_or(|query| query.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// The target of a request about the server.
const ASTERISK: &str = "*";
