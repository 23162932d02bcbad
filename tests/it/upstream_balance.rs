//! How requests are distributed to the targets of an upstream, and which failing targets are ejected.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::support::gateway::TestGateway;
use crate::support::wire::until;
use crate::support::wire::upstream::{Origin, OriginConnection};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const ERROR: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

/// Starts a gateway with one upstream and one limit, which no test reaches.
fn start(upstream: &str) -> TestGateway {
    TestGateway::start(&format!(
        "upstreams: {{ api: {{ {upstream} }} }}
routes:
  - name: all
    match: {{ path: /** }}
    upstream: api
    limits: [{{ name: total, mode: OVERALL, rate: 1000, interval: 1h, algorithm: fixed_window }}]"
    ))
}

/// Sends requests one after the other. Returns their statuses.
async fn get(gateway: &TestGateway, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::with_capacity(requests);
    for _ in 0..requests {
        statuses.push(gateway.get("/", "").await.status());
    }
    statuses
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|other| **other == status).count()
}

#[tokio::test]
async fn round_robin_follows_the_weights() {
    let (light, heavy) = (Origin::with_response(OK).await, Origin::with_response(OK).await);
    let gateway = start(&format!(
        "targets: ['http://{}', {{ url: 'http://{}', weight: 3 }}], balance: round_robin",
        light.address, heavy.address
    ));
    // Each of the two workers has its own turns.
    let mut client = gateway.client().await;
    for _ in 0..40 {
        assert_eq!(crate::support::gateway::get(&mut client, "/", "").await.status(), 200);
    }
    assert_eq!((light.requests().len(), heavy.requests().len()), (10, 30));
}

#[tokio::test]
async fn least_requests_avoids_a_slow_target() {
    let slow = Origin::start(|mut conn: OriginConnection| async move {
        while conn.request().await.is_some() {} // never responds
    })
    .await;
    let fast = Origin::with_response(OK).await;
    let gateway = start(&format!("targets: ['http://{}', 'http://{}']", slow.address, fast.address));
    // A request that hangs at the slow target is in flight there, so that all others go to the fast one.
    let mut hanging = gateway.client().await;
    let mut sent = 0;
    while slow.requests().is_empty() {
        hanging = gateway.client().await;
        hanging.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        sent += 1;
        until(|| slow.requests().len() + fast.requests().len() == sent).await;
    }
    let before = fast.requests().len();
    assert_eq!(count(&get(&gateway, 50).await, 200), 50);
    assert_eq!((slow.requests().len(), fast.requests().len()), (1, before + 50));
    drop(hanging);
}

#[tokio::test]
async fn equal_keys_use_the_same_target() {
    let origins = [Origin::with_response(OK).await, Origin::with_response(OK).await, Origin::with_response(OK).await];
    let targets: Vec<_> = origins.iter().map(|origin| format!("'http://{}'", origin.address)).collect();
    let gateway = start(&format!("targets: [{}], balance: {{ hash: 'header:X-User' }}", targets.join(", ")));
    let mut used = 0;
    for user in 0..30 {
        origins.iter().for_each(Origin::clear_requests);
        for _ in 0..4 {
            assert_eq!(gateway.get("/", &format!("X-User: {user}\r\n")).await.status(), 200);
        }
        let requests: Vec<_> = origins.iter().map(|origin| origin.requests().len()).collect();
        let target = requests.iter().position(|requests| *requests == 4).unwrap_or_else(|| panic!("{requests:?}"));
        used |= 1 << target;
    }
    assert_eq!(used, 0b111);
}

#[tokio::test]
async fn dead_target_costs_no_client_a_request() {
    let (live, dead) = (Origin::with_response(OK).await, Origin::closed_port());
    let gateway = start(&format!("targets: ['http://{dead}', 'http://{}'], balance: round_robin", live.address));
    assert_eq!(count(&get(&gateway, 100).await, 200), 100);
    let series = format!(
        "tidegate_upstream_attempts_total{{upstream=\"api\",target=\"http://{dead}\",outcome=\"connect_failed\"}}"
    );
    assert_eq!(gateway.counter(&series).await, 2);
}

#[tokio::test]
async fn target_that_responds_with_errors_is_ejected() {
    let (broken, working) = (Origin::with_response(ERROR).await, Origin::with_response(OK).await);
    let gateway =
        start(&format!("targets: ['http://{}', 'http://{}'], balance: round_robin", broken.address, working.address));
    let statuses = get(&gateway, 100).await;
    assert_eq!((count(&statuses, 500), count(&statuses, 200)), (5, 95));
    assert_eq!(broken.requests().len(), 5);
}

#[tokio::test]
async fn last_target_stays_if_all_respond_with_errors() {
    let (one, other) = (Origin::with_response(ERROR).await, Origin::with_response(ERROR).await);
    let gateway =
        start(&format!("targets: ['http://{}', 'http://{}'], balance: round_robin", one.address, other.address));
    assert_eq!(count(&get(&gateway, 60).await, 500), 60);
    let (one, other) = (one.requests().len(), other.requests().len());
    assert_eq!((one.min(other), one + other), (5, 60));
}

#[tokio::test]
async fn too_many_requests_eject_no_target() {
    const LIMITED: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
    let (limited, other) = (Origin::with_response(LIMITED).await, Origin::with_response(OK).await);
    let gateway = start(&format!(
        "targets: ['http://{}', 'http://{}'], balance: round_robin, eject: {{ after: 1 }}",
        limited.address, other.address
    ));
    let statuses = get(&gateway, 40).await;
    assert!(count(&statuses, 429) >= 19, "{statuses:?}");
}

#[tokio::test]
async fn ejection_can_be_turned_off() {
    let (broken, working) = (Origin::with_response(ERROR).await, Origin::with_response(OK).await);
    let gateway = start(&format!(
        "targets: ['http://{}', 'http://{}'], balance: round_robin, eject: off",
        broken.address, working.address
    ));
    assert!(count(&get(&gateway, 40).await, 500) >= 19);
}

#[tokio::test]
async fn single_probe_decides_about_the_return() {
    let gate = Arc::new(Semaphore::new(0));
    let opener = Arc::clone(&gate);
    // The first request fails. The second one, the probe, gets its response when the test allows it.
    let failing = Origin::start(move |mut conn: OriginConnection| {
        let gate = Arc::clone(&gate);
        async move {
            while conn.request().await.is_some() {
                if conn.index == 0 {
                    conn.raw
                        .send("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                        .await;
                    return;
                }
                gate.acquire().await.expect("an open semaphore").forget();
                conn.raw.send(OK).await;
            }
        }
    })
    .await;
    let working = Origin::with_response(OK).await;
    let gateway = Arc::new(start(&format!(
        "targets: ['http://{}', 'http://{}'], balance: round_robin, eject: {{ after: 1, for: 1ms }}",
        failing.address, working.address
    )));
    while failing.requests().is_empty() {
        get(&gateway, 1).await;
    }
    let probe = {
        let gateway = Arc::clone(&gateway);
        tokio::spawn(async move {
            // One of these requests is the probe. It waits for the gate.
            get(&gateway, 1000).await
        })
    };
    until(|| failing.requests().len() == 2).await;
    assert_eq!(count(&get(&gateway, 30).await, 200), 30);
    assert_eq!(failing.requests().len(), 2, "only the probe");
    opener.add_permits(Semaphore::MAX_PERMITS / 2);
    until(|| failing.requests().len() > 10).await;
    probe.abort();
}

#[tokio::test]
async fn workers_and_reloads_share_an_ejection() {
    let (broken, working) = (Origin::with_response(ERROR).await, Origin::with_response(OK).await);
    let upstream =
        format!("targets: ['http://{}', 'http://{}'], balance: round_robin", broken.address, working.address);
    let rules = |more: &str| {
        format!(
            "upstreams: {{ api: {{ {upstream}{more} }} }}\nroutes: [{{ name: all, match: {{ path: /** }}, upstream: api }}]"
        )
    };
    let gateway = TestGateway::start(&rules(""));
    assert_eq!(count(&get(&gateway, 40).await, 500), 5);
    gateway.reload(&rules(", max_connections: 7"));
    assert_eq!(count(&get(&gateway, 40).await, 500), 0);
}
