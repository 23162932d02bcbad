//! Redis loses the overrides: gateways restore those that they hold, and the newest revision of each wins.

use deadpool_redis::redis::cmd;
use serde_json::{Value, json};
use tidegate::Store;
use tidegate_layer::overrides::{Action, Override, Scope, Target};
use tidegate_store::{RestoredOverrides, StoredOverride};

use super::{created, remove, with_key};
use crate::admin_api::Admin;
use crate::support::redis::RedisServer;
use crate::support::wire::soon;

const ADDRESS: &str = "127.0.0.1";

fn ban() -> Value {
    json!({ "action": "ban", "target": { "address": ADDRESS } })
}

fn gateway(redis: &RedisServer) -> Admin {
    Admin::with_tokens(&format!("store: {}\n", redis.rule()))
}

fn flush(redis: &RedisServer) {
    cmd("FLUSHALL").exec(&mut redis.connection()).expect("flushed");
}

async fn until_status(admin: &Admin, status: u16) {
    soon(async { while with_key(admin, "k").await.status() != status {} }).await;
}

async fn entries(store: &Store) -> Vec<StoredOverride> {
    store.read_overrides().await.expect("overrides").entries
}

async fn restore(store: &Store, entries: &[StoredOverride]) -> (usize, usize) {
    let RestoredOverrides { overrides, removals } = store.restore_overrides(entries).await.expect("restored");
    (overrides, removals)
}

/// Writes a ban of the address that ends after this time. Returns its id.
async fn put(store: &Store, millis: u64) -> String {
    let text = serde_json::to_string(&ban()).expect("JSON");
    let (scope, target) = (Scope::All, Target::Network(ADDRESS.parse::<std::net::IpAddr>().expect("an IP").into()));
    let id = Override::id_of(Action::Ban, &scope, &target);
    let until = store.now().plus_millis(millis);
    _ = store.put_override(&id, &text, until, true).await.expect("stored");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_restore_lost_bans_and_audit_entries() {
    let Some(redis) = RedisServer::start() else { return };
    let [one, other] = [(); 2].map(|()| gateway(&redis));
    let id = created(&one, ban()).await;
    until_status(&other, 403).await;
    let audit = async |admin: &Admin| admin.api("GET", "audit", "").await.1;
    soon(async { while audit(&other).await[0]["shared"] != true {} }).await;
    flush(&redis);
    let store = redis.store();
    soon(async { while entries(&store).await.is_empty() {} }).await;
    assert_eq!([with_key(&one, "k").await.status(), with_key(&other, "k").await.status()], [403; 2]);
    // A new gateway knows only what is in Redis.
    drop(one);
    let late = gateway(&redis);
    until_status(&late, 403).await;
    soon(async { while audit(&late).await[0]["reason"] != "a test" {} }).await;
    remove(&late, &id).await;
    until_status(&other, 200).await;
}

/// A gateway that missed the removal restores the ban; the gateway that knows of the removal undoes that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_ban_is_not_restored_by_a_stale_gateway() {
    let Some(redis) = RedisServer::start() else { return };
    let (one, store) = (gateway(&redis), redis.store());
    let id = created(&one, ban()).await;
    let stale = entries(&store).await;
    remove(&one, &id).await;
    assert_eq!(restore(&store, &stale).await, (0, 0), "the record of the removal is newer");
    flush(&redis);
    _ = restore(&store, &stale).await;
    soon(async { while entries(&store).await.iter().any(|entry| entry.text.is_some()) {} }).await;
    until_status(&one, 200).await;
}

/// A change that comes before the first reading after the loss finds the lost override.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_after_a_loss_finds_the_lost_ban() {
    let Some(redis) = RedisServer::start() else { return };
    let admin = gateway(&redis);
    let id = created(&admin, ban()).await;
    flush(&redis);
    remove(&admin, &id).await;
    until_status(&admin, 200).await;
    flush(&redis);
    let again = super::create(&admin, ban()).await;
    assert_eq!(again.0, 201, "{}", again.1);
    flush(&redis);
    assert_eq!(super::create(&admin, ban()).await.0, 409, "it exists");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_restore_all_overrides_at_the_same_time() {
    let Some(redis) = RedisServer::start() else { return };
    let (gateways, store) = ([(); 2].map(|()| gateway(&redis)), redis.store());
    for number in 0..300 {
        let target = json!({ "address": format!("10.0.{}.{}", number / 100, number % 100) });
        drop(created(&gateways[number % 2], json!({ "action": "ban", "target": target })).await);
    }
    let mut before = entries(&store).await;
    let count = async |admin: &Admin| admin.api("GET", "overrides", "").await.1.as_array().map(Vec::len);
    for gateway in &gateways {
        soon(async { while count(gateway).await != Some(300) {} }).await;
    }
    flush(&redis);
    let sorted = async || {
        let mut after = entries(&store).await;
        after.sort_by(|one, other| one.id.cmp(&other.id));
        after
    };
    before.sort_by(|one, other| one.id.cmp(&other.id));
    soon(async { while sorted().await != before {} }).await;
    assert_eq!([count(&gateways[0]).await, count(&gateways[1]).await], [Some(300); 2]);
}

async fn newest_revision_wins(store: &Store) {
    let hour = 3_600_000;
    let id = put(store, 24 * hour).await;
    let first = entries(store).await;
    // A shorter ban replaces a longer one, and ends. The longer one does not return.
    drop(put(store, 1).await);
    let [second] = &entries(store).await[..] else { panic!("one entry") };
    assert!(second.revision > first[0].revision && second.remembered == first[0].ends, "{second:?}");
    soon(async {
        while store.now().as_millis() <= second.ends + 5 {
            store.refresh_clock().await.expect("a time");
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(restore(store, &first).await, (0, 0));
    assert_eq!(store.remove_override(&id).await.expect("a reply"), None, "it has ended");
    // The same id again has a later revision than all before.
    drop(put(store, hour).await);
    let third = entries(store).await;
    assert!(third[0].revision > second.revision && third[0].text.is_some());
    assert_eq!(restore(store, std::slice::from_ref(second)).await, (0, 0));
    assert!(store.remove_override(&id).await.expect("a reply").is_some());
    let removed = entries(store).await;
    assert_eq!((removed.len(), &removed[0].text), (1, &None));
    assert_eq!(restore(store, &third).await, (0, 0));
    // A restored record is a removal, and a restored end in the past is no override.
    let later = |entry: &StoredOverride| StoredOverride { revision: entry.revision + 1_000, ..entry.clone() };
    assert_eq!(restore(store, &[later(&removed[0])]).await, (0, 1));
    let ended = StoredOverride { ends: 1, ..later(&later(&third[0])) };
    assert_eq!(restore(store, std::slice::from_ref(&ended)).await, (0, 1));
    let forgotten = StoredOverride { remembered: 1, ..later(&ended) };
    assert_eq!(restore(store, &[forgotten]).await, (0, 0));
    let live = later(&later(&later(&third[0])));
    assert_eq!(restore(store, std::slice::from_ref(&live)).await, (1, 0));
    assert_eq!(restore(store, std::slice::from_ref(&live)).await, (0, 0), "once");
    assert_eq!(entries(store).await[0].text, live.text);
}

#[tokio::test]
async fn newest_revision_of_an_override_wins_in_memory() {
    newest_revision_wins(&Store::memory()).await;
}

#[tokio::test]
async fn newest_revision_of_an_override_wins_in_redis() {
    let Some(redis) = RedisServer::start() else { return };
    newest_revision_wins(&redis.store()).await;
}
