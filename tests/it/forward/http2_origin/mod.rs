//! HTTP/2 origins.

mod attacks;
mod disconnects;
mod repeats;
mod streams;

use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;
use crate::support::wire::frames::{self, Frames};

/// A scripted HTTP/2 origin that records the heads of requests.
#[derive(Clone)]
struct H2Origin {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<http::request::Parts>>>,
    connections: Arc<Mutex<usize>>,
}

/// A request to the origin.
struct OriginRequest {
    head: http::request::Parts,
    body: RecvStream,
    respond: SendResponse<Bytes>,
}

impl H2Origin {
    /// Starts an origin that runs `script` for every request.
    async fn start<F, S>(script: S) -> Self
    where
        S: Fn(OriginRequest) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::with(Builder::new(), script).await
    }

    async fn with<F, S>(builder: Builder, script: S) -> Self
    where
        S: Fn(OriginRequest) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let origin = Self { address, heads: Arc::default(), connections: Arc::default() };
        let (heads, connections) = (origin.heads.clone(), origin.connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (builder, script, heads) = (builder.clone(), script.clone(), heads.clone());
                *connections.lock() += 1;
                tokio::spawn(async move {
                    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let (head, body) = request.into_parts();
                        heads.lock().push(head.clone());
                        tokio::spawn(script(OriginRequest { head, body, respond }));
                    }
                });
            }
        });
        origin
    }

    /// Starts an origin that answers every request with `ok`.
    async fn with_ok() -> Self {
        Self::start(|request| async move { request.respond_with("ok").await }).await
    }

    fn gateway(&self) -> Gateway {
        to(self.address).start()
    }

    fn connections(&self) -> usize {
        *self.connections.lock()
    }

    fn requests(&self) -> usize {
        self.heads.lock().len()
    }
}

impl OriginRequest {
    /// Reads the whole request, and responds.
    async fn respond_with(mut self, response: &'static str) {
        self.read_all().await.ok();
        let mut stream = self.respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(Bytes::from(response), true).ok();
    }

    /// Reads the whole body and the trailers.
    async fn read_all(&mut self) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
        let mut all = Vec::new();
        while let Some(data) = self.body.data().await {
            let data = data?;
            self.body.flow_control().release_capacity(data.len()).ok();
            all.extend_from_slice(&data);
        }
        Ok((all, self.body.trailers().await?))
    }
}

/// Returns the settings of a gateway for an HTTP/2 origin.
fn to(address: SocketAddr) -> Settings {
    Settings::to(address).set("protocol", "http2")
}

fn chunked(body: &str) -> String {
    format!("POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

#[tokio::test]
async fn http1_request_reaches_an_http2_origin() {
    let origin = H2Origin::start(|request| async move {
        let mut request = request;
        let (body, _) = request.read_all().await.unwrap();
        let head = Response::builder().status(201).header("x-one", "1").header("content-length", body.len());
        let mut stream = request.respond.send_response(head.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from(body), true).unwrap();
    })
    .await;
    let gateway = origin.gateway();
    let request = "POST /a/b?c=d HTTP/1.1\r\nHost: api.example:8080\r\nContent-Length: 4\r\nConnection: x-drop\r\n\
                   X-Drop: 1\r\nX-Own: 2\r\nCookie: a=1\r\n\r\nbody";
    let mut client = gateway.client().await;
    for _ in 0..3 {
        let response = client.ask(request).await;
        assert_eq!((response.status(), response.text().as_str()), (201, "body"));
        assert_eq!(response.field("x-one").as_deref(), Some("1"));
        assert_eq!(response.field("content-length").as_deref(), Some("4"));
        assert_eq!(response.field("via").as_deref(), Some("2 tidegate"));
    }
    assert_eq!((origin.connections(), origin.requests()), (1, 3));
    let head = origin.heads.lock()[0].clone();
    assert_eq!((head.method.as_str(), head.uri.to_string().as_str()), ("POST", "http://api.example:8080/a/b?c=d"));
    for (name, value) in [("x-own", Some("2")), ("cookie", Some("a=1")), ("content-length", Some("4"))] {
        assert_eq!(head.headers.get(name).map(|value| value.to_str().unwrap()), value, "{name}");
    }
    for name in ["host", "connection", "x-drop", "transfer-encoding", "te"] {
        assert_eq!(head.headers.get(name), None, "{name}");
    }
}

#[tokio::test]
async fn chunks_and_trailers_are_forwarded_in_both_directions() {
    let origin = H2Origin::start(|mut request| async move {
        let (body, trailers) = request.read_all().await.unwrap();
        let head = Response::builder().header("trailer", "x-sum");
        let mut stream = request.respond.send_response(head.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from(body), false).unwrap();
        let mut back = HeaderMap::new();
        back.insert("x-sum", trailers.map_or(HeaderValue::from_static("none"), |all| all["x-sent"].clone()));
        back.insert("content-length", HeaderValue::from_static("9"));
        stream.send_trailers(back).unwrap();
    })
    .await;
    let gateway = origin.gateway();
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\nTransfer-Encoding: chunked\r\n\
                   Trailer: x-sent\r\n\r\n3\r\nabc\r\n0\r\nx-sent: 7\r\n\r\n";
    let response = gateway.ask(request).await;
    assert_eq!((response.status(), response.text().as_str()), (200, "abc"));
    assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(response.field("trailer").as_deref(), Some("x-sum"));
    assert_eq!(origin.heads.lock()[0].headers["te"], "trailers");
}

#[tokio::test]
async fn bodiless_responses_have_no_body() {
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304), ("GET", 200)] {
        let origin = H2Origin::start(move |mut request| async move {
            let length = if status == 204 || method == "GET" && status == 200 { "0" } else { "9" };
            let head = Response::builder().status(status).header("content-length", length);
            request.respond.send_response(head.body(()).unwrap(), true).unwrap();
        })
        .await;
        let gateway = origin.gateway();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            let response = client.response(method == "HEAD").await;
            assert_eq!((response.status(), response.body.len()), (status, 0), "{method} {status}");
        }
        assert_eq!(origin.requests(), 2);
    }
}

