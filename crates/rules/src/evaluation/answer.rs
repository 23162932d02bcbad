//! The answers of the gateway itself.

use crate::request::facts::BadRequest;
use crate::request::identity::IdentityFault;
use crate::route::{OriginalRequestError, Rejection, Route};

/// Why the gateway answers a request itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'r> {
    /// 400: the route depends on a value that servers read in different ways.
    BadRequest(BadRequest),
    /// 204: the request is about the gateway itself.
    Options,
    /// 204: the route allows the origin of this preflight.
    Preflight(&'r Route),
    /// 403: the route does not allow the origin of this preflight.
    OriginNotAllowed(&'r Route),
    /// 405: a method that does not read a quota.
    QuotaMethod,
    /// 403: the peer is not a proxy that may ask about requests.
    UntrustedProxy,
    /// 400: the original request of a proxy is unknown.
    BadOriginal(OriginalRequestError),
    /// 200: the proxy may let the original request to this route pass.
    Authorized(&'r Route),
    /// 501: an extended CONNECT for a protocol that the route does not allow.
    Tunnel,
    /// 413: the body is longer than the `max_body` of the route.
    BodyTooLong(&'r Route),
    /// 401, 403 or 503: the credentials are not accepted, or do not allow the request.
    NotIdentified {
        /// Why they are not accepted.
        fault: IdentityFault,
        /// The route, which names the accepted credentials.
        route: &'r Route,
    },
    /// 429, or the response of the route: limits refuse the request.
    Refused(Option<&'r Rejection>),
    /// 429 or 503: too many requests are in flight.
    Busy,
    /// 503: the store does not decide.
    StoreFailed,
    /// The response of the service that the route asks: it denies the request.
    ServiceDenied,
    /// 503: the service that the route asks does not decide.
    ServiceFailed,
    /// The response of the route: `respond` or `redirect`.
    Configured(&'r Route),
}
