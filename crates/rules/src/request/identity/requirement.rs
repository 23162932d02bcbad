//! The credentials that a route requires.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use super::{Identity, IdentityCondition, IdentityFault, IdentityKind, IdentityKinds, IdentityValue, ServiceCheck};

/// The credentials that a route requires: `require` in the rule file. A request must meet one of the alternatives. Without
/// alternatives, all requests meet it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement(Vec<Alternative>);

/// Credentials that suffice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternative {
    /// The kinds of credentials, which a request must have all.
    pub kinds: IdentityKinds,
    /// The conditions on these credentials, which must all hold.
    pub conditions: Vec<IdentityCondition>,
    /// The service that must also allow the request.
    pub service: Option<Arc<ServiceCheck>>,
}

/// Why a request does not meet a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmetRequirement<'r> {
    /// It lacks credentials.
    Missing,
    /// Its credentials are valid, and do not meet this condition.
    NotAllowed(&'r IdentityCondition),
}

// === impl Requirement ===

impl Requirement {
    /// Creates a requirement with these alternatives.
    pub fn new(alternatives: Vec<Alternative>) -> Self {
        Self(alternatives)
    }

    /// Returns the alternatives.
    pub fn alternatives(&self) -> &[Alternative] {
        &self.0
    }

    /// Returns the kinds of credentials of all alternatives.
    pub fn kinds(&self) -> IdentityKinds {
        self.0.iter().map(|alternative| alternative.kinds).fold(IdentityKinds::default(), IdentityKinds::union)
    }

    /// Returns the services of all alternatives.
    pub fn services(&self) -> impl Iterator<Item = &Arc<ServiceCheck>> {
        self.0.iter().filter_map(|alternative| alternative.service.as_ref())
    }

    /// Returns the fields that only services set. No request may keep its own, even if its alternative has no service.
    pub fn passed_fields(&self) -> impl Iterator<Item = &HeaderName> {
        self.services().flat_map(|service| &service.pass)
    }

    /// Returns the service that must also allow a request with these verified credentials. Returns `None` if they suffice,
    /// or if no alternative is met. If several alternatives with services are met, the first is asked.
    pub fn service(&self, identity: Option<&Identity>) -> Option<&ServiceCheck> {
        self.services().next()?; // most requirements have none
        let none = Identity::default();
        let identity = identity.unwrap_or(&none);
        let mut met = self.0.iter().filter(|alternative| alternative.is_met(identity));
        let first = met.next()?.service.as_deref()?;
        met.all(|alternative| alternative.service.is_some()).then_some(first)
    }

    /// Returns why verified credentials do not meet the requirement. If they are complete for an alternative, they are not
    /// allowed; otherwise they are missing.
    pub fn unmet(&self, identity: &Identity) -> Option<UnmetRequirement<'_>> {
        let mut fault = None;
        for Alternative { kinds, conditions, service: _ } in &self.0 {
            let unmet = match conditions.iter().find(|condition| !condition.is_met(identity)) {
                _ if !identity.has(*kinds) => UnmetRequirement::Missing,
                Some(condition) => UnmetRequirement::NotAllowed(condition),
                None => return None,
            };
            fault = match fault {
                None | Some(UnmetRequirement::Missing) => Some(unmet),
                not_allowed => not_allowed,
            };
        }
        fault
    }
}

impl Alternative {
    /// Returns `true` if the credentials suffice, apart from the service.
    fn is_met(&self, identity: &Identity) -> bool {
        identity.has(self.kinds) && self.conditions.iter().all(|condition| condition.is_met(identity))
    }
}

/// Each kind suffices.
impl FromIterator<IdentityKind> for Requirement {
    fn from_iter<I: IntoIterator<Item = IdentityKind>>(kinds: I) -> Self {
        let alternative = |kind| Alternative { kinds: IdentityKinds::from_iter([kind]), ..Alternative::default() };
        Self(kinds.into_iter().map(alternative).collect())
    }
}

// === impl UnmetRequirement ===

impl UnmetRequirement<'_> {
    /// Returns the fault of the credentials.
    pub fn fault(self) -> IdentityFault {
        match self {
            Self::Missing => IdentityFault::Missing,
            Self::NotAllowed(_) => IdentityFault::NotAllowed,
        }
    }

    /// Returns `true` if a token is valid and not allowed.
    pub fn is_of_token(self) -> bool {
        matches!(self, Self::NotAllowed(condition) if condition.value.kinds().token)
    }
}

