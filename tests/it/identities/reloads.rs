//! Files of keys that change while requests arrive.

use std::fmt::Write;
use std::time::Duration;

use crate::support::case_count;
use crate::support::issuer::{SigningKey, claims, key_set, replace_file};
use crate::support::wire::soon;

use super::load::Load;
use super::{jwt, key_file, key_set_file, start, with_token};

/// Returns a file with `count` keys: `key-0` and following, and these keys.
fn many_keys(count: usize, more: &[&str]) -> String {
    let mut text = String::new();
    for number in 0..count {
        let tier = ["free", "pro"][number % 2];
        let entry = format!("id: owner-{number}, tier: {tier}, attributes: {{ rate: {number}, team: t{number} }}");
        writeln!(text, "key-{number}: {{ {entry} }}").expect("text");
    }
    more.iter().for_each(|key| writeln!(text, "{key}: {{ id: more }}").expect("text"));
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_of_many_keys_fails_no_request() {
    let many = case_count(20_000) as usize;
    let file = key_file("many", &many_keys(many, &["changed-0"]));
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", file.path());
    let gateway = start(&identities, "require: keys");
    let count = many as u64 + 1;
    assert_eq!(gateway.counter("tidegate_api_keys").await, count);
    let mut load = Load::default();
    for number in [0, 1, many / 2, many - 1] {
        load.add(gateway.address, format!("X-Api-Key: key-{number}\r\n"));
    }
    let status = async |key: &str| gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await.status();
    for reload in 0..3 {
        let (removed, added) = (format!("changed-{reload}"), format!("changed-{}", reload + 1));
        assert_eq!((status(&removed).await, status(&added).await), (200, 401));
        replace_file(file.path(), &many_keys(many, &[&added]));
        let in_force = async { while status(&added).await != 200 {} };
        tokio::time::timeout(Duration::from_secs(60), in_force).await.expect("a reload within a minute");
        assert_eq!((status(&removed).await, gateway.counter("tidegate_api_keys").await), (401, count));
        load.wait_for_progress().await;
    }
    load.stop().await;
    let loaded = "tidegate_identity_loads_total{kind=\"keys\",outcome=\"loaded\"}";
    soon(async { while gateway.counter(loaded).await != 3 {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_keys_fail_no_request() {
    let file = key_file("replaced", "kept: { id: kept }\nold: { id: old }\n");
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", file.path());
    let gateway = start(&identities, "require: keys");
    let mut load = Load::default();
    load.add(gateway.address, "X-Api-Key: kept\r\n".to_owned());
    let status = async |key: &str| gateway.get("/", &format!("X-Api-Key: {key}\r\n")).await.status();
    assert_eq!((status("old").await, status("new").await), (200, 401));
    replace_file(file.path(), "kept: { id: kept }\nnew: { id: new }\n");
    soon(async { while status("new").await != 200 {} }).await;
    assert_eq!(status("old").await, 401);
    // A file with an error keeps the last keys.
    replace_file(file.path(), "kept: {}\n");
    let failed = "tidegate_identity_loads_total{kind=\"keys\",outcome=\"failed\"}";
    soon(async { while gateway.counter(failed).await == 0 {} }).await;
    assert_eq!(status("new").await, 200);
    replace_file(file.path(), "kept: { id: kept }\nlast: { id: last }\n");
    soon(async { while status("last").await != 200 {} }).await;
    load.wait_for_progress().await;
    load.stop().await;
}

#[tokio::test]
async fn replaced_key_set_file_is_used() {
    let (old, new) = (SigningKey::ec(), SigningKey::ec());
    let file = key_set_file("replaced", &key_set(&[old.jwk("1")]));
    let gateway = start(&jwt(file.path()), "require: jwt");
    let token = new.token("2", &claims("ann"));
    assert_eq!(with_token(&gateway, &token).await.status(), 401);
    replace_file(file.path(), &key_set(&[new.jwk("2")]));
    soon(async { while with_token(&gateway, &token).await.status() != 200 {} }).await;
    assert_eq!(with_token(&gateway, &old.token("1", &claims("ann"))).await.status(), 401);
    // A malformed key set keeps the last keys.
    replace_file(file.path(), "{}");
    let failed = "tidegate_identity_loads_total{kind=\"jwt\",outcome=\"failed\"}";
    soon(async { while gateway.counter(failed).await == 0 {} }).await;
    assert_eq!(with_token(&gateway, &token).await.status(), 200);
}
