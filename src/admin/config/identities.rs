//! The credentials that the rules accept and that routes require.

use http::HeaderName;
use serde_json::{Map, Value, json};

use super::{extend, show_client};
use crate::credentials::Verifiers;
use tidegate_config::Config;
use tidegate_rules::client::ClientSource;
use tidegate_rules::request::identity::{
    Alternative, IdentityCondition, IdentityKind, IdentityKinds, IdentityTest, Requirement, ServiceCheck,
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

fn show_alternative(Alternative { kinds, conditions, service }: &Alternative) -> Value {
    let IdentityKinds { token, key, user } = *kinds;
    let kinds = [(token, IdentityKind::Token), (key, IdentityKind::Key), (user, IdentityKind::User)];
    let kinds: Vec<_> = kinds.into_iter().filter_map(|(is_required, kind)| is_required.then_some(kind)).collect();
    match (&*kinds, &**conditions, service) {
        ([only], [], None) => only.name().into(),
        _ => {
            let of_kind = |kind: &IdentityKind| {
                let of_kind =
                    |condition: &&IdentityCondition| condition.value.kinds() == IdentityKinds::from_iter([*kind]);
                (kind.name().to_owned(), show_conditions(conditions.iter().filter(of_kind)))
            };
            let credentials = kinds.iter().map(of_kind).collect::<Map<_, _>>().into();
            match service {
                Some(service) => extend(credentials, show_service(service)),
                None => credentials,
            }
        }
    }
}

fn show_service(check: &ServiceCheck) -> Value {
    let ServiceCheck { url, upstream: _, ca, headers, pass, cache, timeout, on_failure } = check;
    json!({
        "service": url.to_string(),
        "ca": ca,
        "headers": show_names(headers),
        "pass": show_names(pass),
        "cache_ms": cache.map(|life| life.as_millis()),
        "timeout_ms": timeout.as_millis(),
        "on_failure": on_failure,
    })
}

fn show_names(names: &[HeaderName]) -> Vec<&str> {
    names.iter().map(HeaderName::as_str).collect()
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
