//! Tokens: signatures of all algorithms, and the attacks on them.

use serde_json::{Value, json};

use crate::support::issuer::{SigningKey, base64, claims, key_set, now};

use super::{jwt, key_set_file, start, with_token};

fn changed(name: &str, value: Value) -> Value {
    let mut claims = claims("ann");
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims("ann");
    claims.as_object_mut().expect("an object").remove(name);
    claims
}

#[tokio::test]
async fn tokens_of_all_algorithms_pass() {
    let (rsa, ec, ec384, ed) = (SigningKey::rsa(), SigningKey::ec(), SigningKey::ec384(), SigningKey::ed());
    let unknown = json!({ "kty": "EC", "crv": "P-521", "kid": "x", "x": "AA", "y": "AA" });
    let file = key_set_file("all", &key_set(&[unknown, rsa.jwk("r"), ec.jwk("e"), ec384.jwk("f"), ed.jwk("d")]));
    let gateway = start(&jwt(file.path()), "require: jwt");
    let by_rsa = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
        .map(|algorithm| rsa.token_with(&json!({ "alg": algorithm, "kid": "r" }), &claims("ann")));
    let others = [(&ec, "e"), (&ec384, "f"), (&ed, "d")].map(|(key, id)| key.token(id, &claims("ann")));
    for token in by_rsa.into_iter().chain(others) {
        let response = with_token(&gateway, &token).await;
        assert_eq!(response.status(), 200, "{}", response.text());
    }
    // The only key that allows the algorithm is used for a token without `kid`.
    let token = ec.token_with(&json!({ "alg": "ES256" }), &claims("ann"));
    assert_eq!(with_token(&gateway, &token).await.status(), 200);
    assert_eq!(gateway.counter("tidegate_identities_total{kind=\"jwt\",result=\"valid\"}").await, 10);
}

/// Each token is signed with a key of its set, and with an algorithm that the key does not allow.
#[tokio::test]
async fn algorithm_must_be_one_of_the_key() {
    let (rsa, ec, ec384) = (SigningKey::rsa(), SigningKey::ec(), SigningKey::ec384());
    let mut only_rs384 = rsa.jwk("r");
    only_rs384["alg"] = "RS384".into();
    let file = key_set_file("algorithms", &key_set(&[only_rs384, ec.jwk("e"), ec384.jwk("f")]));
    let gateway = start(&jwt(file.path()), "require: jwt");
    let token = |key: &SigningKey, algorithm: &str, id: &str| {
        key.token_with(&json!({ "alg": algorithm, "kid": id }), &claims("ann"))
    };
    assert_eq!(with_token(&gateway, &token(&rsa, "RS384", "r")).await.status(), 200);
    for (key, algorithm, id) in [
        (&rsa, "RS256", "r"),
        (&rsa, "PS384", "r"),
        (&ec384, "ES256", "f"),
        (&ec384, "ES384", "e"),
        (&ec, "ES384", "f"),
        (&ec, "ES384", "e"),
        (&rsa, "HS384", "r"),
    ] {
        assert_eq!(with_token(&gateway, &token(key, algorithm, id)).await.status(), 401, "{algorithm} with {id}");
    }
}

#[tokio::test]
async fn max_token_bounds_the_length() {
    let key = SigningKey::ec();
    let file = key_set_file("lengths", &key_set(&[key.jwk("e")]));
    let long = |bytes: usize| {
        let mut claims = claims("ann");
        claims["roles"] = "r".repeat(bytes).into();
        key.token("e", &claims)
    };
    let (medium, large) = (long(5_900), long(8_900));
    assert!((8_000..8_192).contains(&medium.len()) && (12_000..12_288).contains(&large.len()));
    let gateway = start(&jwt(file.path()), "require: jwt");
    let statuses = [with_token(&gateway, &medium).await.status(), with_token(&gateway, &large).await.status()];
    assert_eq!(statuses, [200, 401]);
    let identities = jwt(file.path()).replace("audience: api", "audience: api, max_token: 16KiB");
    let gateway = start(&identities, "require: jwt");
    assert_eq!(with_token(&gateway, &large).await.status(), 200);
    let gateway = start(&identities.replace("16KiB", "11KiB"), "require: jwt");
    let too_long = with_token(&gateway, &large).await;
    assert_eq!(too_long.status(), 401);
    assert!(too_long.text().contains("the token is too long"), "{}", too_long.text());
}

