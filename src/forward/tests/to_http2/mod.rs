//! Origins of HTTP/2.

mod attacks;
mod leaving;
mod refused;
mod streams;

use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;
use crate::wire::frames::{self, Frames as RawFrames};

/// An origin of HTTP/2 that does what a test tells it, and remembers the heads it was sent.
#[derive(Clone)]
struct H2Origin {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<http::request::Parts>>>,
    connections: Arc<Mutex<usize>>,
}

/// One request to it.
struct Asked {
    head: http::request::Parts,
    body: RecvStream,
    respond: SendResponse<Bytes>,
}

impl H2Origin {
    /// Runs `script` for every request.
    async fn start<F, S>(script: S) -> Self
    where
        S: Fn(Asked) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self::with(Builder::new(), script).await
    }

    async fn with<F, S>(builder: Builder, script: S) -> Self
    where
        S: Fn(Asked) -> F + Clone + Send + 'static,
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
                    let Ok(mut greeted) = builder.handshake::<_, Bytes>(stream).await else { return };
                    while let Some(Ok((request, respond))) = greeted.accept().await {
                        let (head, body) = request.into_parts();
                        heads.lock().push(head.clone());
                        tokio::spawn(script(Asked { head, body, respond }));
                    }
                });
            }
        });
        origin
    }

    /// Answers every request with `ok`.
    async fn saying_ok() -> Self {
        Self::start(|asked| async move { asked.say("ok").await }).await
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

impl Asked {
    /// Reads the request to its end, and answers.
    async fn say(mut self, answer: &'static str) {
        self.all().await.ok();
        let mut to = self.respond.send_response(Response::new(()), false).unwrap();
        to.send_data(Bytes::from(answer), true).ok();
    }

    /// The whole body, and how its stream ended.
    async fn all(&mut self) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
        let mut all = Vec::new();
        while let Some(data) = self.body.data().await {
            let data = data?;
            self.body.flow_control().release_capacity(data.len()).ok();
            all.extend_from_slice(&data);
        }
        Ok((all, self.body.trailers().await?))
    }
}

/// A gateway before an origin of HTTP/2.
fn to(address: SocketAddr) -> Settings {
    Settings { adjust: |upstream| upstream.protocol = Protocol::Http2, ..Settings::to(address) }
}

fn chunked(body: &str) -> String {
    format!("POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

#[tokio::test]
async fn a_request_of_http1_reaches_an_origin_of_http2_and_its_answer_comes_back() {
    let origin = H2Origin::start(|asked| async move {
        let mut asked = asked;
        let (body, _) = asked.all().await.unwrap();
        let head = Response::builder().status(201).header("x-one", "1").header("content-length", body.len());
        let mut to = asked.respond.send_response(head.body(()).unwrap(), false).unwrap();
        to.send_data(Bytes::from(body), true).unwrap();
    })
    .await;
    let gateway = origin.gateway();
    let asked = "POST /a/b?c=d HTTP/1.1\r\nHost: api.example:8080\r\nContent-Length: 4\r\nConnection: x-drop\r\nX-Drop: 1\r\nX-Kept: 2\r\nCookie: a=1\r\n\r\nbody";
    let mut client = gateway.client().await;
    for _ in 0..3 {
        let answer = client.ask(asked).await;
        assert_eq!((answer.status(), answer.text().as_str()), (201, "body"));
        assert_eq!(answer.field("x-one").as_deref(), Some("1"));
        assert_eq!(answer.field("content-length").as_deref(), Some("4"));
        assert_eq!(answer.field("via").as_deref(), Some("2 tidegate"));
    }
    assert_eq!((origin.connections(), origin.requests()), (1, 3));
    let head = origin.heads.lock()[0].clone();
    assert_eq!((head.method.as_str(), head.uri.to_string().as_str()), ("POST", "http://api.example:8080/a/b?c=d"));
    for (name, value) in [("x-kept", Some("2")), ("cookie", Some("a=1")), ("content-length", Some("4"))] {
        assert_eq!(head.headers.get(name).map(|value| value.to_str().unwrap()), value, "{name}");
    }
    for name in ["host", "connection", "x-drop", "transfer-encoding", "te"] {
        assert_eq!(head.headers.get(name), None, "{name}");
    }
}

#[tokio::test]
async fn chunks_and_trailers_pass_in_both_directions() {
    let origin = H2Origin::start(|mut asked| async move {
        let (body, trailers) = asked.all().await.unwrap();
        let head = Response::builder().header("trailer", "x-sum");
        let mut to = asked.respond.send_response(head.body(()).unwrap(), false).unwrap();
        to.send_data(Bytes::from(body), false).unwrap();
        let mut back = HeaderMap::new();
        back.insert("x-sum", trailers.map_or(HeaderValue::from_static("none"), |all| all["x-sent"].clone()));
        back.insert("content-length", HeaderValue::from_static("9"));
        to.send_trailers(back).unwrap();
    })
    .await;
    let gateway = origin.gateway();
    let asked = "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te\r\nTransfer-Encoding: chunked\r\nTrailer: x-sent\r\n\r\n3\r\nabc\r\n0\r\nx-sent: 7\r\n\r\n";
    let answer = gateway.ask(asked).await;
    assert_eq!((answer.status(), answer.text().as_str()), (200, "abc"));
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(answer.field("trailer").as_deref(), Some("x-sum"));
    assert_eq!(origin.heads.lock()[0].headers["te"], "trailers");
}

#[tokio::test]
async fn an_answer_without_a_body_has_none() {
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304), ("GET", 200)] {
        let origin = H2Origin::start(move |mut asked| async move {
            let length = if status == 204 || method == "GET" && status == 200 { "0" } else { "9" };
            let head = Response::builder().status(status).header("content-length", length);
            asked.respond.send_response(head.body(()).unwrap(), true).unwrap();
        })
        .await;
        let gateway = origin.gateway();
        let mut client = gateway.client().await;
        for _ in 0..2 {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            let answer = client.response(method == "HEAD").await;
            assert_eq!((answer.status(), answer.body.len()), (status, 0), "{method} {status}");
        }
        assert_eq!(origin.requests(), 2);
    }
}

