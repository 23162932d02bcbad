//! Conditions on values of verified credentials.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::claims::scalar;
use super::{Claims, Identity, IdentityValue};

/// A condition on a value of verified credentials. Without valid credentials of its kind, a request does not meet it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityCondition {
    /// The value.
    pub value: IdentityValue,
    /// The requirement.
    pub test: IdentityTest,
}

/// The requirement of a condition. Texts are compared letter by letter; numbers and booleans as their JSON texts. An array
/// has several values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityTest {
    /// The value exists. `null` is no value.
    Present,
    /// The value does not exist.
    Absent,
    /// One of the values is one of these.
    OneOf(Vec<Box<str>>),
    /// The value exists, and no value is one of these. An array with another array or an object does not pass, since
    /// these could contain an excluded value.
    NoneOf(Vec<Box<str>>),
}

/// Returns `true` if the text of this claim is a list with spaces between the values.
pub fn is_list(claim: &str) -> bool {
    LISTS.contains(&claim)
}

/// The claims whose texts are lists with spaces between the values (RFC 8693 section 4.2; `scp` of some issuers).
const LISTS: [&str; 2] = ["scope", "scp"];

// === impl IdentityCondition ===

impl IdentityCondition {
    /// Returns `true` if the credentials of a request meet the condition.
    pub fn is_met(&self, identity: &Identity) -> bool {
        match &self.value {
            IdentityValue::Claim(claim) => {
                identity.token.as_deref().is_some_and(|token| self.test.is_met_by_claim(token, claim))
            }
            IdentityValue::KeyId | IdentityValue::KeyTier | IdentityValue::KeyAttribute(_) => {
                identity.key.is_some() && self.is_met_by_text(identity)
            }
            IdentityValue::User => identity.user.is_some() && self.is_met_by_text(identity),
            IdentityValue::Header(_) | IdentityValue::Extension(_) => false, // these are not verified
        }
    }

    fn is_met_by_text(&self, identity: &Identity) -> bool {
        match self.value.read(Some(identity), None, None) {
            Some(text) => self.test.is_met_by(std::iter::once(Some(text))),
            None => self.test == IdentityTest::Absent,
        }
    }
}

impl fmt::Display for IdentityCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.value;
        match &self.test {
            IdentityTest::Present => write!(f, "{value} present"),
            IdentityTest::Absent => write!(f, "{value} absent"),
            IdentityTest::OneOf(list) => write!(f, "{value} in [{}]", list.join(", ")),
            IdentityTest::NoneOf(list) => write!(f, "{value} not in [{}]", list.join(", ")),
        }
    }
}

// === impl IdentityTest ===

impl IdentityTest {
    /// Returns `true` if this claim of a verified token passes the test.
    pub fn is_met_by_claim(&self, token: &Claims, claim: &str) -> bool {
        match token.find(claim) {
            None | Some(Value::Null) => *self == Self::Absent,
            Some(Value::Array(items)) => self.is_met_by(items.iter().map(scalar)),
            Some(Value::String(list)) if is_list(claim) => {
                let texts = list.split(' ').filter(|text| !text.is_empty());
                self.is_met_by(texts.map(|text| Some(Cow::Borrowed(text))))
            }
            Some(value) => self.is_met_by(std::iter::once(scalar(value))),
        }
    }

