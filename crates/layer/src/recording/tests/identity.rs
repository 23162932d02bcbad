//! The rules read the hashes of verified credentials as they read the values.

use serde_json::json;

use super::*;
use crate::recording::identity::RecordedIdentity;
use tidegate_config::AnyIdentities;
use tidegate_rules::request::identity::{ApiKey, Claims, Identity, IdentityKinds};

const RULES: &str = "
identities: { jwt: { jwks: set.json, issuer: https://id.test/, audience: api }, keys: { header: X-Api-Key, file: keys } }
tiers: { free: { rate: 1, interval: 1h }, pro: { rate: 3, interval: 1h } }
routes:
  - name: staff
    match: { path: /a, identity: { jwt:role: [admin, s3cret], jwt:scope: read, jwt:plan: { not: [free] } } }
  - name: all
    match: { path: /** }
    limits:
      - { name: subject, mode: PER_CLIENT, client: ['jwt:sub', 'jwt:/org/id'], rate: 1, interval: 1m }
      - { name: tier, mode: PER_CLIENT, client: 'key:team', tier: { by: 'jwt:/realm/roles', default: free } }
      - { name: rate, mode: PER_CLIENT, client: 'key:id', rate: { by: 'key:rate', default: 5, max: 90 }, interval: 1m }
";

fn inputs() -> Inputs {
    let config = Config::parse_with(RULES, &AnyIdentities).unwrap_or_else(|problems| panic!("{problems}"));
    Inputs::new(&config.rules, &|text| text == SECRET)
}

fn identity(claims: Value, key: Option<[&str; 3]>) -> Identity {
    let Value::Object(claims) = claims else { panic!("no object") };
    let names = ["team".into(), "rate".into(), "phone".into()].into();
    let key = key.and_then(|[id, team, rate]| ApiKey::new(id, Some("pro".into()), names, [team, rate, "555"]));
    Identity {
        token: Some(Arc::new(Claims(claims))),
        key: key.map(Arc::new),
        verified: IdentityKinds { token: true, key: true, user: false },
        ..Identity::default()
    }
}

/// Returns the recorded credentials as JSON.
fn masked(identity: &Identity) -> Option<Value> {
    let masked = inputs().identity.mask(identity, &Key::from([1; 32]))?;
    Some(serde_json::to_value(masked).expect("JSON"))
}

#[test]
fn constants_tiers_and_rates_stay_readable() {
    let claims = json!({
        "sub": "ann", "role": ["admin", "ops"], "scope": "read write", "plan": 7, "mail": "ann@a.test",
        "org": { "id": 5, "name": "a" }, "realm": { "roles": ["x", "pro", ["free"], { "a": 1 }, null] },
    });
    let recorded = masked(&identity(claims, Some(["one", "blue", "60"]))).expect("credentials");
    let text = recorded.to_string();
    for value in ["ann", "ops", "write", "\"x\"", "one", "blue", "555", "mail", "phone", "name"] {
        assert!(!text.contains(value), "{value}: {text}");
    }
    let [jwt, key] = [&recorded["jwt"], &recorded["key"]];
    assert_eq!(
        (&jwt["role"][0], &key["rate"], &recorded["verified"]),
        (&json!("admin"), &json!("60"), &json!(["jwt", "keys"]))
    );
    assert!(jwt["scope"].as_str().is_some_and(|scope| scope.starts_with("read h")), "{jwt}");
    let roles = &jwt["/realm/roles"];
    assert_eq!([&roles[1], &roles[2], &roles[3], &roles[4]], [&json!("pro"), &json!([]), &json!({}), &json!(null)]);
    // The rules have no tier of keys, so that it is a hash.
    assert!(key["tier"].as_str().is_some_and(|tier| tier.starts_with('h')), "{key}");
}

#[test]
fn replayed_credentials_are_read_as_the_original_ones() {
    let config = Config::parse_with(RULES, &AnyIdentities).unwrap_or_else(|problems| panic!("{problems}"));
    let (inputs, rules) = (inputs(), &config.rules);
    let roles = [json!("admin"), json!(["ops", "admin"]), json!("ops"), json!([["admin"]]), json!(null), json!(true)];
    let plans = [json!("free"), json!("pro"), json!([]), json!(["a", {}])];
    let mut pairs = Vec::new();
    for (role, plan) in roles.iter().flat_map(|role| plans.iter().map(move |plan| (role, plan))) {
        for (subject, key) in [("ann", Some(["one", "blue", "60"])), ("ben", Some(["two", "blue", "x"])), ("ann", None)]
        {
            let claims = json!({ "sub": subject, "org": { "id": 1 }, "role": role, "plan": plan, "scope": "read",
                "realm": { "roles": [subject, "pro"] } });
            let original = identity(claims, key);
            let recorded = inputs.identity.mask(&original, &Key::from([1; 32])).expect("credentials");
            let line = serde_json::to_string(&recorded).expect("JSON");
            let read: RecordedIdentity = serde_json::from_str(&line).expect("credentials");
            pairs.push((original, read.into_identity()));
        }
    }
    let (mut of_original, mut of_replay) = (Vec::new(), Vec::new());
    for (original, replayed) in pairs {
        let decided = |identity: Identity, clients: &mut Vec<(String, ClientId)>| {
            let request = sent_request(&[], "/a");
            request.with_facts(rules, |facts| {
                let facts = Facts { identity: Some(Box::new(identity)), ..facts.clone() };
                let rate = |limit: &tidegate_rules::limits::rule::Limit| limit.limiter_for(&facts).quota.rate();
                let rates: Vec<_> = rules.limits().map(|(_, limit)| rate(limit)).collect();
                (decision(rules, &facts, clients), rates)
            })
        };
        assert_eq!(decided(original, &mut of_original), decided(replayed, &mut of_replay));
    }
}

#[test]
fn request_with_a_constant_of_a_file_is_dropped() {
    assert_eq!(masked(&identity(json!({ "sub": "ann", "role": ["ops", SECRET] }), None)), None);
    assert!(masked(&identity(json!({ "sub": SECRET }), None)).is_some());
}

#[test]
fn recording_lists_the_values_of_its_credentials() {
    let held = inputs().held(&[]);
    let mut names: Vec<_> = held.identity().map(|value| value.to_string()).collect();
    names.sort_unstable();
    let expected = [
        "jwt:/org/id",
        "jwt:/realm/roles",
        "jwt:plan",
        "jwt:role",
        "jwt:scope",
        "jwt:sub",
        "key:id",
        "key:rate",
        "key:team",
        "key:tier",
    ];
    assert_eq!(names, expected);
    assert_eq!(inputs().unheld(), ["values of conditions on `jwt:role`"]);
    let other =
        RULES.replace("'jwt:sub'", "'jwt:email'").replace("key:rate", "jwt:plan").replace("not: [free]", "not: [x]");
    let config = Config::parse_with(&other, &AnyIdentities).unwrap_or_else(|problems| panic!("{problems}"));
    let lacking = Inputs::new(&config.rules, &|_| false).lacking(&held);
    let expected = [
        "values of conditions on `jwt:role`",
        "the rates in `jwt:plan`",
        "values of conditions on `jwt:plan`",
        "`jwt:email`",
    ];
    let mut certain = lacking.certain.clone();
    certain.sort_unstable();
    let mut expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
    expected.sort_unstable();
    assert_eq!((certain, lacking.possible), (expected, Vec::new()));
}
