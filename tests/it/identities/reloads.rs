//! Files of keys that change while requests arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::gateway::get;
use crate::support::issuer::{SigningKey, claims, key_set, replace_file};
use crate::support::wire::soon;

use super::{jwt, key_file, key_set_file, start, with_token};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_keys_fail_no_request() {
    let file = key_file("replaced", "kept: { id: kept }\nold: { id: old }\n");
    let identities = format!("keys: {{ header: X-Api-Key, file: {} }}", file.path());
    let gateway = Arc::new(start(&identities, "require: keys"));
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (gateway, stop) = (Arc::clone(&gateway), Arc::clone(&stop));
        async move {
            let mut client = gateway.client().await;
            let mut count = 0;
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(get(&mut client, "/", "X-Api-Key: kept\r\n").await.status(), 200);
                count += 1;
            }
            count
        }
    });
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
    stop.store(true, Ordering::SeqCst);
    assert!(load.await.expect("no failed request") > 0);
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
