//! Names of settings that protect routes, in formats whose plugins and filters have any name.

/// Parts of names of authentication and authorization.
const PARTS: [&str; 18] = [
    "auth",
    "jwt",
    "oidc",
    "openid",
    "saml",
    "ldap",
    "hmac",
    "rbac",
    "apikey",
    "api-key",
    "api_key",
    "token",
    "casbin",
    "keycloak",
    "login",
    "introspection",
    "permission",
    "security",
];

/// Words of such names that other words contain, too.
const WORDS: [&str; 5] = ["acl", "opa", "mtls", "iam", "sso"];

/// Returns `true` if a name seems to reject requests without credentials. A route that loses such a setting is closed:
/// rejecting too many requests is noticed, and admitting them is not.
pub(crate) fn is_protective(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    PARTS.iter().any(|part| name.contains(part)) || words.any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_authentication_are_found() {
        for name in ["my-AuthFilter", "envoy.filters.http.jwt_authn", "acl", "opa", "OpenIDConnect"] {
            assert!(is_protective(name), "{name}");
        }
        for name in ["oracle", "prometheus", "compress", "cors", "rate-limiting"] {
            assert!(!is_protective(name), "{name}");
        }
    }
}
