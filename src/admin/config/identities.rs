//! The credentials that the rules accept and that routes require.

use serde_json::{Map, Value, json};

use super::show_client;
use crate::credentials::Verifiers;
use tidegate_config::Config;
use tidegate_rules::client::ClientSource;
use tidegate_rules::request::identity::{
    Alternative, IdentityCondition, IdentityKind, IdentityKinds, IdentityTest, Requirement,
};
use tidegate_rules::settings::identities::TokenSettings;

/// Returns `identities`, without keys and passwords.
pub(super) fn show(Config { identities, verifier, rules, .. }: &Config) -> Value {
    let verifiers = Verifiers::of(verifier);
    let keys = verifiers.keys.as_ref().map(|keys| {
        json!({ "file": keys.path(), "from": rules.credentials.key.as_ref().map(show_client), "count": keys.len() })
    });
    let basic = verifiers.users.as_ref().map(
        |users| json!({ "file": users.path(), "realm": rules.credentials.realm.as_deref(), "count": users.len() }),
    );
    let issuer = |tokens| show_tokens(tokens, rules.credentials.token.as_ref());
    let jwt = match &*identities.tokens {
        [] => Value::Null,
        [only] if only.name.is_none() => issuer(only),
        all => all.iter().map(issuer).collect(),
    };
    json!({ "keys": keys, "jwt": jwt, "basic": basic })
}

fn show_tokens(tokens: &TokenSettings, from: Option<&ClientSource>) -> Value {
    let TokenSettings { name, jwks, ca, issuer, audiences, claims, max_token } = tokens;
    json!({
        "name": name,
        "jwks": jwks.to_string(),
        "ca": ca,
        "issuer": issuer,
        "audience": audiences,
        "claims": show_conditions(claims.iter()),
        "from": from.map(show_client),
        "max_token": max_token,
    })
}

/// Returns `require` in the form of the rule file: words for kinds without conditions.
pub(super) fn show_required(requirement: &Requirement) -> Vec<Value> {
    requirement.alternatives().iter().map(show_alternative).collect()
}

fn show_alternative(Alternative { kinds, conditions }: &Alternative) -> Value {
    let IdentityKinds { token, key, user } = *kinds;
    let kinds = [(token, IdentityKind::Token), (key, IdentityKind::Key), (user, IdentityKind::User)];
    let kinds: Vec<_> = kinds.into_iter().filter_map(|(is_required, kind)| is_required.then_some(kind)).collect();
    match (&*kinds, &**conditions) {
        ([only], []) => only.name().into(),
        _ => {
            let of_kind = |kind: &IdentityKind| {
                let of_kind =
                    |condition: &&IdentityCondition| condition.value.kinds() == IdentityKinds::from_iter([*kind]);
                (kind.name().to_owned(), show_conditions(conditions.iter().filter(of_kind)))
            };
            kinds.iter().map(of_kind).collect::<Map<_, _>>().into()
        }
    }
}

fn show_conditions<'c>(conditions: impl Iterator<Item = &'c IdentityCondition>) -> Value {
    let condition = |condition: &IdentityCondition| {
        let (_, name) = condition.value.source_and_name();
        let test = match &condition.test {
            IdentityTest::Present => json!("present"),
            IdentityTest::Absent => json!("absent"),
            IdentityTest::OneOf(values) => json!(values),
            IdentityTest::NoneOf(values) => json!({ "not": values }),
        };
        (name.to_owned(), test)
    };
    conditions.map(condition).collect::<Map<_, _>>().into()
}
