//! Configurations that change under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use super::*;
use crate::support::control_plane::UNKNOWN;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_and_broken_configurations_fail_no_call() {
    let mut plane = ControlPlane::start().await;
    let (service, mut stream) = start_with(&mut plane, &[edge(1_000_000)]).await;
    let (ended, mut clients) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for number in 0..4 {
        let (client, ended) = (service.client().await, Arc::clone(&ended));
        clients.spawn(async move {
            let mut calls = 0;
            while !ended.load(Ordering::Relaxed) {
                // An answer without the limit would mean that the domain was unknown for a moment.
                let (rate, _) = take(&client, &format!("client-{number}")).await.expect("a limit");
                assert!((1_000_000..1_000_020).contains(&rate), "{rate}");
                calls += 1;
            }
            calls
        });
    }
    for round in 0..20 {
        let (version, nonce) = (format!("{round}"), format!("n{round}"));
        let rate = 1_000_000 + round;
        match round % 4 {
            2 => {
                let broken = config("edge", [limited("user", UNKNOWN, rate)]);
                assert!(stream.push_and_wait(&version, &nonce, &[broken]).await.error_detail.is_some());
            }
            3 => {
                stream.close();
                stream = plane.stream().await;
                stream.request().await;
                assert_eq!(stream.push_and_wait(&version, &nonce, &[edge(rate)]).await.error_detail, None);
            }
            _ => {
                let more = config(&format!("domain-{round}"), [limited("user", HOUR, 1)]);
                assert_eq!(stream.push_and_wait(&version, &nonce, &[edge(rate), more]).await.error_detail, None);
            }
        }
    }
    ended.store(true, Ordering::Relaxed);
    let calls: Vec<u32> = clients.join_all().await;
    assert!(calls.iter().all(|calls| *calls > 0), "{calls:?}");
}
