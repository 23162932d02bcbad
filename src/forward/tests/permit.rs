//! Without a permit, nothing passes.

use super::*;

#[tokio::test]
async fn a_request_without_a_permit_is_not_forwarded() {
    let origin = Origin::with_response(OK).await;
    let forward = Forward::new(Arc::new(Upstreams::new([], 1, &Metrics::new())));
    let listen = Listen::new("127.0.0.1:0".parse().unwrap());
    let listener = bind_one(&listen.address);
    let address = listener.local_addr().unwrap();
    let (_trigger, drain) = Drain::new();
    tokio::spawn(Server::new(&listen, Arc::new(Metrics::new()), drain).serve(listener, forward));
    assert_eq!(Raw::connect(address).await.ask(get("/")).await.status(), 500);
    assert!(origin.requests().is_empty());
}
