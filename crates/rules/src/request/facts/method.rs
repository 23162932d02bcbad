//! Checks the method. Methods are case-sensitive, but some servers ignore the case.

use http::Method;

use super::BadRequest;

/// Methods of the IANA registry without a constant in `http`, and two common unregistered ones.
const OTHER_KNOWN: [&str; 33] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
    "PURGE",
    "BAN",
];

const COMMON: [Method; 9] = [
    Method::GET,
    Method::POST,
    Method::HEAD,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];

/// Returns `true` for the methods of RFC 9110 and PATCH.
pub fn is_common(method: &Method) -> bool {
    COMMON.contains(method)
}

/// Accepts unknown methods, but rejects a known method in another case: many servers treat `post` as `POST`.
pub(super) fn check(method: &Method) -> Result<(), BadRequest> {
    if *method == Method::CONNECT {
        return Err(BadRequest::Tunnel);
    }
    if is_common(method) {
        return Ok(());
    }
    let sent = method.as_str();
    let mut methods = COMMON.iter().map(Method::as_str).chain(OTHER_KNOWN);
    match methods.any(|name| name != sent && name.eq_ignore_ascii_case(sent)) {
        true => Err(BadRequest::MethodCase),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_method_in_another_case_is_rejected() {
        let check = |method: &str| check(&Method::from_bytes(method.as_bytes()).expect("a method"));
        for method in ["GET", "TRACE", "PROPFIND", "FOO", "foo", "X-Y"] {
            assert_eq!(check(method), Ok(()), "{method}");
        }
        for method in ["get", "Get", "post", "pOST", "propfind", "Purge", "connect"] {
            assert_eq!(check(method), Err(BadRequest::MethodCase), "{method}");
        }
        assert_eq!(check("CONNECT"), Err(BadRequest::Tunnel));
    }
}
