//! Reloaded rules: rates, routes, permits in use, and the report of a reload.

use super::{OK, rules, total};
use crate::support::gateway::{TestGateway, get};
use crate::support::wire::raw::Raw;
use crate::support::wire::upstream::Origin;

#[tokio::test]
async fn client_connection_survives_a_changed_rate() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(origin.address, &total(2)));
    let mut client = gateway.client().await;
    let mut statuses = Vec::new();
    for rate in [2, 2, 2, 3, 3, 1] {
        gateway.reload(&rules(origin.address, &total(rate)));
        statuses.push(get(&mut client, "/", "").await.status());
    }
    assert_eq!(statuses, [200, 200, 429, 200, 429, 429], "permits in use are kept");
    assert_eq!(origin.connections(), 1, "the upstream did not change, so its connection is kept");
}

#[tokio::test]
async fn report_has_the_changes_and_the_keys_that_need_a_restart() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(origin.address, &total(2)));
    assert!(gateway.reload(&rules(origin.address, &total(2))).is_unchanged());
    let report = gateway.reload(&rules(origin.address, &total(3)));
    let expected = "limit all/total: changed (rate), 2 per 1h (token_bucket) -> 3 per 1h (token_bucket), permits in \
                    use are kept";
    assert_eq!(report.changes(), [expected]);
    let config = gateway.config().await;
    assert!(config.contains(r#""rate":3"#), "{config}");
    for _ in 0..2 {
        let report = gateway.reload(&format!("access_log: stdout\n{}", rules(origin.address, &total(3))));
        assert!(report.changes().is_empty());
        assert_eq!(report.needs_restart(), ["access_log"]);
    }
}

#[tokio::test]
async fn routes_are_replaced_for_open_connections() {
    let origin = Origin::with_response(OK).await;
    let rules = |path: &str| rules(origin.address, "").replace("/**", path);
    let gateway = TestGateway::start(&rules("/old"));
    let mut client = gateway.client().await;
    assert_eq!(get(&mut client, "/old", "").await.status(), 200);
    assert_eq!(get(&mut client, "/new", "").await.status(), 404);
    gateway.reload(&rules("/new"));
    assert_eq!(get(&mut client, "/old", "").await.status(), 404);
    assert_eq!(get(&mut client, "/new", "").await.status(), 200);
}

#[tokio::test]
async fn trusted_proxies_follow_a_reload() {
    let origin = Origin::with_response(OK).await;
    let rules = |trusted: &str| format!("clients: {{ trusted_proxies: [{trusted}] }}\n{}", rules(origin.address, ""));
    let gateway = TestGateway::start(&rules(""));
    let mut client = gateway.client().await;
    let mut forwarded = async || {
        get(&mut client, "/", "X-Forwarded-For: 198.51.100.7\r\n").await;
        origin.last_request().field("x-forwarded-for").expect("a field")
    };
    assert_eq!(forwarded().await, "127.0.0.1");
    gateway.reload(&rules("127.0.0.1"));
    assert_eq!(forwarded().await, "198.51.100.7, 127.0.0.1");
    gateway.reload(&rules(""));
    assert_eq!(forwarded().await, "127.0.0.1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_limit_shows_its_new_line() {
    let origin = Origin::with_response(OK).await;
    let first = rules(origin.address, &total(5));
    let gateway = TestGateway::start(&first);
    let location = async || {
        let limits = "GET /api/v1/limits HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let limits = Raw::connect(gateway.admin).await.ask(limits).await.text();
        let limits: serde_json::Value = serde_json::from_str(&limits).expect("JSON");
        limits[0]["location"].clone()
    };
    assert_eq!(location().await, serde_json::json!({ "file": "<text>", "line": 4 }));
    assert!(gateway.reload(&format!("# A comment\n{first}")).is_unchanged());
    assert_eq!(location().await["line"], 5);
}