    /// Tests the values of a claim that exists. `None` stands for an array or an object.
    fn is_met_by<'v>(&self, mut values: impl Iterator<Item = Option<Cow<'v, str>>>) -> bool {
        let contains = |list: &[Box<str>], value: &str| list.iter().any(|other| **other == *value);
        match self {
            Self::Present => true,
            Self::Absent => false,
            Self::OneOf(list) => values.flatten().any(|value| contains(list, &value)),
            Self::NoneOf(list) => values.all(|value| value.is_some_and(|value| !contains(list, &value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(list: &[&str]) -> Vec<Box<str>> {
        list.iter().map(|text| Box::from(*text)).collect()
    }

    fn is_met(claims: Value, claim: &str, test: &IdentityTest) -> bool {
        let Value::Object(claims) = claims else { panic!("no object") };
        test.is_met_by_claim(&Claims(claims), claim)
    }

    #[test]
    fn values_of_all_types_are_compared_as_texts() {
        let test = |value: Value, list: &[&str]| is_met(json!({ "c": value }), "c", &IdentityTest::OneOf(texts(list)));
        for (value, list) in [
            (json!("admin"), &["ops", "admin"][..]),
            (json!(["user", "admin"]), &["admin"]),
            (json!(3), &["3"]),
            (json!(true), &["true"]),
            (json!([["admin"], 3, "x"]), &["3"]),
        ] {
            assert!(test(value.clone(), list), "{value} {list:?}");
        }
        for (value, list) in [
            (json!("Admin"), &["admin"][..]),
            (json!(" admin"), &["admin"]),
            (json!("admin ops"), &["admin"]),
            (json!(["Admin", "adminx"]), &["admin"]),
            (json!([]), &["admin"]),
            (json!([["admin"]]), &["admin"]),
            (json!({ "admin": true }), &["admin"]),
            (json!({ "0": "admin" }), &["admin"]),
            (json!(null), &["null"]),
            (json!(1.5), &["1"]),
        ] {
            assert!(!test(value.clone(), list), "{value} {list:?}");
        }
    }

    /// An excluded value must not hide: in an array, or because the claim is missing.
    #[test]
    fn exclusion_needs_a_value_that_is_readable() {
        let test = |claims: Value| is_met(claims, "plan", &IdentityTest::NoneOf(texts(&["free", "trial"])));
        for claims in [json!({ "plan": "pro" }), json!({ "plan": ["pro", 7] }), json!({ "plan": [] })] {
            assert!(test(claims.clone()), "{claims}");
        }
        for claims in [
            json!({ "plan": "free" }),
            json!({ "plan": ["pro", "trial"] }),
            json!({ "plan": [["free"]] }),
            json!({ "plan": { "name": "free" } }),
            json!({ "plan": null }),
            json!({}),
        ] {
            assert!(!test(claims.clone()), "{claims}");
        }
    }

    #[test]
    fn scopes_are_separated_by_spaces() {
        let scope = |test: IdentityTest| is_met(json!({ "scope": "read  write" }), "scope", &test);
        assert!(scope(IdentityTest::OneOf(texts(&["write"]))) && !scope(IdentityTest::OneOf(texts(&["read write"]))));
        assert!(!scope(IdentityTest::NoneOf(texts(&["read"]))) && scope(IdentityTest::NoneOf(texts(&["rea"]))));
        // Only these claims are lists.
        let other = json!({ "a": { "scope": "read write" } });
        assert!(!is_met(other, "/a/scope", &IdentityTest::OneOf(texts(&["write"]))));
    }

    #[test]
    fn null_is_absent() {
        for (claims, is_present) in [(json!({ "c": null }), false), (json!({}), false), (json!({ "c": {} }), true)] {
            assert_eq!(is_met(claims.clone(), "c", &IdentityTest::Present), is_present, "{claims}");
            assert_eq!(is_met(claims.clone(), "c", &IdentityTest::Absent), !is_present, "{claims}");
        }
    }

    /// Otherwise an anonymous request would meet `absent` and `not`.
    #[test]
    fn request_without_credentials_meets_no_condition() {
        let values = ["jwt:c", "key:id", "key:tier", "key:team", "basic:user"]
            .map(|text| IdentityValue::parse(text).expect(text));
        for value in values {
            for test in [IdentityTest::Present, IdentityTest::Absent, IdentityTest::NoneOf(texts(&["x"]))] {
                let condition = IdentityCondition { value: value.clone(), test };
                assert!(!condition.is_met(&Identity::default()), "{condition}");
            }
        }
    }
}