#[tokio::test]
async fn invalid_claims_get_401() {
    let key = SigningKey::ec();
    let file = key_set_file("claims", &key_set(&[key.jwk("e")]));
    let gateway = start(&jwt(file.path()), "require: jwt");
    for (claims, detail) in [
        (changed("exp", (now() - 31).into()), "the token has expired"),
        (without("exp"), "the claim `exp` of the token is missing, or `exp` or `nbf` is not a number"),
        (changed("exp", "soon".into()), "the claim `exp` of the token is missing, or `exp` or `nbf` is not a number"),
        (changed("nbf", (now() + 60).into()), "the token is not valid yet"),
        (changed("iss", "https://evil.test/".into()), "the token is from another issuer"),
        (without("iss"), "the token is from another issuer"),
        (changed("aud", "other".into()), "the token is for another audience"),
        (changed("aud", json!(["x", "y"])), "the token is for another audience"),
        (without("aud"), "the token is for another audience"),
    ] {
        let response = with_token(&gateway, &key.token("e", &claims)).await;
        assert_eq!(response.status(), 401, "{claims}");
        let challenge = format!("Bearer realm=\"api\", error=\"invalid_token\", error_description=\"{detail}\"");
        assert_eq!(response.field("www-authenticate"), Some(challenge));
    }
    let within_leeway = [
        changed("exp", (now() - 20).into()),
        changed("nbf", (now() + 20).into()),
        changed("aud", json!(["x", "api"])),
        changed("exp", json!(now() as f64 + 0.5)),
    ];
    for claims in within_leeway {
        assert_eq!(with_token(&gateway, &key.token("e", &claims)).await.status(), 200, "{claims}");
    }
}

/// Each token is signed, but not with a key and an algorithm that belong together.
/// While an issuer replaces its key, its set has two keys of the same type.
#[tokio::test]
async fn tokens_without_a_key_id_match_any_key() {
    let (old, new, other) = (SigningKey::ec(), SigningKey::ec(), SigningKey::ec());
    let without_id = |key: &SigningKey| {
        let mut jwk = key.jwk("");
        jwk.as_object_mut().expect("a map").remove("kid");
        jwk
    };
    let file = key_set_file("no-id", &key_set(&[without_id(&old), without_id(&new)]));
    let gateway = start(&jwt(file.path()), "require: jwt");
    for (key, status) in [(&old, 200), (&new, 200), (&other, 401)] {
        let token = key.token_with(&json!({ "alg": "ES256" }), &claims("ann"));
        assert_eq!(with_token(&gateway, &token).await.status(), status);
    }
}

#[tokio::test]
async fn forged_tokens_get_401() {
    let (rsa, ec, other) = (SigningKey::rsa(), SigningKey::ec(), SigningKey::ec());
    let mut ps_only = rsa.jwk("p");
    ps_only["alg"] = "PS256".into();
    let mut encryption = other.jwk("enc");
    encryption["use"] = "enc".into();
    let for_operations = |id, operations| {
        let mut key = other.jwk(id);
        key.as_object_mut().unwrap().remove("use");
        key["key_ops"] = operations;
        key
    };
    let mut verifying = ec.jwk("e");
    verifying["key_ops"] = json!(["verify"]);
    let (signing, empty) = (for_operations("sign", json!(["sign", "wrapKey"])), for_operations("none", json!([])));
    let mut both = for_operations("both", json!(["encrypt"]));
    both["use"] = "sig".into();
    let file = key_set_file("forged", &key_set(&[rsa.jwk("r"), ps_only, verifying, encryption, signing, empty, both]));
    let gateway = start(&jwt(file.path()), "require: jwt");
    let valid = ec.token("e", &claims("ann"));
    let (message, signature) = valid.rsplit_once('.').expect("a token");
    let payload = message.split_once('.').expect("a token").1;
    let unsigned = |header: &Value| format!("{}.{payload}", base64(header.to_string().as_bytes()));
    let swapped = format!(
        "{}.{}.{signature}",
        message.split_once('.').expect("a token").0,
        base64(claims("eve").to_string().as_bytes())
    );
    for (token, detail) in [
        (format!("{}.", unsigned(&json!({ "alg": "none" }))), "malformed"),
        (format!("{}.{signature}", unsigned(&json!({ "alg": "HS256", "kid": "e" }))), "algorithm"),
        (format!("{}.{signature}", unsigned(&json!({ "alg": "RS256", "kid": "e" }))), "algorithm"),
        (rsa.token("p", &claims("ann")), "algorithm"),
        (rsa.token_with(&json!({ "alg": "ES384", "kid": "r" }), &claims("ann")), "algorithm"),
        (other.token("e", &claims("ann")), "signature"),
        (other.token("enc", &claims("ann")), "key of the token is not known"),
        (other.token("sign", &claims("ann")), "key of the token is not known"),
        (other.token("none", &claims("ann")), "key of the token is not known"),
        (other.token("both", &claims("ann")), "key of the token is not known"),
        (ec.token("unknown", &claims("ann")), "key of the token is not known"),
        (ec.token_with(&json!({ "alg": "ES256", "kid": "e", "crit": ["b64"] }), &claims("ann")), "malformed"),
        // A key in the token itself is not trusted.
        (other.token_with(&json!({ "alg": "ES256", "jwk": other.jwk("e") }), &claims("eve")), "signature"),
        (ec.token_with(&json!({ "alg": "ES256", "kid": 1 }), &claims("ann")), "malformed"),
        (format!("{valid}.{signature}"), "malformed"),
        (swapped, "signature"),
        (format!("{message}.AAAA"), "signature"),
        (message.to_owned(), "malformed"),
        ("a.b.c".to_owned(), "malformed"),
        (ec.token("e", &changed("x", "y".repeat(8192).into())), "too long"),
    ] {
        let response = with_token(&gateway, &token).await;
        assert_eq!(response.status(), 401, "{token}");
        assert!(response.text().contains(detail), "{detail}: {token}: {}", response.text());
    }
    assert_eq!(with_token(&gateway, &valid).await.status(), 200);
}