/// The detail of the response. It names the value, which is a part of the rule file: only clients with valid credentials
/// learn it. Values are not shown.
impl fmt::Display for UnmetRequirement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => IdentityFault::Missing.fmt(f),
            Self::NotAllowed(condition) => match &condition.value {
                IdentityValue::Claim(claim) => {
                    write!(f, "the token is valid, but its claim `{claim}` does not allow this request")
                }
                IdentityValue::User => {
                    f.write_str("the password is valid, but the user is not allowed to send this request")
                }
                value => {
                    write!(
                        f,
                        "the API key is valid, but its `{}` does not allow this request",
                        value.source_and_name().1
                    )
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::{ApiKey, Claims, IdentityTest, OnServiceFailure, ServiceUrl};
    use super::*;

    fn condition(value: &str, one_of: &str) -> IdentityCondition {
        let value = IdentityValue::parse(value).expect(value);
        IdentityCondition { value, test: IdentityTest::OneOf(vec![one_of.into()]) }
    }

    fn alternative(conditions: Vec<IdentityCondition>) -> Alternative {
        let kinds = conditions.iter().map(|condition| condition.value.kinds());
        Alternative { kinds: kinds.fold(IdentityKinds::default(), IdentityKinds::union), conditions, service: None }
    }

    fn with_service(url: &str, alternative: Alternative) -> Alternative {
        let check = ServiceCheck {
            url: ServiceUrl::parse(url).expect("a URL"),
            upstream: url.into(),
            ca: None,
            headers: Vec::new(),
            pass: vec![HeaderName::from_static("x-user")],
            cache: None,
            timeout: ServiceCheck::DEFAULT_TIMEOUT,
            on_failure: OnServiceFailure::Deny,
        };
        Alternative { service: Some(Arc::new(check)), ..alternative }
    }

    fn identity(claims: Option<Value>, tier: Option<&str>) -> Identity {
        let token = claims.map(|claims| match claims {
            Value::Object(claims) => Arc::new(Claims(claims)),
            _ => panic!("no object"),
        });
        let key = tier.and_then(|tier| ApiKey::new("id", Some(tier.into()), Arc::default(), []));
        Identity { token, key: key.map(Arc::new), ..Identity::default() }
    }

    #[test]
    fn all_conditions_of_an_alternative_must_hold() {
        let both =
            Requirement::new(vec![alternative(vec![condition("jwt:role", "admin"), condition("key:tier", "pro")])]);
        let admin = || Some(json!({ "role": "admin" }));
        assert_eq!(both.unmet(&identity(admin(), Some("pro"))), None);
        assert_eq!(both.unmet(&identity(admin(), None)), Some(UnmetRequirement::Missing));
        assert_eq!(both.unmet(&identity(None, Some("pro"))), Some(UnmetRequirement::Missing));
        let unmet = both.unmet(&identity(admin(), Some("free"))).expect("not allowed");
        assert_eq!(unmet.to_string(), "the API key is valid, but its `tier` does not allow this request");
        assert_eq!(unmet.fault(), IdentityFault::NotAllowed);
    }

    #[test]
    fn service_is_asked_unless_credentials_suffice() {
        let admins = with_service("http://a/", alternative(vec![condition("jwt:role", "admin")]));
        let all = with_service("http://b/", Alternative::default());
        let asked = |requirement: &Requirement, identity: Option<&Identity>| {
            requirement.service(identity).map(|service| service.upstream.to_string())
        };
        let (admin, partner) = (identity(Some(json!({ "role": "admin" })), None), identity(None, Some("pro")));
        let both = Requirement::new(vec![admins.clone(), all.clone()]);
        assert_eq!(asked(&both, Some(&admin)).as_deref(), Some("http://a/"));
        assert_eq!(asked(&both, Some(&partner)).as_deref(), Some("http://b/"));
        assert_eq!(asked(&both, None).as_deref(), Some("http://b/"));
        let keys = Requirement::new(vec![all, alternative(vec![condition("key:tier", "pro")])]);
        assert_eq!((asked(&keys, Some(&partner)), asked(&keys, None).as_deref()), (None, Some("http://b/")));
        // A request that passes with its key must not keep the field that the service sets for others.
        assert_eq!(keys.passed_fields().collect::<Vec<_>>(), ["x-user"]);
        let only = Requirement::new(vec![admins]);
        assert_eq!((asked(&only, None), asked(&only, Some(&partner))), (None, None));
        assert_eq!(only.unmet(&partner), Some(UnmetRequirement::Missing));
        assert_eq!(asked(&Requirement::default(), None), None);
    }

    #[test]
    fn one_alternative_suffices() {
        let alternatives =
            vec![alternative(vec![condition("jwt:role", "admin")]), alternative(vec![condition("key:tier", "pro")])];
        let any = Requirement::new(alternatives);
        let user = || Some(json!({ "role": "user" }));
        assert_eq!(any.unmet(&identity(user(), Some("pro"))), None);
        assert_eq!(any.unmet(&identity(None, None)), Some(UnmetRequirement::Missing));
        // The token is complete for an alternative, so the credentials are not missing.
        let unmet = any.unmet(&identity(user(), None)).expect("not allowed");
        assert_eq!(unmet.to_string(), "the token is valid, but its claim `role` does not allow this request");
        assert!(unmet.is_of_token());
        assert_eq!(Requirement::default().unmet(&Identity::default()), None);
        let kinds = Requirement::from_iter([IdentityKind::Token, IdentityKind::Key]);
        assert_eq!(kinds.unmet(&identity(user(), None)), None);
        assert_eq!(kinds.unmet(&identity(None, None)), Some(UnmetRequirement::Missing));
    }
}
