//! A fleet of two versions: a gateway with older rules, and a gateway with an older version of the program.

use deadpool_redis::redis::cmd;
use serde_json::{Value, json};

use super::gateways::{Company, Gateway};
use crate::support::wire::soon;

/// The third gateway does not watch its files, so it keeps the rules while the others apply new ones.
pub(super) async fn a_gateway_keeps_older_rules(company: &mut Company) {
    company.gateways[2].hand_over(&["--no-watch"]);
    until_fleet(company, json!([[], [], []])).await;
    let rules = company.gateways[0].read("company.yaml");
    company.write("company.yaml", &format!("{rules}# a change\n"));

    until_fleet(company, json!([[], [], ["hash"]])).await;
    until_metric(company, "tidegate_fleet_rule_hashes 2").await;
    let (code, out) = fleet(&company.gateways[0]);
    let line = out.lines().find(|line| line.starts_with("gateway-3")).unwrap_or_else(|| panic!("no gateway in {out}"));
    assert_eq!((code, line.ends_with("  hash")), (Some(1), true), "{out}");
    company.assert_served(|_| true).await;

    let reload = { company.gateways[1].operate(&["reload", "--all"]) }.output().expect("a result");
    assert!(reload.status.success(), "{reload:?}");
    until_fleet(company, json!([[], [], []])).await;
    until_metric(company, "tidegate_fleet_rule_hashes 1").await;
    assert_eq!(fleet(&company.gateways[2]).0, Some(0));
    company.assert_served(|_| true).await;
}

/// A fourth gateway, of another version, announces itself, and ends.
pub(super) async fn a_gateway_has_an_older_version(company: &Company) {
    let mut redis = company.redis.connection();
    let (seconds, _): (u64, u64) = cmd("TIME").query(&mut redis).expect("a time");
    let own = company.gateways[0].api("status").await["config"].clone();
    let text = json!({
        "name": "gateway-4", "version": "0.0.9", "hash": own["hash"], "applied_at": own["applied_at"],
        "ready": true, "draining": false, "problems": 0,
    });
    let (seen, texts) = ("{company:tidegate:@operators}:fleet:seen", "{company:tidegate:@operators}:fleet");
    cmd("HSET").arg(&[texts, "older", &text.to_string()]).exec(&mut redis).expect("written");
    cmd("ZADD").arg(seen).arg(seconds * 1_000).arg("older").exec(&mut redis).expect("written");

    let gateways = company.gateways[0].api("fleet").await;
    assert_eq!((&gateways["differences"], differs(&gateways)), (&json!(["version"]), json!([[], [], [], ["version"]])));
    let (code, out) = fleet(&company.gateways[0]);
    let line = out.lines().find(|line| line.starts_with("gateway-4")).unwrap_or_else(|| panic!("no gateway in {out}"));
    assert_eq!((code, line.contains("0.0.9"), line.ends_with("  version")), (Some(1), true, true), "{out}");
    cmd("ZREM").arg(seen).arg("older").exec(&mut redis).expect("removed");
    until_fleet(company, json!([[], [], []])).await;
}

/// Runs `tidegate fleet`. Returns the exit code and the table.
fn fleet(gateway: &Gateway) -> (Option<i32>, String) {
    let output = gateway.operate(&["fleet"]).output().expect("a fleet");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

/// Returns in what each gateway differs, by name.
fn differs(fleet: &Value) -> Value {
    fleet["gateways"].as_array().expect("a list").iter().map(|gateway| gateway["differs"].clone()).collect()
}

/// Waits until the gateways differ in these properties, on all gateways.
async fn until_fleet(company: &Company, expected: Value) {
    for gateway in &company.gateways {
        soon(async { while differs(&gateway.api("fleet").await) != expected {} }).await;
    }
}

/// Waits until the metrics of all gateways have a line.
async fn until_metric(company: &Company, line: &str) {
    for gateway in &company.gateways {
        soon(async { while !gateway.admin_text("/metrics").await.lines().any(|other| other == line) {} }).await;
    }
}
