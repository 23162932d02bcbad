//! The keys `requests.strip`, `keep` and `underscores`.

use super::*;
use tidegate_rules::rules::{FieldRules, Strip, Underscores};

#[test]
fn strip_and_keep_decide_which_fields_are_removed() {
    let fields = |requests: &str| parse(&format!("{FULL}\nrequests: {requests}")).rules.fields.clone();
    assert_eq!(parse(FULL).rules.fields, FieldRules::default());
    assert_eq!(fields("{ underscores: keep }").underscores, Underscores::Keep);
    assert_eq!(fields("{ underscores: reject, strip: [default] }").strip, Strip::default());
    let has = |requests, names: [&str; 4]| names.map(|name| fields(requests).strip.has(name));
    let names = ["x-real-ip", "x-forwarded-user", "x-mine-a", "accept"];
    assert_eq!(has("{ strip: [] }", names), [false; 4]);
    assert_eq!(has("{ strip: [X-Mine-*, Accept] }", names), [false, false, true, true]);
    assert_eq!(has("{ strip: [default, X-Mine-*], keep: [X-Forwarded-User] }", names), [true, false, true, false]);
}

#[test]
fn proxy_fields_need_trusted_proxies_or_keep() {
    let routes = "routes: [{ name: a, match: {}, limits: [{ name: b, mode: PER_CLIENT, client: 'header:X-Real-IP', \
                  rate: 1, interval: 1s }] }]";
    assert!(problems(routes).contains("accepted only from trusted proxies"));
    assert!(Config::parse(&format!("clients: {{ trusted_proxies: [10.0.0.0/8] }}\n{routes}")).is_ok());
    assert!(Config::parse(&format!("requests: {{ keep: [x-real-ip] }}\n{routes}")).is_ok());
    let upgrade = "routes: [{ name: a, match: { headers: { upgrade: websocket } } }]";
    assert!(Config::parse(upgrade).is_ok(), "a handler sees the hop-by-hop fields");
}
