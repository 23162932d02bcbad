//! The credentials that a route requires.

use std::fmt;

use super::{Identity, IdentityCondition, IdentityFault, IdentityKind, IdentityKinds, IdentityValue};

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

    /// Returns why verified credentials do not meet the requirement. If they are complete for an alternative, they are not
    /// allowed; otherwise they are missing.
    pub fn unmet(&self, identity: &Identity) -> Option<UnmetRequirement<'_>> {
        let mut fault = None;
        for Alternative { kinds, conditions } in &self.0 {
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

/// Each kind suffices.
impl FromIterator<IdentityKind> for Requirement {
    fn from_iter<I: IntoIterator<Item = IdentityKind>>(kinds: I) -> Self {
        let alternative = |kind| Alternative { kinds: IdentityKinds::from_iter([kind]), conditions: Vec::new() };
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

    use super::super::{ApiKey, Claims, IdentityTest};
    use super::*;

    fn condition(value: &str, one_of: &str) -> IdentityCondition {
        let value = IdentityValue::parse(value).expect(value);
        IdentityCondition { value, test: IdentityTest::OneOf(vec![one_of.into()]) }
    }

    fn alternative(conditions: Vec<IdentityCondition>) -> Alternative {
        let kinds = conditions.iter().map(|condition| condition.value.kinds());
        Alternative { kinds: kinds.fold(IdentityKinds::default(), IdentityKinds::union), conditions }
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
