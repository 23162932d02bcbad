//! Tests for requests that panic, on real sockets.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use tower::Layer;

use super::*;
use crate::server::{Drain, DrainTrigger, GatewayConnections, Server, bind};
use crate::upstream::BoxError;
use crate::wire::raw::Raw;
use crate::wire::soon;
use tidegate_config::{Config, Listen, ListenAddress};
use tidegate_layer::layer::RateLimitLayer;
use tidegate_rules::client::AddressRules;

const RULES: &str = "
routes: [{ name: all, match: { path: /** }, limits: [{ name: l, mode: OVERALL, rate: 100, interval: 1h }] }]
";

/// A service that responds or panics, depending on the path.
#[derive(Clone)]
struct Panicking;

/// A body that panics after its first frame.
struct PanickingBody(usize);

struct Running {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    _trigger: DrainTrigger,
}

impl Service<Request<RequestBody>> for Panicking {
    type Response = Response<RequestBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let path = request.uri().path().to_owned();
        assert_ne!(path, "/panic/at-once", "a bug");
        Box::pin(async move {
            assert_ne!(path, "/panic", "a bug");
            let body = if path == "/late" { RequestBody::new(PanickingBody(1)) } else { RequestBody::none() };
            tokio::task::yield_now().await;
            Ok(Response::new(body))
        })
    }
}

impl Body for PanickingBody {
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        self.0 = self.0.checked_sub(1).expect("a bug in the middle of a body");
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"begun").into()))))
    }
}

fn start() -> Running {
    let metrics = Arc::new(Metrics::of_gateway(&[]));
    let layer = RateLimitLayer::new(&Config::parse(RULES).unwrap(), Arc::clone(&metrics)).unwrap();
    let service = AccessLogLayer::default().layer(layer.layer(Panicking));
    let listen = Listen::new(ListenAddress::parse("127.0.0.1:0").unwrap());
    let listener = bind(listen.address.tcp().unwrap(), 1, Vec::new()).unwrap().remove(0);
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let (trigger, drain) = Drain::new();
    let connections = GatewayConnections::new(usize::MAX, AddressRules::default(), Arc::clone(&metrics));
    let server = Server::with_connections(&connections, &listen, None, drain, |_| {});
    tokio::spawn(server.serve(listener, service));
    Running { address, metrics, _trigger: trigger }
}

/// Returns `true` if at least `min` panics were counted. Other tests in the process panic, too.
fn has_counted_panics(metrics: &Metrics, min: u64) -> bool {
    let text = metrics.render();
    let count = text.lines().find_map(|line| line.strip_prefix("tidegate_panics_total "));
    count.is_some_and(|count| count.parse::<u64>().unwrap() >= min)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[tokio::test]
async fn panic_gets_500_and_keeps_the_connection() {
    let server = start();
    let mut client = Raw::connect(server.address).await;
    for path in ["/panic", "/panic/at-once"] {
        let response = client.ask(get(path)).await;
        assert_eq!(response.status(), 500, "{response:?}");
        assert!(!response.text().contains("bug"), "{response:?}");
    }
    assert_eq!(client.ask(get("/a")).await.status(), 200);
    assert!(has_counted_panics(&server.metrics, 1));
    let failed = r#"tidegate_request_duration_seconds_count{route="all",status="5xx"} 2"#;
    assert!(server.metrics.render().contains(failed));
}

/// Regression test: gRPC clients report a 500 as UNKNOWN.
#[tokio::test]
async fn panic_in_a_grpc_call_is_an_internal_error() {
    let server = start();
    for path in ["/panic", "/panic/at-once"] {
        let call =
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n");
        let response = Raw::connect(server.address).await.ask(call).await;
        assert_eq!((response.status(), response.text().as_str()), (200, ""), "{response:?}");
        assert_eq!(response.field("grpc-status").as_deref(), Some("13"), "{response:?}");
        assert_eq!(response.field("content-type").as_deref(), Some("application/grpc"), "{response:?}");
    }
}

#[tokio::test]
async fn panic_in_a_body_aborts_only_that_response() {
    let server = start();
    let mut other = Raw::connect(server.address).await;
    let mut client = Raw::connect(server.address).await;
    // No byte of the response was written yet.
    assert_eq!(client.ask(get("/late")).await.status(), 502);
    assert_eq!(other.ask(get("/a")).await.status(), 200);
    assert!(has_counted_panics(&server.metrics, 1));
}

#[tokio::test]
async fn panic_ends_only_its_http2_stream() {
    let server = start();
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    let mut ask = |path: &str| {
        let uri = format!("http://a{path}");
        sender.send_request(Request::get(uri).body(Empty::<Bytes>::new()).unwrap())
    };
    assert_eq!(soon(ask("/panic")).await.unwrap().status(), 500);
    // The reset may arrive before the head.
    if let Ok(late) = soon(ask("/late")).await {
        assert!(soon(late.into_body().collect()).await.is_err());
    }
    assert_eq!(soon(ask("/a")).await.unwrap().status(), 200);
    assert!(has_counted_panics(&server.metrics, 2));
}
