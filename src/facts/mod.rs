//! The facts of a request: what routes and clients are decided by.
//!
//! The path has one normal form, which is matched, used in keys and sent upstream. So no spelling of a path avoids a limit.

mod host;
mod method;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri, Version};

pub(crate) use self::method::is_common;
use crate::path::{self, EncodedSlash, Path};
use crate::sanitize::BadField;

/// The facts of a request: a live one, or one described in a log line or on the command line.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The method.
    pub method: &'a Method,
    /// The authority's host in lower case, without port and trailing dot; from the target if it has one, else `Host`.
    /// Empty where there is none and none is needed.
    pub host: Cow<'a, str>,
    /// The path in its normal form (see `path::normalize`); in a layer, another reading if that leads to a limit.
    pub path: Path<'a>,
    /// The query as it was sent, without the question mark.
    pub query: Option<&'a str>,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The address at the other end of the connection, IPv4-mapped addresses unwrapped; `None` if unknown.
    pub peer: Option<IpAddr>,
    /// Whether the peer counts as the client, even if it is a trusted proxy: its forwarded fields are not trusted.
    pub peer_is_client: bool,
    /// What TLS tells of it; `None` over a connection in clear, or if unknown.
    pub tls: Option<&'a TlsPeer>,
    /// The client key that the service has put into the request's extensions; `None` without one.
    pub key: Option<&'a str>,
}

/// What TLS tells of the other end of a connection: the names in the certificate that it showed, if it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsPeer {
    /// The subject, in the text form of RFC 4514.
    pub subject: Option<String>,
    /// The first alternative name that is a URI, a host's or an address of mail.
    pub san: Option<String>,
}

/// Must a request name a host?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostNeed {
    /// Yes: 400 without one.
    Required,
    /// No: without one it matches no route that asks for a host.
    Optional,
}

/// How requests are read: `requests:` of the rule file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// How an encoded slash in a path is treated: refused with 400 by default.
    pub encoded_slash: EncodedSlash,
}

/// Why a request is refused before any rule, with 400 unless another status is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// RFC 9110 section 9.1: methods are case-sensitive, but not every server knows that.
    #[error("method is written in another case than the one it has")]
    MethodCase,
    /// RFC 9110 section 9.3.6: CONNECT is not supported; answered with 501.
    #[error("no tunnels are opened here")]
    Tunnel,
    /// RFC 9112 section 3.2.
    #[error("request has no host")]
    NoHost,
    /// RFC 9112 section 3.2: more than one Host, or one that is not a host.
    #[error("request has no valid host")]
    BadHost,
    /// The path means different things to different origins.
    #[error("path is not valid: {0}")]
    BadPath(#[from] path::PathError),
    /// RFC 3986 section 2: a target is visible ASCII.
    #[error("query has a byte that is not visible ASCII")]
    BadQuery,
    /// The field is repeated, and upstreams differ in which value they use.
    #[error("a field by which routes are told apart was sent with two values")]
    TwoValues,
    /// A field means different things to different servers.
    #[error(transparent)]
    BadField(#[from] BadField),
}

impl<'a> Facts<'a> {
    /// Reads the facts from the parts of a request.
    ///
    /// # Errors
    /// A request without one valid host, or whose path means different things to different servers.
    pub fn read(
        method: &'a Method,
        uri: &'a Uri,
        host: impl Into<HostNeed>,
        headers: &'a HeaderMap,
        peer: impl Into<Option<IpAddr>>,
        requests: &Requests,
    ) -> Result<Self, BadRequest> {
        let mut facts = Self::read_as_written(method, uri, host, headers, peer)?;
        if !facts.has_valid_query() {
            return Err(BadRequest::BadQuery);
        }
        facts.path = match uri.path() {
            SERVER if *method == Method::OPTIONS => Path::from(SERVER),
            path => path::normalize(path, requests.encoded_slash)?,
        };
        Ok(facts)
    }

    /// Reads the facts from the parts of a request; the path and the query stay as they are written.
    ///
    /// # Errors
    /// A request without a valid method, or with an invalid host.
    pub(crate) fn read_as_written(
        method: &'a Method,
        uri: &'a Uri,
        host: impl Into<HostNeed>,
        headers: &'a HeaderMap,
        peer: impl Into<Option<IpAddr>>,
    ) -> Result<Self, BadRequest> {
        method::check(method)?;
        let host = host::read(uri, host.into(), headers)?;
        let peer = peer.into().map(|peer: IpAddr| peer.to_canonical());
        Ok(Self {
            method,
            host,
            path: Path::from(uri.path()),
            query: uri.query(),
            headers,
            peer,
            peer_is_client: false,
            tls: None,
            key: None,
        })
    }

    /// Returns `true` if the query consists of visible ASCII characters.
    pub(crate) fn has_valid_query(&self) -> bool {
        self.query.is_none_or(|query| query.bytes().all(|byte| byte.is_ascii_graphic()))
    }

    /// Is it `OPTIONS *`, a question about the server as a whole (RFC 9110 section 9.3.7)?
    pub fn is_for_the_server(&self) -> bool {
        self.path.normalized() == SERVER
    }
}

/// It came with HTTP/1.1 (RFC 9112 section 3.2); health checks of load balancers have none.
impl From<Version> for HostNeed {
    fn from(version: Version) -> Self {
        if version == Version::HTTP_10 { Self::Optional } else { Self::Required }
    }
}

/// The target of a request about the server, not about a resource.
const SERVER: &str = "*";
