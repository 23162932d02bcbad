//! Conditions on verified credentials: `require` and `identity` of a `match`.

use serde_json::{Value, json};

use crate::support::gateway::TestGateway;
use crate::support::issuer::{SigningKey, claims, key_set};
use crate::support::process::{RuleFile, output};
use crate::support::wire::raw::Message;

use super::{jwt, key_file, key_set_file, rules, start, with_token};

/// Claims with further members.
fn claims_with(members: Value) -> Value {
    let mut claims = claims("ann");
    let (Some(all), Value::Object(members)) = (claims.as_object_mut(), members) else { panic!("no object") };
    all.extend(members);
    claims
}

/// Returns the status and the detail of the problem.
fn detail(response: &Message) -> (u16, String) {
    let problem: Value = serde_json::from_str(&response.text()).unwrap_or_default();
    (response.status(), problem["detail"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn valid_token_without_the_role_gets_403() {
    let key = SigningKey::ec();
    let file = key_set_file("roles", &key_set(&[key.jwk("e")]));
    let require = "require: { jwt: { role: [admin, ops], plan: { not: free } } }";
    let gateway = start(&jwt(file.path()), require);
    for (members, expected) in [
        (json!({ "role": "admin", "plan": "pro" }), None),
        (json!({ "role": ["user", "ops"], "plan": ["pro"] }), None),
        (json!({ "role": "user", "plan": "pro" }), Some("role")),
        (json!({ "plan": "pro" }), Some("role")),
        (json!({ "role": "Admin", "plan": "pro" }), Some("role")),
        (json!({ "role": "admin" }), Some("plan")),
        (json!({ "role": "admin", "plan": "free" }), Some("plan")),
        (json!({ "role": "admin", "plan": [["free"]] }), Some("plan")),
    ] {
        let response = with_token(&gateway, &key.token("e", &claims_with(members.clone()))).await;
        let Some(claim) = expected else {
            assert_eq!(response.status(), 200, "{members}");
            continue;
        };
        let text = format!("the token is valid, but its claim `{claim}` does not allow this request");
        assert_eq!(detail(&response), (403, text), "{members}");
        let challenge = "Bearer realm=\"api\", error=\"insufficient_scope\"";
        assert_eq!(response.field("www-authenticate").as_deref(), Some(challenge));
    }
    // Missing and invalid tokens stay 401, also with the right claims.
    let forged = SigningKey::ec().token("e", &claims_with(json!({ "role": "admin", "plan": "pro" })));
    assert_eq!(with_token(&gateway, &forged).await.status(), 401);
    assert_eq!(detail(&gateway.get("/", "").await), (401, "credentials are missing".to_owned()));
    let counter = |result: &str| format!("tidegate_identities_total{{kind=\"jwt\",result=\"{result}\"}}");
    let (valid, not_allowed) =
        (gateway.counter(&counter("valid")).await, gateway.counter(&counter("not_allowed")).await);
    assert_eq!((valid, not_allowed), (2, 6));
}

#[tokio::test]
async fn nested_claims_are_read_by_pointers() {
    let key = SigningKey::ed();
    let file = key_set_file("nested", &key_set(&[key.jwk("d")]));
    let route = "require: { jwt: { /realm_access/roles: admin } },
                 request_headers: { set: { X-Team: '{jwt:/org/team}' } },
                 limits: [{ name: team, mode: PER_CLIENT, client: 'jwt:/org/team', rate: 1, interval: 1h }]";
    let gateway = start(&jwt(file.path()), route);
    let token = |roles: Value, team: &str| {
        key.token("d", &claims_with(json!({ "realm_access": { "roles": roles }, "org": { "team": team } })))
    };
    let mut statuses = Vec::new();
    for (roles, team) in [
        (json!(["user", "admin"]), "a"),
        (json!(["user", "admin"]), "a"),
        (json!("admin"), "b"),
        (json!(["user"]), "c"),
        (json!({ "0": "admin" }), "c"),
    ] {
        statuses.push(with_token(&gateway, &token(roles, team)).await.status());
    }
    assert_eq!(statuses, [200, 429, 200, 403, 403]);
    let echoed = with_token(&gateway, &token(json!(["admin"]), "d")).await.text();
    assert!(echoed.contains("\"x-team\": \"d\""), "{echoed}");
}

#[tokio::test]
async fn tier_is_an_item_of_an_array() {
    let key = SigningKey::ed();
    let file = key_set_file("tier-items", &key_set(&[key.jwk("d")]));
    let limit =
        "{ name: plan, mode: PER_CLIENT, client: jwt:sub, tier: { by: jwt:/realm_access/roles, default: free } }";
    let tiers = "tiers: { free: { rate: 1, interval: 1h }, pro: { rate: 2, interval: 1h } }\n";
    let text = format!("{tiers}{}", rules(&jwt(file.path()), &format!("limits: [{limit}]")));
    let gateway = TestGateway::start(&text);
    for (subject, roles, granted) in [
        ("ann", json!(["user", "pro", "free"]), 2),
        ("ben", json!("pro"), 2),
        ("eve", json!(["user", ["pro"]]), 1),
        ("joe", json!({ "pro": true }), 1),
    ] {
        let mut claims = claims(subject);
        claims["realm_access"] = json!({ "roles": roles });
        let token = key.token("d", &claims);
        for number in 0..3 {
            let expected = if number < granted { 200 } else { 429 };
            assert_eq!(with_token(&gateway, &token).await.status(), expected, "{roles} {number}");
        }
    }
}

/// A client that is not allowed must not use up the permits of clients that are.
#[tokio::test]
async fn rejected_requests_are_counted_by_address_only() {
    let keys = key_file("allowed", "k-pro: { id: one, tier: partner }\nk-free: { id: two, tier: free }\n");
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", keys.path());
    let route = "require: { keys: { tier: partner } },
                 limits: [{ name: all, mode: OVERALL, rate: 1, interval: 1h },
                          { name: ip, mode: PER_CLIENT, client: ip, rate: 3, interval: 1h }]";
    let gateway = start(&identities, route);
    let mut answers = Vec::new();
    for key in ["k-free", "k-free", "k-pro", "k-free"] {
        answers.push(detail(&gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await));
    }
    let not_allowed = || (403, "the API key is valid, but its `tier` does not allow this request".to_owned());
    assert_eq!((&answers[0], &answers[1]), (&not_allowed(), &not_allowed()));
    assert_eq!((answers[2].0, answers[3].0), (200, 429));
}

/// Routes for employees, for partners, and for all others, who need no credentials.
const MATCHED: &str = "
  - { name: staff, match: { path: /**, identity: { jwt:role: admin } }, require: jwt, upstream: echo, response_headers: { set: { X-Route: '{route}' } } }
  - { name: partner, match: { path: /**, identity: { key:tier: partner } }, upstream: echo, response_headers: { set: { X-Route: '{route}' } } }
  - { name: private, match: { path: /private }, require: jwt, upstream: echo, response_headers: { set: { X-Route: '{route}' } } }
  - { name: open, match: { path: /** }, upstream: echo, response_headers: { set: { X-Route: '{route}' } } }
";

fn matched(identities: &str) -> String {
    format!(
        "store: memory\nidentities: {{ {identities} }}\nupstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}\nroutes:{MATCHED}"
    )
}

#[tokio::test]
async fn credentials_choose_the_route() {
    let key = SigningKey::ec();
    let set = key_set_file("matched", &key_set(&[key.jwk("e")]));
    let keys = key_file("matched", "k-pro: { id: one, tier: partner }\nk-free: { id: two, tier: free }\n");
    let identities = format!("{}, keys: {{ header: X-Api-Key, file: {} }}", jwt(set.path()), keys.path());
    let gateway = TestGateway::start(&matched(&identities));
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let admin = bearer(&key.token("e", &claims_with(json!({ "role": ["user", "admin"] }))));
    let user = bearer(&key.token("e", &claims("ann")));
    let forged = bearer(&SigningKey::ec().token("e", &claims_with(json!({ "role": "admin" }))));
    let expired = bearer(&key.token("e", &claims_with(json!({ "role": "admin", "exp": 1 }))));
    for (path, fields, status, route) in [
        ("/", admin.clone(), 200, "staff"),
        ("/private", admin.clone(), 200, "staff"),
        ("/", format!("{admin}X-Api-Key: k-pro\r\n"), 200, "staff"),
        ("/", format!("{user}X-Api-Key: k-pro\r\n"), 200, "partner"),
        ("/", "X-Api-Key: k-pro\r\n".to_owned(), 200, "partner"),
        ("/", "X-Api-Key: k-free\r\n".to_owned(), 200, "open"),
        ("/", user.clone(), 200, "open"),
        ("/private", user, 200, "private"),
        ("/", String::new(), 200, "open"),
        ("/private", String::new(), 401, "private"),
        // Invalid credentials select no route, and never reach one that requires valid ones.
        ("/", forged.clone(), 200, "open"),
        ("/private", forged, 401, "private"),
        ("/", expired.clone(), 200, "open"),
        ("/private", expired, 401, "private"),
        ("/", "X-Api-Key: unknown\r\n".to_owned(), 200, "open"),
    ] {
        let response = gateway.get(path, &fields).await;
        assert_eq!((response.status(), response.field("x-route").as_deref()), (status, Some(route)), "{path} {fields}");
    }
    // A token is verified once, although its condition and its route read it.
    let counter = "tidegate_identities_total{kind=\"jwt\",result=\"valid\"}";
    let before = gateway.counter(counter).await;
    gateway.get("/", &admin).await;
    assert_eq!(gateway.counter(counter).await, before + 1);
}

/// Browsers send preflights without credentials.
#[tokio::test]
async fn preflight_needs_no_credentials() {
    let key = SigningKey::ec();
    let set = key_set_file("preflight", &key_set(&[key.jwk("e")]));
    let cors = "cors: { origins: [https://app.test] }, upstream: echo";
    let rules = matched(&jwt(set.path())).split("routes:").next().expect("a start").to_owned()
        + &format!(
            "routes:\n  - {{ name: staff, match: {{ identity: {{ jwt:role: admin }} }}, require: jwt, {cors} }}\n  - {{ name: rest, match: {{}}, require: jwt, {cors} }}\n"
        );
    let gateway = TestGateway::start(&rules);
    let fields = "Host: a\r\nOrigin: https://app.test\r\nAccess-Control-Request-Method: GET\r\n";
    let mut client = gateway.client().await;
    client.send(&format!("OPTIONS / HTTP/1.1\r\n{fields}\r\n")).await;
    assert_eq!(client.response(true).await.status(), 204);
}

/// `explain` and `authorize` follow the same order as requests.
#[tokio::test]
async fn explain_shows_the_condition_that_is_not_met() {
    let key = SigningKey::ec();
    let set = key_set_file("explained", &key_set(&[key.jwk("e")]));
    let identities = jwt(set.path());
    let text = format!(
        "listen: 127.0.0.1:0\n{}",
        matched(&identities).replace("require: jwt, upstream", "require: { jwt: { plan: { not: free } } }, upstream")
    );
    let text = text.replace("identity: { key:tier: partner }", "identity: { jwt:team: present }");
    let file = RuleFile::new("explain-identity", &text);
    let explain = |members: Value| {
        let token = key.token("e", &claims_with(members));
        let output = output(&[
            "explain",
            "-c",
            file.path(),
            "GET",
            "http://a.test/",
            "-H",
            &format!("Authorization: Bearer {token}"),
        ]);
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    };
    let not_allowed = explain(json!({ "role": ["user", "admin"], "plan": "free" }));
    for line in [
        "route `staff`, to upstream `echo`",
        "  identity jwt:role in [admin] matches",
        "  a valid token",
        "  jwt:plan is `free`",
        "  jwt:role is `[\"user\",\"admin\"]`",
        "answered with 403: the token is valid, but its claim `plan` does not allow this request",
    ] {
        assert!(not_allowed.lines().any(|other| other == line), "{line}\n{not_allowed}");
    }
    let other = explain(json!({ "role": "user" }));
    for line in [
        "route `open`, to upstream `echo`",
        "  `staff`: identity jwt:role in [admin] does not match",
        "  `partner`: identity jwt:team present does not match",
    ] {
        assert!(other.lines().any(|one| one == line), "{line}\n{other}");
    }
}

#[tokio::test]
async fn original_request_of_a_proxy_is_matched_by_its_credentials() {
    let key = SigningKey::ec();
    let set = key_set_file("original", &key_set(&[key.jwk("e")]));
    let text = matched(&jwt(set.path())).replace("identity: { key:tier: partner }", "identity: { jwt:team: present }");
    let text = text.replace(
        "routes:",
        "clients: { trusted_proxies: [127.0.0.1] }\nroutes:\n  - { name: ask, match: { path: /ask }, authorize: {} }",
    );
    let text = text.replace("require: jwt, upstream", "require: { jwt: { plan: pro } }, upstream");
    let gateway = TestGateway::start(&text);
    let ask = |path: &str, members: Value| {
        let token = key.token("e", &claims_with(members));
        let fields = format!("X-Original-Method: GET\r\nX-Original-URI: {path}\r\nAuthorization: Bearer {token}\r\n");
        let gateway = &gateway;
        async move { gateway.get("/ask", &fields).await.status() }
    };
    assert_eq!(ask("/", json!({ "role": "admin", "plan": "pro" })).await, 200);
    assert_eq!(ask("/", json!({ "role": "admin", "plan": "free" })).await, 403);
    assert_eq!(ask("/", json!({ "role": "user", "plan": "free" })).await, 200);
    assert_eq!(ask("/private", json!({ "role": "user", "plan": "free" })).await, 403);
}

/// Logs lack credentials: only the route in the log shows that a request had them.
#[test]
fn replay_uses_the_route_of_the_log() {
    let key = SigningKey::ec();
    let set = key_set_file("replayed", &key_set(&[key.jwk("e")]));
    let route = |name: &str, conditions: &str| {
        let limit = format!("limits: [{{ name: {name}, mode: OVERALL, rate: 1, interval: 1h }}]");
        format!("  - {{ name: {name}, match: {{ {conditions} }}, upstream: echo, {limit} }}\n")
    };
    let start = rules(&jwt(set.path()), "");
    let start = start.split("routes:").next().expect("a start");
    let (staff, rest) = (route("staff", "path: /a, identity: { jwt:role: admin }"), route("rest", ""));
    let file = RuleFile::new("replay-identity", &format!("listen: 127.0.0.1:0\n{start}routes:\n{staff}{rest}"));
    let line = |path: &str, route: &str| {
        format!(
            "2026-05-04T10:00:00.250000Z  INFO GET {path} status=200 route=\"{route}\" limits=\"allowed\" \
             at=1777888800000 client=192.0.2.1 peer=192.0.2.1 host=\"a.test\"\n"
        )
    };
    // The last line is from other rules: its path does not match the route that it names.
    let lines =
        [line("/a", "staff"), line("/a", "staff"), line("/a", "rest"), line("/a", "other"), line("/b", "staff")];
    let log = RuleFile::new("replay-identity-log", &lines.concat());
    let output = output(&["replay", "-c", file.path(), log.path(), "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rejected = |limit: &str| report["limits"][limit]["rejected"].as_u64();
    assert_eq!((rejected("staff/staff"), rejected("rest/rest")), (Some(1), Some(2)), "{report}");
    let note = "route staff matches credentials, which logs lack: only requests with its name are replayed there";
    assert!(report["notes"].as_array().is_some_and(|notes| notes.contains(&note.into())), "{report}");
}