#[tokio::test]
async fn informational_responses_and_100_are_forwarded() {
    let origin = H2Origin::start(|mut request| async move {
        for status in [103, 100] {
            request.respond.send_informational(Response::builder().status(status).body(()).unwrap()).unwrap();
        }
        request.respond_with("ok").await;
    })
    .await;
    let gateway = origin.gateway();
    let mut client = gateway.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!([client.head().await.unwrap().status(), client.head().await.unwrap().status()], [103, 100]);
    client.send("body").await;
    assert_eq!(client.response(false).await.status(), 200);
}

#[tokio::test]
async fn response_that_the_origin_resets_is_broken_off() {
    let arrived = Arc::new(Notify::new());
    let cut = arrived.clone();
    let origin = H2Origin::start(move |mut request: OriginRequest| {
        let cut = cut.clone();
        async move {
            let mut stream = request.respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from("half"), false).unwrap();
            cut.notified().await;
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
    })
    .await;
    let gateway = origin.gateway();
    let mut client = gateway.client().await;
    client.send(get("/")).await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert_eq!(client.chunk().await.unwrap(), b"half");
    arrived.notify_one();
    assert!(client.chunk().await.is_err());
    assert!(gateway.has_metric(r#"tidegate_upstream_broken_off_total{upstream="api",cause="closed"} 1"#));
}

#[tokio::test]
async fn silent_origin_times_out_before_and_within_its_response() {
    let origin = H2Origin::start(|mut request| async move {
        if request.head.uri.path() == "/half" {
            let mut stream = request.respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from("half"), false).unwrap();
            std::future::poll_fn(|cx| stream.poll_reset(cx)).await.unwrap();
            return;
        }
        std::future::poll_fn(|cx| request.respond.poll_reset(cx)).await.unwrap();
    })
    .await;
    let gateway = to(origin.address).timeout("idle", "200ms").timeout("response", "200ms").start();
    let response = gateway.ask(get("/none")).await;
    assert_eq!((response.status(), response.field("x-not-sent")), (504, None));
    let mut client = gateway.client().await;
    client.send(get("/half")).await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert_eq!(client.chunk().await.unwrap(), b"half");
    assert!(client.chunk().await.is_err());
    assert_eq!(origin.connections(), 1, "only the streams have ended");
}

#[tokio::test]
async fn disconnect_of_the_client_resets_the_stream() {
    let (signal, mut reset) = tokio::sync::mpsc::unbounded_channel();
    let origin = H2Origin::start(move |mut request: OriginRequest| {
        let signal = signal.clone();
        async move {
            let has_response = request.head.uri.path() == "/begun";
            let mut stream = has_response.then(|| request.respond.send_response(Response::new(()), false).unwrap());
            let reason = match &mut stream {
                Some(stream) => std::future::poll_fn(|cx| stream.poll_reset(cx)).await,
                None => std::future::poll_fn(|cx| request.respond.poll_reset(cx)).await,
            };
            signal.send(reason.unwrap()).unwrap();
        }
    })
    .await;
    let gateway = origin.gateway();
    for path in ["/waiting", "/begun"] {
        let mut client = gateway.client().await;
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")).await;
        let before = origin.requests();
        until(|| origin.requests() > before || before > 0).await;
        if path == "/begun" {
            assert_eq!(client.head().await.unwrap().status(), 200);
        }
        drop(client);
        assert_eq!(soon(reset.recv()).await.unwrap(), Reason::CANCEL, "{path}");
    }
}