#[tokio::test]
async fn limits_count_by_claims() {
    let key = SigningKey::ed();
    let file = key_set_file("limits", &key_set(&[key.jwk("d")]));
    let limits = "limits: [{ name: sub, mode: PER_CLIENT, client: jwt:sub, rate: 2, interval: 1h,
                             on_missing_client: ip },
                           { name: plan, mode: PER_CLIENT, client: [jwt:plan, ip], rate: 3, interval: 1h,
                             on_missing_client: skip }]";
    let gateway = start(&jwt(file.path()), limits);
    let token = |subject: &str, plan: Value| {
        let mut claims = claims(subject);
        claims["plan"] = plan;
        key.token("d", &claims)
    };
    let mut statuses = Vec::new();
    for (subject, plan) in [
        ("ann", json!(7)),
        ("ann", json!(7)),
        ("ann", json!("x")),
        ("ben", json!(7)),
        ("ben", json!("7")),
        ("ben", json!([7])),
    ] {
        statuses.push(with_token(&gateway, &token(subject, plan)).await.status());
    }
    // A number and its text are the same claim value; a list is no value.
    assert_eq!(statuses, [200, 200, 429, 200, 429, 200]);
    // An invalid token is charged to the address, which has two permits.
    for expected in [401, 401, 429] {
        assert_eq!(with_token(&gateway, "a.b.c").await.status(), expected);
    }
}

/// The claim is a part of the rule file, so only clients with a verified token learn its name.
#[tokio::test]
async fn missing_claim_of_a_verified_token_is_named() {
    let key = SigningKey::ed();
    let file = key_set_file("missing", &key_set(&[key.jwk("d")]));
    let limits = "limits: [{ name: team, mode: PER_CLIENT, client: [ip, jwt:org], rate: 9, interval: 1h }]";
    let gateway = start(&jwt(file.path()), limits);
    let named = with_token(&gateway, &key.token("d", &claims("ann"))).await;
    let detail = "the token has no usable claim `org`, which identifies clients of `team`";
    assert!(named.status() == 400 && named.text().contains(detail), "{}", named.text());
    let unnamed = gateway.get("/", "").await;
    let detail = "the value that identifies clients of `team` is missing";
    assert!(unnamed.status() == 400 && unnamed.text().contains(detail), "{}", unnamed.text());
    assert!(!unnamed.text().contains("org"), "{}", unnamed.text());
}

#[tokio::test]
async fn either_of_two_kinds_of_credentials_suffices() {
    let key = SigningKey::ec();
    let set = key_set_file("either", &key_set(&[key.jwk("e")]));
    let keys = super::key_file("either", "k: { id: one }");
    let identities = format!("{}, keys: {{ header: X-Api-Key, file: {} }}", jwt(set.path()), keys.path());
    let gateway = start(&identities, "require: [jwt, keys]");
    let token = format!("Authorization: Bearer {}\r\n", key.token("e", &claims("ann")));
    assert_eq!(gateway.get("/", &token).await.status(), 200);
    assert_eq!(gateway.get("/", "X-Api-Key: k\r\n").await.status(), 200);
    assert_eq!(gateway.get("/", &format!("{token}X-Api-Key: wrong\r\n")).await.status(), 401);
    let missing = gateway.get("/", "").await;
    let challenges: Vec<_> = missing
        .fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"))
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!((missing.status(), challenges), (401, vec!["Bearer realm=\"api\"", "ApiKey realm=\"api\""]));
}
