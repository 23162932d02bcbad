//! Describes the answers of the gateway itself.

use http::Method;

use super::request;
use tidegate_config::quote;
use tidegate_rules::evaluation::Answer;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::IdentityFault;
use tidegate_rules::route::Route;

/// Returns the status of an answer, and the reason for it.
pub(super) fn describe(answer: Answer<'_>, facts: &Facts<'_>) -> (u16, String) {
    match answer {
        Answer::BadRequest(error) => (request::status(&error), error.to_string()),
        Answer::Options => (204, "the request is about the gateway itself".to_owned()),
        Answer::Preflight(route) => (204, allowed_preflight(route)),
        Answer::OriginNotAllowed(route) => {
            (403, format!("route {} does not allow the origin of the preflight", quote(&route.name)))
        }
        Answer::QuotaMethod => (405, "only GET and HEAD read a quota".to_owned()),
        Answer::UntrustedProxy => {
            let peer = facts.peer.map_or_else(String::new, |peer| format!(" {peer}"));
            (403, format!("only trusted proxies can ask for authorizations, and the peer{peer} is not one"))
        }
        Answer::BadOriginal(error) => (400, error.detail().to_owned()),
        Answer::Authorized(route) => (200, allowed_preflight(route)),
        Answer::Tunnel => (501, "the route does not allow the protocol of the tunnel".to_owned()),
        Answer::BodyTooLong(route) => {
            (413, format!("content-length is larger than {} bytes, the `max_body` of the route", route.max_body))
        }
        Answer::NotIdentified { fault, route } => {
            let unmet = facts.identity.as_ref().and_then(|identity| route.require.unmet(identity));
            let unmet = unmet.filter(|_| fault == IdentityFault::NotAllowed);
            (fault.status().as_u16(), unmet.map_or_else(|| fault.to_string(), |unmet| unmet.to_string()))
        }
        Answer::Refused(rejection) => {
            (rejection.map_or(429, |rejection| rejection.status().as_u16()), "limits refuse the request".to_owned())
        }
        Answer::Busy => (503, "too many requests are in flight".to_owned()),
        Answer::StoreFailed => (503, "the store does not decide".to_owned()),
        Answer::ServiceDenied => (403, "the authorization service denies the request".to_owned()),
        Answer::ServiceFailed => (503, "the authorization service does not decide".to_owned()),
        Answer::Configured(route) => {
            let status = route.action.status().map_or(500, |status| status.as_u16());
            (status, format!("the response of route {}", quote(&route.name)))
        }
    }
}

fn allowed_preflight(route: &Route) -> String {
    let methods = route.cors.iter().flat_map(|cors| &cors.methods).map(Method::as_str);
    let methods: Vec<_> = methods.collect();
    let methods = match methods.is_empty() {
        true => "the requested method".to_owned(),
        false => format!("the methods {}", methods.join(", ")),
    };
    format!("route {} allows the origin of the preflight, and {methods}", quote(&route.name))
}
