//! Reloaded upstreams: equal ones keep their connections, changed and removed ones lose them.

use super::{GatedOrigin, rules};
use crate::support::gateway::{TestGateway, get};
use crate::support::wire::{soon, until};

fn two(first: &GatedOrigin, second: &GatedOrigin, more: &str) -> String {
    format!(
        "upstreams:
  first: {{ targets: ['http://{}'] }}
  second: {{ targets: ['http://{}']{more} }}
routes:
  - {{ name: first, match: {{ path: /first }}, upstream: first }}
  - {{ name: second, match: {{ path: /second }}, upstream: second }}",
        first.address(),
        second.address()
    )
}

#[tokio::test]
async fn only_changed_upstreams_lose_their_connections() {
    let (first, second) = (GatedOrigin::start("first").await, GatedOrigin::start("second").await);
    first.open(9);
    second.open(9);
    let gateway = TestGateway::start(&two(&first, &second, ""));
    // One client connection, so that one worker serves all requests.
    let mut client = gateway.client().await;
    let mut ask = async |path: &str| assert_eq!(get(&mut client, path, "").await.status(), 200);
    ask("/first").await;
    ask("/second").await;
    gateway.reload(&two(&first, &second, ", timeouts: { response: 9s }"));
    until(|| second.closed() == 1).await;
    ask("/first").await;
    ask("/second").await;
    assert_eq!((first.origin.connections(), second.origin.connections()), (1, 2));
    assert_eq!(first.closed(), 0);
}

#[tokio::test]
async fn removed_upstream_closes_its_idle_connections() {
    let (first, second) = (GatedOrigin::start("first").await, GatedOrigin::start("second").await);
    first.open(9);
    let gateway = TestGateway::start(&two(&first, &second, ""));
    assert_eq!(gateway.get("/first", "").await.status(), 200);
    gateway.reload(&rules(second.address(), ""));
    until(|| first.closed() == 1).await;
    // The series of the upstream end with it.
    soon(async { while gateway.admin_get("/metrics").await.text().contains("upstream=\"first\"") {} }).await;
    gateway.reload(&two(&first, &second, ""));
    assert_eq!(gateway.get("/first", "").await.status(), 200, "the upstream works again after it was added again");
}
