//! Targets that fail most of their checks, targets that recover, and checks of a gateway that is too busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::gateway::TestGateway;
use crate::support::process::{Program, RuleFile};
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::upstream_checks::{OK, Target, api, rules, until};

/// The checks of two of three targets fail, as if the gateway could not reach their health port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_targets_are_used_if_most_fail_their_checks() {
    let targets = [Target::start().await, Target::start().await, Target::start().await];
    targets[1..].iter().for_each(|target| target.set_healthy(false));
    let origins: Vec<_> = targets.iter().map(|target| &target.origin).collect();
    let rules = rules(&origins, "{ path: /healthz, interval: 100ms, fall: 1, rise: 1 }");
    let gateway = TestGateway::start(&rules);
    for position in [1, 2] {
        until(&gateway, position, |target| target["state"] == "failed").await;
    }
    assert_eq!(api(&gateway, "upstreams").await[0]["panic"], true);
    assert_eq!(gateway.counter("tidegate_upstream_panic{upstream=\"api\"}").await, 1);
    soon(async {
        while targets.iter().any(|target| target.requests() == 0) {
            assert_eq!(gateway.get("/", "").await.status(), 200);
        }
    })
    .await;

    targets[1].set_healthy(true);
    until(&gateway, 1, |target| target["state"] == "usable").await;
    assert_eq!(gateway.counter("tidegate_upstream_panic{upstream=\"api\"}").await, 0);
    let before = targets[2].requests();
    for _ in 0..10 {
        assert_eq!(gateway.get("/", "").await.status(), 200);
    }
    assert_eq!(targets[2].requests(), before, "one of three fails");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovered_target_leaves_its_ejection_early() {
    let (good, bad) = (Target::start().await, Target::start_failing().await);
    bad.set_healthy(false);
    let text = rules(&[&good.origin, &bad.origin], "{ path: /healthz, interval: 100ms, fall: 100, rise: 2 }");
    let gateway = TestGateway::start(&text.replace("health:", "eject: { after: 1, for: 1h }, health:"));
    let failed = soon(async {
        loop {
            gateway.get("/", "").await;
            let target = until(&gateway, 1, |_| true).await;
            if target["state"] == "ejected" {
                return target["checks"]["failed"].as_u64();
            }
        }
    })
    .await;
    until(&gateway, 1, |target| target["checks"]["failed"].as_u64() > failed).await;
    bad.set_healthy(true);
    until(&gateway, 1, |target| target["state"] == "usable").await;
    assert!(bad.requests() > 0);
}

/// The process is stopped while it waits for the response of a check, as by a machine that runs something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starved_gateway_does_not_fail_a_check() {
    let (checks, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let silent = Arc::new(AtomicBool::new(true));
    let is_silent = Arc::clone(&silent);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let (checks, is_silent) = (checks.clone(), Arc::clone(&is_silent));
        async move {
            while conn.request().await.is_some() {
                checks.send(()).expect("a receiver");
                if is_silent.load(SeqCst) {
                    _ = conn.raw.closed().await;
                    return;
                }
                conn.raw.send(OK).await;
            }
        }
    })
    .await;
    let text = rules(&[&origin], "{ path: /healthz, interval: 3s, timeout: 2s, fall: 1 }");
    let file = RuleFile::new("starved", &format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{text}"));
    let (program, _, admin) = Program::run(&file, &[]);
    soon(arrived.recv()).await.expect("a check");
    program.signal("STOP");
    // The timeout of the check passes while the process is stopped, so no event shows when it has passed.
    sleep(Duration::from_secs(3)).await;
    silent.store(false, SeqCst);
    program.signal("CONT");
    let target = soon(async {
        loop {
            let request = "GET /api/v1/upstreams HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let text = Raw::connect(admin).await.ask(request).await.text();
            let upstreams: Value = serde_json::from_str(&text).expect("JSON");
            let target = &upstreams[0]["targets"][0];
            if target["checks"]["last_passed"] == true {
                return target.clone();
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let checks = &target["checks"];
    assert_eq!((&checks["failed"], &checks["discarded"]), (&json!(0), &json!(1)), "{target}");
    assert_eq!(target["state"], "usable");
}
