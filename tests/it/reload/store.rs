//! A reload that changes the store.

use std::fs;
use std::path::Path;

use deadpool_redis::redis::cmd;

use super::watched::Watched;
use super::{OK, rules, total};
use crate::support::gateway::{TestGateway, get};
use crate::support::process::output;
use crate::support::redis::{RedisServer, wait_for};
use crate::support::wire::upstream::Origin;

#[tokio::test]
async fn changed_store_is_used_by_all_workers() {
    let Some(redis) = RedisServer::start() else { return };
    let origin = Origin::with_response(OK).await;
    let rules = |store: &str| format!("store: {store}\n{}", rules(origin.address, &total(3)));
    let gateway = TestGateway::start(&rules("memory"));
    let mut client = gateway.client().await;
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    let with_redis = format!("{{ url: '{}', timeout: 10s }}", redis.url());
    let report = gateway.reload(&rules(&with_redis));
    assert!(report.changes()[0].ends_with("starts with no permits in use"), "{:?}", report.changes());
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(gateway.get("/", "").await.status());
    }
    assert_eq!(statuses, [200, 200, 200, 429], "new connections are spread over all workers");
    assert_eq!(get(&mut client, "/", "").await.status(), 429);
    gateway.reload(&rules(&format!("{{ url: '{}', timeout: 9s }}", redis.url())));
    assert_eq!(get(&mut client, "/", "").await.status(), 429, "the buckets are in Redis");
    gateway.reload(&rules("memory"));
    assert_eq!(get(&mut client, "/", "").await.status(), 200);
    let mut own = redis.connection();
    wait_for("the end of the gateway's connections to Redis", || {
        let info: String = cmd("INFO").arg("clients").query(&mut own).expect("a reply");
        info.contains("connected_clients:1\r\n")
    });
}

/// The token of the operator.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Returns the number of failed reloads.
async fn failed_reloads(watched: &Watched) -> String {
    watched.metric("tidegate_config_reloads_total{result=\"failed\"}").await
}

#[tokio::test]
async fn store_that_does_not_reply_is_rejected_unless_forced() {
    let closed = Origin::closed_port();
    let text = |folder: &Path, store: &str, rate: u32| {
        format!(
            "listen: 127.0.0.1:0
admin: {{ address: '127.0.0.1:0', tokens: {{ file: '{}' }} }}
store: {store}
{}",
            folder.join("tokens").display(),
            rules(closed, &total(rate)),
        )
    };
    let set_up = |folder: &Path| {
        fs::write(folder.join("tokens"), format!("test:{TOKEN}\n")).expect("written");
        fs::write(folder.join("token"), TOKEN).expect("written");
        fs::write(folder.join("rules.yaml"), text(folder, "memory", 1)).expect("written");
    };
    let watched = Watched::start("unreachable-store", set_up, &[]);
    let unreachable = format!("'redis://{closed}'");
    watched.write(&text(&watched.folder, &unreachable, 2));
    let config = watched.until("errors", |config| config["errors"][0].is_object()).await;
    let message = config["errors"][0]["message"].as_str().expect("a message");
    assert!(message.starts_with("the new store does not reply: "), "{message}");
    assert_eq!((&config["store"]["kind"], &config["routes"][0]["limits"][0]["rate"]), (&"memory".into(), &1.into()));
    assert_eq!(failed_reloads(&watched).await, "1");
    watched.program.signal("HUP");
    while failed_reloads(&watched).await != "2" {
        tokio::task::yield_now().await;
    }
    let (address, token) = (watched.admin.to_string(), watched.path("token"));
    let reload = |more: &[&str]| {
        let arguments = ["reload", "--admin", &address, "--token-file", token.to_str().expect("UTF-8")];
        let output = output(&[&arguments[..], more].concat());
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8"))
    };
    let (code, shown) = reload(&[]);
    assert!(code == Some(1) && shown.contains("the new store does not reply") && shown.contains("--force"), "{shown}");
    assert_eq!(watched.config().await["store"]["kind"], "memory");
    let (code, shown) = reload(&["--force"]);
    assert!(code == Some(0) && shown.contains("setting store: changed"), "{shown}");
    assert_eq!(watched.config().await["store"]["kind"], "redis");
    // Other settings of a store that is known to be unreachable can change.
    watched.write(&text(&watched.folder, &format!("{{ url: {unreachable}, timeout: 40ms }}"), 3));
    watched.until_rate(3).await;
}