#[tokio::test]
async fn an_origin_that_informs_is_waited_for_and_a_body_that_waits_is_asked_for() {
    let origin = H2Origin::start(|mut asked| async move {
        for status in [103, 100] {
            asked.respond.send_informational(Response::builder().status(status).body(()).unwrap()).unwrap();
        }
        asked.say("ok").await;
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
async fn an_answer_that_its_origin_cuts_off_is_cut_off_to_the_client() {
    let arrived = Arc::new(Notify::new());
    let cut = arrived.clone();
    let origin = H2Origin::start(move |mut asked: Asked| {
        let cut = cut.clone();
        async move {
            let mut to = asked.respond.send_response(Response::new(()), false).unwrap();
            to.send_data(Bytes::from("half"), false).unwrap();
            cut.notified().await;
            to.send_reset(Reason::INTERNAL_ERROR);
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
    assert!(
        gateway.metrics.render().contains(r#"tidegate_upstream_broken_off_total{upstream="api",cause="closed"} 1"#)
    );
}

#[tokio::test]
async fn an_origin_that_is_silent_too_long_is_given_up_before_and_within_its_answer() {
    let origin = H2Origin::start(|mut asked| async move {
        if asked.head.uri.path() == "/half" {
            let mut to = asked.respond.send_response(Response::new(()), false).unwrap();
            to.send_data(Bytes::from("half"), false).unwrap();
            std::future::poll_fn(|cx| to.poll_reset(cx)).await.unwrap();
            return;
        }
        std::future::poll_fn(|cx| asked.respond.poll_reset(cx)).await.unwrap();
    })
    .await;
    let adjust: fn(&mut UpstreamSettings) = |api| {
        (api.protocol, api.body_timeout) = (Protocol::Http2, Duration::from_millis(200));
    };
    let response_timeout = Duration::from_millis(200);
    let gateway = Settings { adjust, response_timeout, ..Settings::to(origin.address) }.start();
    let answer = gateway.ask(get("/none")).await;
    assert_eq!((answer.status(), answer.field("x-not-sent")), (504, None));
    let mut client = gateway.client().await;
    client.send(get("/half")).await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert_eq!(client.chunk().await.unwrap(), b"half");
    assert!(client.chunk().await.is_err());
    assert_eq!(origin.connections(), 1, "only the streams are over");
}

#[tokio::test]
async fn a_client_that_leaves_has_its_stream_reset() {
    let (signal, mut reset) = tokio::sync::mpsc::unbounded_channel();
    let origin = H2Origin::start(move |mut asked: Asked| {
        let signal = signal.clone();
        async move {
            let begun = asked.head.uri.path() == "/begun";
            let mut to = begun.then(|| asked.respond.send_response(Response::new(()), false).unwrap());
            let reason = match &mut to {
                Some(to) => std::future::poll_fn(|cx| to.poll_reset(cx)).await,
                None => std::future::poll_fn(|cx| asked.respond.poll_reset(cx)).await,
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
