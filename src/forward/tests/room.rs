//! What a request takes while it is under way: see docs/internals/performance.md.

use tower::Layer;

use super::*;
use crate::layer::RateLimitLayer;

/// Up to here the allocator serves at once.
const AT_ONCE: usize = 1024;

#[tokio::test]
async fn a_request_takes_no_more_room_than_the_allocator_gives_at_once() {
    let mut forward = Forward::new(Arc::new(Upstreams::new([], 1, &Metrics::new())));
    let mut limited =
        RateLimitLayer::from_yaml("routes: [{ name: all, match: { path: /** } }]").unwrap().layer(forward.clone());
    let request = || Request::new(RequestBody::none());
    let taken = [size_of_val(&*limited.call(request())), size_of_val(&*forward.call(request()))];
    assert!(taken.iter().all(|taken| *taken <= AT_ONCE), "{taken:?}");
}
