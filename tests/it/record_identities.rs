//! A recording has the verified credentials, so that a replay decides by API key, claim and tier as the gateway did.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::admin_api::Admin;
use crate::record::{Recorded, start};
use crate::support::issuer::{SigningKey, claims, key_set};
use crate::support::process::{RuleFile, output};
use crate::support::wire::until;

const KEYS: &str = "secret-1: { id: owner-1, tier: pro, attributes: { team: blue } }\n\
                    secret-2: { id: owner-2, tier: free, attributes: { team: blue } }\n\
                    secret-3: { id: owner-3, attributes: { team: red } }\n";

/// Returns rules with limits by values of credentials, with these files of keys.
fn rules(keys: &str, set: &str) -> String {
    format!(
        "identities:
  keys: {{ header: X-Api-Key, file: {keys} }}
  jwt: {{ jwks: '{set}', issuer: https://id.test/, audience: api }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
tiers: {{ free: {{ rate: 1, interval: 1h }}, pro: {{ rate: 3, interval: 1h }} }}
routes:
  - name: key
    match: {{ path: /key }}
    upstream: echo
    limits: [{{ name: own, mode: PER_CLIENT, client: key:id, on_missing_client: ip, rate: 2, interval: 1h }}]
  - name: attribute
    match: {{ path: /attribute }}
    upstream: echo
    limits: [{{ name: own, mode: PER_CLIENT, client: key:team, on_missing_client: skip, rate: 3, interval: 1h }}]
  - name: claim
    match: {{ path: /claim }}
    upstream: echo
    limits: [{{ name: own, mode: PER_CLIENT, client: ['jwt:sub', 'jwt:/org/team'], rate: 2, interval: 1h }}]
  - name: tier
    match: {{ path: /tier }}
    upstream: echo
    limits: [{{ name: own, mode: PER_CLIENT, client: key:id, on_missing_client: ip, tier: {{ by: key:tier, default: free }} }}]
  - name: role
    match: {{ path: /tier-of-role }}
    upstream: echo
    limits: [{{ name: own, mode: PER_CLIENT, client: jwt:sub, tier: {{ by: 'jwt:/realm/roles', default: free }} }}]
  - name: staff
    match: {{ path: /match, identity: {{ jwt:role: admin }} }}
    upstream: echo
    limits: [{{ name: own, mode: OVERALL, rate: 2, interval: 1h }}]
  - name: others
    match: {{ path: /match }}
    upstream: echo
    limits: [{{ name: own, mode: OVERALL, rate: 3, interval: 1h }}]
  - name: address
    match: {{ path: /address }}
    upstream: echo
    limits:
      - {{ name: own, mode: PER_CLIENT, client: ip, rate: 2, interval: 1h }}
      - {{ name: subject, mode: PER_CLIENT, client: jwt:sub, rate: 5, interval: 1h }}
"
    )
}

const ROUTES: [&str; 8] = ["key", "attribute", "claim", "tier", "role", "staff", "others", "address"];

/// The requests: paths with the fields of each client, several times.
fn requests(key: &SigningKey) -> Vec<(&'static str, String)> {
    let token = |subject: &str, role: Value, roles: Value| {
        let mut claims = claims(subject);
        (claims["role"], claims["realm"], claims["org"]) =
            (role, json!({ "roles": roles }), json!({ "team": "secret-team" }));
        format!("Authorization: Bearer {}\r\n", key.token("e", &claims))
    };
    let ann = token("secret-ann", json!(["admin", "secret-role"]), json!(["secret-role", "pro"]));
    let ben = token("secret-ben", json!("user"), json!("free"));
    let api_key = |number: u8| format!("X-Api-Key: secret-{number}\r\n");
    let mut requests = Vec::new();
    for path in ["/key", "/attribute", "/tier"] {
        requests.extend([api_key(1), api_key(2), api_key(3), String::new()].map(|fields| (path, fields)));
    }
    for path in ["/claim", "/tier-of-role", "/match", "/address"] {
        requests.extend([ann.clone(), ben.clone()].map(|fields| (path, fields)));
    }
    requests.push(("/match", String::new()));
    (0..4).flat_map(|_| requests.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_of_identities_decides_as_the_gateway() {
    let signing = SigningKey::ec();
    let keys = RuleFile::new("keys-recorded", KEYS);
    let set = RuleFile::new("jwks-recorded", &key_set(&[signing.jwk("e")]));
    let text = rules(keys.path(), set.path());
    let admin = Admin::with_tokens("");
    admin.reload(&text);
    let file = Recorded::new("identities");
    let program = start(&admin, &file, &[]).await;
    let requests = requests(&signing);
    for (path, fields) in &requests {
        let status = admin.request(path, fields).await.status();
        assert!([200, 429].contains(&status), "{path}: {status}");
    }
    // Such a request takes no permits of these limits.
    assert_eq!(admin.request("/attribute", "X-Api-Key: secret-9\r\n").await.status(), 401);
    until(|| file.requests().len() == requests.len()).await;
    program.signal("TERM");
    let (status, summary) = program.wait_for_exit();
    assert!(status.success(), "{summary}");

    let recorded = file.text();
    for secret in ["secret", "owner", "blue", "Bearer", "eyJ"] {
        assert!(!recorded.contains(secret), "{secret}: {recorded}");
    }
    assert!(recorded.contains("\"tier\":\"pro\"") && recorded.contains("\"admin\""), "{recorded}");

    let rules = RuleFile::new("record-identities", &text);
    let report = run(&["replay", "-c", rules.path(), "--json", file.path()]);
    assert_eq!((&report["notes"], &report["unparsed"], &report["invalid"]), (&json!([]), &json!(0), &json!(0)));
    assert_eq!(&report["requests"], &json!(requests.len()));
    let mut expected: HashMap<&str, [u64; 2]> = HashMap::new();
    let lines = file.requests();
    for line in &lines {
        let route = line["route"].as_str().expect("a route");
        expected.entry(route).or_default()[usize::from(line["status"] == 429)] += 1;
    }
    for route in ROUTES {
        let limit = &report["limits"][format!("{route}/own")];
        let mut counted = ["allowed", "rejected"].map(|key| limit[key].as_u64().expect("a number"));
        if route == "attribute" {
            counted[0] += 4; // the limit skips requests without a key
        }
        assert_eq!(counted, expected[route], "{route}: {limit}");
        assert!(counted[0] > 0 && counted[1] > 0, "{route}: {limit}");
        assert_eq!((&limit["unverified"], &limit["unknown"]), (&json!(0), &json!(0)), "{route}: {limit}");
    }

    // The rates of a tier, and of clients that have an API key.
    let suggest = |limit: &str| run(&["suggest", "-c", rules.path(), "--limit", limit, "--json", file.path()]);
    let of_tier = suggest("tier/own");
    assert_eq!((&of_tier["tier"], &of_tier["clients"]), (&json!("free"), &json!(3)), "{of_tier}");
    assert!(of_tier["snippet"].as_str().is_some_and(|text| text.starts_with("tiers:\n  free: { rate: ")), "{of_tier}");
    assert_eq!(suggest("key/own")["clients"], 4);
    // Other rules read a claim that the gateway has not recorded.
    let other = RuleFile::new("record-identities-other", &text.replace("'jwt:sub', 'jwt:/org/team'", "jwt:email"));
    let report = run(&["replay", "-c", other.path(), "--json", file.path()]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("lacks `jwt:email`, which the rules read"), "{notes}");
    assert_eq!(report["limits"]["claim/own"]["unverified"], 8);
}

/// Runs a command that writes JSON.
fn run(arguments: &[&str]) -> Value {
    let output = output(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_of_a_planned_limit_is_recorded() {
    let signing = SigningKey::ec();
    let set = RuleFile::new("jwks-planned", &key_set(&[signing.jwk("e")]));
    let text = |limit: &str| {
        format!(
            "identities: {{ jwt: {{ jwks: '{}', issuer: https://id.test/, audience: api }} }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, require: jwt, upstream: echo, limits: [{limit}] }}]
",
            set.path()
        )
    };
    let admin = Admin::with_tokens("");
    admin.reload(&text("{ name: all, mode: OVERALL, rate: 1000, interval: 1h }"));
    let file = Recorded::new("planned-claim");
    let program = start(&admin, &file, &["--client", "jwt:sub"]).await;
    for (subject, count) in [("secret-ann", 3), ("secret-ben", 1)] {
        let field = format!("Authorization: Bearer {}\r\n", signing.token("e", &claims(subject)));
        for _ in 0..count {
            assert_eq!(admin.request("/", &field).await.status(), 200);
        }
    }
    until(|| file.requests().len() == 4).await;
    program.signal("TERM");
    assert!(program.wait_for_exit().0.success() && !file.text().contains("secret"));
    let planned = text("{ name: own, mode: PER_CLIENT, client: jwt:sub, rate: 2, interval: 1h }");
    let rules = RuleFile::new("record-planned", &planned);
    let report = run(&["replay", "-c", rules.path(), "--json", file.path()]);
    let limit = &report["limits"]["all/own"];
    assert_eq!((&limit["allowed"], &limit["rejected"], &limit["clients"]), (&json!(3), &json!(1), &json!(2)));
    assert_eq!(report["notes"], json!([]));
}
