//! The rules in force, as the admin interface shows them.

use serde_json::{Value, json};

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Raw;

#[tokio::test]
async fn admin_config_shows_requests_routes_and_waiting() {
    let rules = "requests: { strip: [default, X-Own-*], keep: [X-Real-IP], underscores: keep }
upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
  - name: set
    match: { path: /set }
    upstream: echo
    max_body: 2KiB
    upgrades: { protocols: [other], idle_timeout: 5s, max_time: 1m, max_bytes: 1MiB }
    limits:
      - { name: waits, mode: OVERALL, rate: 5, interval: 1s, max_wait: 2s, queue: 7 }
      - { name: leaks, mode: OVERALL, rate: 5, interval: 1s, algorithm: leaky_bucket, queue: 9 }
      - { name: plain, mode: OVERALL, rate: 5, interval: 1s }
  - { name: rest, match: {}, upstream: echo, upgrades: [] }
";
    let gateway = TestGateway::start(rules);
    let mut admin = Raw::connect(gateway.admin).await;
    let shown = admin.ask("GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text();
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let stripped = shown["requests"]["strip"].as_array().expect("a list");
    assert!(["x-own-*", "x-forwarded-*", "proxy"].iter().all(|name| stripped.iter().any(|one| one == name)));
    assert_eq!(shown["requests"]["keep"], json!(["x-real-ip"]));
    assert_eq!(shown["requests"]["underscores"], "keep");
    let [set, rest] = [&shown["routes"][0], &shown["routes"][1]];
    assert_eq!((&set["max_body_bytes"], &rest["max_body_bytes"]), (&2048.into(), &(1_u64 << 30).into()));
    let upgrades = json!(
        { "protocols": ["other"], "idle_timeout_ms": 5000, "max_time_ms": 60000, "max_bytes": 1 << 20 }
    );
    assert_eq!((&set["upgrades"], &rest["upgrades"]["protocols"]), (&upgrades, &json!([])));
    let waiting: Vec<_> =
        (0..3).map(|limit| [&set["limits"][limit]["max_wait_ms"], &set["limits"][limit]["queue"]]).collect();
    let null = Value::Null;
    assert_eq!(waiting, [[&2000.into(), &7.into()], [&1000.into(), &9.into()], [&null, &null]]);
}
