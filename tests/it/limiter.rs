//! The keyed limiter of the library, and a layer's limits without a request, on both stores.

use std::net::TcpListener;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use tidegate::build::{Algorithm, Client, HOUR, Limit, MINUTE, OnMissingClient, OnStoreFailure, Quota, Route, SECOND};
use tidegate::{CheckError, ClientKey, ClientKeys, Limiter, RateLimitLayer, Store, StoreError};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::support::redis::RedisServer;

/// Opens both stores, in real time.
fn stores() -> (Vec<Store>, Option<RedisServer>) {
    let redis = RedisServer::start();
    let mut stores = vec![Store::memory()];
    stores.extend(redis.iter().map(RedisServer::store));
    (stores, redis)
}

fn limited(error: CheckError) -> (Vec<String>, Option<Duration>, u32) {
    match error {
        CheckError::Limited(limited) => (limited.limits, limited.wait, limited.remaining),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_key_has_its_own_bucket_in_all_programs() {
    let (stores, _redis) = stores();
    for store in stores {
        let mails = |store: &Store| Limiter::new(store.clone(), "mails", Quota::per_hour(3)).expect("a limiter");
        let (one, other) = (mails(&store), mails(&store));
        assert_eq!(one.check_n("ada", 2).await.expect("granted").remaining, Some(1));
        assert_eq!(other.check("ada").await.expect("granted").remaining, Some(0));
        let (limits, wait, remaining) = limited(one.check("ada").await.expect_err("three mails"));
        assert_eq!((limits, remaining), (vec!["mails".to_owned()], 0));
        assert!(wait.is_some_and(|wait| wait <= HOUR && wait > HOUR - MINUTE), "{wait:?}");
        assert_eq!(one.check("grace").await.expect("granted").remaining, Some(2));
        assert_eq!(other.check_n("grace", 0).await.expect("a read").remaining, Some(2));
    }
}

#[tokio::test]
async fn several_limits_are_one_decision() {
    let (stores, _redis) = stores();
    for store in stores {
        let per_user = Limit::per_client("per-user", Client::extension()).rate(2, HOUR);
        let total = Limit::overall("total").quota(Quota::per_hour(3).algorithm(Algorithm::Gcra));
        let limiter = Limiter::with_limits(store, "jobs", [per_user, total]).expect("a limiter");
        assert!(limiter.check_n("ada", 2).await.is_ok());
        assert_eq!(limited(limiter.check_n("grace", 2).await.expect_err("one remains in total")).0, ["total"]);
        assert_eq!(limited(limiter.check("ada").await.expect_err("two mails")).0, ["per-user"]);
        // Neither refusal took permits of the other limit.
        assert_eq!(limiter.check("grace").await.expect("granted").remaining, Some(0));
        let all = limited(limiter.check_n("ada", 1).await.expect_err("no permits"));
        assert_eq!(all.0[0], "per-user"); // Redis may know only one of the refusals
    }
}

#[tokio::test(start_paused = true)]
async fn until_ready_waits_for_the_permits() {
    let limiter = Limiter::new(Store::memory(), "mails", Quota::new(2, SECOND)).expect("a limiter");
    let start = Instant::now();
    for (expected, permits) in [(0, 2), (1, 1), (1, 1), (2, 2)] {
        limiter.until_n_ready("ada", permits).await.expect("granted");
        assert_eq!(start.elapsed(), SECOND * expected);
    }
    limiter.until_ready("grace").await.expect("granted");
    assert_eq!(start.elapsed(), SECOND * 2);
    let (_, wait, _) = limited(limiter.until_n_ready("ada", 3).await.expect_err("more than the bucket has"));
    assert_eq!(wait, None);
}

#[tokio::test(start_paused = true)]
async fn limit_with_max_wait_admits_in_order() {
    let quota = Quota::new(1, SECOND).max_wait(MINUTE).queue(5);
    let limiter = Limiter::new(Store::memory(), "mails", quota).expect("a limiter");
    let start = Instant::now();
    let waits = (0..3).map(|_| async { limiter.check("ada").await.map(|_| start.elapsed()) });
    let waited = futures_util::future::join_all(waits).await;
    let waited: Vec<_> = waited.into_iter().map(|waited| waited.expect("granted")).collect();
    assert_eq!(waited, [Duration::ZERO, SECOND, SECOND * 2]);
}

#[tokio::test]
async fn missing_keys_and_routes_are_errors() {
    let limiter = Limiter::new(Store::memory(), "mails", Quota::per_hour(3)).expect("a limiter");
    let error = limiter.check("").await.expect_err("no key");
    assert_eq!(error.to_string(), "the value that identifies clients of `mails` is missing");
    let limits = [Limit::per_client("by-ip", Client::ip()).rate(1, HOUR).on_missing_client(OnMissingClient::Skip)];
    let limiter = Limiter::with_limits(Store::memory(), "mails", limits).expect("a limiter");
    assert_eq!(limiter.check_n("ada", 9).await.expect("no limit applies").remaining, None);
    let layer = RateLimitLayer::limit(Limit::overall("total").rate(1, HOUR)).expect("a layer");
    assert_eq!(layer.check("none", "ada", 1).await, Err(CheckError::NoRoute("none".to_owned())));
    let error = Limiter::new(Store::memory(), "a b", Quota::per_hour(0)).expect_err("two errors").to_string();
    assert!(error.contains("limit `a b` of route `a b`: `rate` must be a whole number"), "{error}");
    assert!(error.contains("route `a b`: `name` must be a name, not `a b`") && error.ends_with("3 errors"), "{error}");
}

/// While Redis is unreachable, a program enforces its share of the limits, here the whole limit.
#[tokio::test]
async fn outage_follows_on_store_failure() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let limiter = |action: OnStoreFailure| {
        let limit = Limit::per_client("mails", Client::extension()).rate(2, HOUR).on_store_failure(action);
        let store = Store::redis(&format!("redis://{closed}")).expect("a store");
        Limiter::with_limits(store, "mails", [limit]).expect("a limiter")
    };
    let allows = limiter(OnStoreFailure::Allow);
    assert_eq!(allows.check_n("ada", 2).await.expect("allowed").remaining, None);
    assert!(allows.check_n("ada", 2).await.is_ok());
    let local = limiter(OnStoreFailure::Local);
    assert!(local.check_n("ada", 2).await.is_ok());
    let (limits, wait, _) = limited(local.check("ada").await.expect_err("the share is used"));
    assert!(limits == ["mails"] && wait.is_some_and(|wait| wait > HOUR - MINUTE), "{limits:?} {wait:?}");
    let error = limiter(OnStoreFailure::Deny).check("ada").await.expect_err("denied");
    assert!(matches!(error, CheckError::Store(StoreError::Unreachable | StoreError::Timeout)), "{error:?}");
}

#[tokio::test]
async fn checks_share_the_buckets_of_requests() {
    let user = Client::from_fn(|parts| Some(parts.extension::<ClientKey>()?.0.clone()));
    let per_user = Limit::per_client("per-user", user).rate(2, HOUR);
    let tenant = Client::extension_named("tenant").and(Client::extension_named("region"));
    let per_tenant = Limit::per_client("per-tenant", tenant).rate(3, HOUR).on_missing_client(OnMissingClient::Skip);
    let route = Route::new("reports").path("/reports").limit(per_user).limit(per_tenant);
    let layer = RateLimitLayer::from_rules(route).expect("a layer");
    let app = Router::new().fallback(async || "handled").layer(layer.clone());
    let ask = async |user: &str, tenant: Option<&str>| {
        let mut request = Request::get("/reports").body(Body::empty()).expect("a request");
        request.extensions_mut().insert(ClientKey(user.to_owned()));
        if let Some(tenant) = tenant {
            request.extensions_mut().insert(ClientKeys::new().with("tenant", tenant).with("region", "eu"));
        }
        app.clone().oneshot(request).await.expect("a response").status().as_u16()
    };
    assert_eq!([ask("ada", None).await, ask("ada", None).await, ask("ada", None).await], [200, 200, 429]);
    assert_eq!(limited(layer.check("reports", "ada", 1).await.expect_err("two requests")).0, ["per-user"]);
    assert!(layer.check("reports", "grace", 1).await.is_ok());
    assert_eq!([ask("grace", Some("acme")).await, ask("grace", Some("acme")).await], [200, 429]);
    assert_eq!(
        [ask("b", Some("acme")).await, ask("c", Some("acme")).await, ask("d", Some("acme")).await],
        [200, 200, 429]
    );
    assert_eq!(ask("e", Some("other")).await, 200);
    let mut extensions = http::Extensions::new();
    extensions.insert(ClientKey("f".to_owned()));
    extensions.insert(ClientKeys::new().with("tenant", "acme").with("region", "eu"));
    let error = layer.check_with("reports", &extensions, 1).await.expect_err("three requests of the tenant");
    assert_eq!(limited(error).0, ["per-tenant"]);
    assert_eq!(ask("", None).await, 400, "the function returned an empty key");
}
