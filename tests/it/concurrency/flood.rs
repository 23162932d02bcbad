//! A client over its limit with hundreds of connections, on a route with `concurrency`.

use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::support::gateway::{TestGateway, get};
use crate::support::redis::RedisServer;

use super::script_calls;

const CONNECTIONS: usize = 600;
/// Requests of each connection.
const REQUESTS: usize = 8;

/// Regression test: each rejected request took a slot with a separate call. Redis counted as unreachable, so that other
/// limits were granted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_client_disturbs_neither_slots_nor_other_limits() {
    let Some(redis) = RedisServer::start() else { return };
    let gateway = TestGateway::start(&format!(
        "store: {{ url: '{}', timeout: 5s }}
upstreams: {{ echo: {{ targets: ['builtin:echo'] }} }}
routes:
  - name: api
    match: {{ path: /api }}
    upstream: echo
    concurrency: {{ max: 20 }}
    limits: [{{ name: own, mode: PER_CLIENT, client: 'header:x-key', rate: 5, interval: 1h }}]
  - {{ name: other, match: {{}}, upstream: echo, limits: [{{ name: all, mode: OVERALL, rate: 10, interval: 1h }}] }}",
        redis.url()
    ));
    let before = script_calls(&redis);
    let mut greedy = JoinSet::new();
    for mut client in join_all((0..CONNECTIONS).map(|_| gateway.client())).await {
        greedy.spawn(async move {
            let mut admitted = 0;
            for _ in 0..REQUESTS {
                let status = get(&mut client, "/api", "X-Key: greedy\r\n").await.status();
                assert!([200, 429].contains(&status), "{status}");
                admitted += usize::from(status == 200);
            }
            admitted
        });
    }
    let (mut client, mut others) = (gateway.client().await, 0);
    for number in 0..40 {
        let honest = get(&mut client, "/api", &format!("X-Key: honest-{number}\r\n")).await;
        assert_eq!(honest.status(), 200, "request {number}");
        others += usize::from(get(&mut client, "/other", "").await.status() == 200);
    }
    assert_eq!((greedy.join_all().await.into_iter().sum::<usize>(), others), (5, 10));
    let metrics = gateway.admin_get("/metrics").await.text();
    assert!(!metrics.contains("tidegate_store_failures_total{"), "{metrics}");
    let calls = script_calls(&redis) - before;
    assert!(calls < 200, "{calls} calls for 50 grants");
}
