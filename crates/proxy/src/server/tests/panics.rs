//! Panics in the server's own tasks.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A handler that panics when it is cloned for the next connection.
struct Fragile(Arc<AtomicBool>);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!self.0.swap(false, Ordering::SeqCst), "on purpose");
        Self(Arc::clone(&self.0))
    }
}

impl testing::Handler for Fragile {
    type Body = Full<Bytes>;
    type Future = std::future::Ready<Response<Full<Bytes>>>;

    fn handle(&self, _: Request<RequestBody>, _: SocketAddr) -> Self::Future {
        std::future::ready(Response::new(Full::default()))
    }
}

#[tokio::test]
async fn listener_survives_a_panic_of_its_task() {
    let breaks = Arc::new(AtomicBool::new(false));
    let (_trigger, drain) = Drain::new();
    let listener = bind_one(&ListenAddress::parse("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    let server = Server::new(&listen(), Arc::new(Metrics::of_gateway(&[])), drain);
    let serving = tokio::spawn(server.serve(listener, testing::HandlerService(Fragile(Arc::clone(&breaks)))));
    assert_eq!(Raw::connect(address).await.ask(get("/")).await.status(), 200);
    breaks.store(true, Ordering::SeqCst);
    _ = soon(Raw::connect(address).await.rest()).await;
    assert_eq!(Raw::connect(address).await.ask(get("/")).await.status(), 200);
    assert!(!serving.is_finished());
}
