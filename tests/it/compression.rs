//! Compressed responses, with real sockets.

use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use flate2::write::GzDecoder as GzWriter;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// A text that becomes much shorter.
fn page() -> String {
    "<p>a paragraph of a page</p>\n".repeat(200)
}

fn rules(origin: &Origin, compression: &str) -> String {
    format!(
        "upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{}}, upstream: api, compression: {compression} }}]",
        origin.address
    )
}

/// Starts an origin whose responses have the fields that the query of the request names, separated by `&`. A `status=` is
/// the status.
async fn origin() -> Origin {
    Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.request().await {
            let target = request.start.split(' ').nth(1).expect("a target").to_owned();
            let (mut status, mut fields) = ("200".to_owned(), String::new());
            for pair in target.split_once('?').map_or("", |(_, query)| query).split('&') {
                match pair.split_once('=') {
                    Some(("status", value)) => value.clone_into(&mut status),
                    Some((name, value)) => {
                        fields += &format!(
                            "{name}: {}\r\n",
                            value.replace("%22", "\"").replace('+', " ").replace("%2B", "+")
                        );
                    }
                    None => {}
                }
            }
            let (page, has_body) = (page(), !matches!(&*status, "204" | "304") && !request.start.starts_with("HEAD"));
            let length = if matches!(&*status, "204" | "304") {
                String::new()
            } else {
                format!("Content-Length: {}\r\n", page.len())
            };
            let body = if has_body { &*page } else { "" };
            conn.raw.send(format!("HTTP/1.1 {status} OK\r\n{length}{fields}\r\n{body}")).await;
        }
    })
    .await
}

async fn ask(gateway: &TestGateway, method: &str, query: &str, fields: &str) -> Message {
    gateway.client().await.ask(format!("{method} /?{query} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await
}

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(bytes).read_to_string(&mut text).expect("gzip");
    text
}

fn unzstd(bytes: &[u8]) -> String {
    String::from_utf8(zstd::stream::decode_all(bytes).expect("zstd")).expect("text")
}

const GZIP: &str = "Accept-Encoding: gzip\r\n";

#[tokio::test]
async fn response_is_compressed_with_the_accepted_coding() {
    let origin = origin().await;
    let gateway = TestGateway::start(&rules(&origin, "true"));
    for (accept, expected) in [
        ("gzip", Some("gzip")),
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("zstd;q=0.1, gzip;q=0.2", Some("gzip")),
        ("gzip;q=0", None),
        ("br", None),
    ] {
        let fields = format!("Accept-Encoding: {accept}\r\n");
        let response = ask(&gateway, "GET", "Content-Type=text/html&ETag=%22a%22&Accept-Ranges=bytes", &fields).await;
        assert_eq!((response.status(), response.field("content-encoding").as_deref()), (200, expected), "{accept}");
        assert_eq!(response.field("vary").as_deref(), Some("accept-encoding"), "{accept}");
        let text = match expected {
            Some("gzip") => gunzip(&response.body),
            Some(_) => unzstd(&response.body),
            None => response.text(),
        };
        assert_eq!(text, page());
        let is_compressed = expected.is_some();
        assert_eq!(response.body.len() < page().len() / 10, is_compressed);
        let etag = if is_compressed { "W/\"a\"" } else { "\"a\"" };
        assert_eq!(response.field("etag").as_deref(), Some(etag));
        assert_eq!(
            [response.field("content-length"), response.field("accept-ranges")].map(|field| field.is_none()),
            [is_compressed; 2]
        );
        assert_eq!(
            origin.last_request().field("accept-encoding").as_deref(),
            Some(accept),
            "the upstream may compress"
        );
    }
}

/// `None` is a response without `Vary`.
#[tokio::test]
async fn only_suitable_responses_are_compressed() {
    let origin = origin().await;
    let gateway = TestGateway::start(&rules(&origin, "{ types: [text/*, application/*+json], min_size: 2KiB }"));
    let long = TestGateway::start(&rules(&origin, "{ min_size: 10KiB }"));
    for (query, is_compressed) in [
        ("Content-Type=text/html;charset=utf-8", true),
        ("Content-Type=application/problem%2Bjson", true),
        ("Content-Type=text/css&status=404", true),
        ("Content-Type=text/css&status=500", true),
        ("Content-Type=image/png", false),
        ("", false),
        ("Content-Type=text/html&Content-Encoding=br", false),
        ("Content-Type=text/html&Cache-Control=public,no-transform", false),
        ("Content-Type=text/html&Content-Range=bytes+0-5/9&status=206", false),
        ("Content-Type=text/html&status=204", false),
        ("Content-Type=text/html&Vary=Origin", true),
    ] {
        let response = ask(&gateway, "GET", query, GZIP).await;
        let coding = response.field("content-encoding").filter(|coding| coding == "gzip");
        assert_eq!(coding.is_some(), is_compressed, "{query}");
        let has_vary = response.field("vary").is_some_and(|vary| vary.contains("accept-encoding"));
        assert_eq!(has_vary, is_compressed, "{query}");
        if is_compressed {
            assert_eq!(gunzip(&response.body), page(), "{query}");
        }
        assert_eq!(ask(&long, "GET", query, GZIP).await.field("vary").filter(|vary| vary != "Origin"), None, "{query}");
    }
    let off = TestGateway::start(&rules(&origin, "false"));
    assert_eq!(ask(&off, "GET", "Content-Type=text/html", GZIP).await.text(), page());
    let refused =
        ask(&gateway, "GET", "Content-Type=text/html", &format!("{GZIP}Cache-Control: no-transform\r\n")).await;
    assert_eq!((refused.field("content-encoding"), refused.text()), (None, page()));
}

#[tokio::test]
async fn response_to_head_has_the_fields_of_get() {
    let origin = origin().await;
    let gateway = TestGateway::start(&rules(&origin, "true"));
    let query = "Content-Type=text/html&ETag=%22a%22";
    let (get, head) = (ask(&gateway, "GET", query, GZIP).await, ask(&gateway, "HEAD", query, GZIP).await);
    for name in ["content-encoding", "vary", "etag", "content-type", "content-length"] {
        assert_eq!(head.field(name), get.field(name), "{name}");
    }
    assert_eq!(head.field("content-encoding").as_deref(), Some("gzip"));
}

/// A cache finds its compressed version by the `ETag` that it got.
#[tokio::test]
async fn not_modified_has_the_etag_of_the_client() {
    let origin = origin().await;
    let gateway = TestGateway::start(&rules(&origin, "true"));
    for (known, expected) in [("W/\"a\"", "W/\"a\""), ("\"b\", W/\"a\"", "W/\"a\""), ("\"a\"", "\"a\"")] {
        let fields = format!("{GZIP}If-None-Match: {known}\r\n");
        let response = ask(&gateway, "GET", "status=304&ETag=%22a%22", &fields).await;
        assert_eq!((response.status(), response.field("etag").as_deref()), (304, Some(expected)), "{known}");
        assert_eq!(response.field("content-encoding"), None);
    }
}

#[tokio::test]
async fn client_of_http_1_0_gets_no_compressed_response() {
    let origin = origin().await;
    let gateway = TestGateway::start(&rules(&origin, "true"));
    let request = format!("GET /?Content-Type=text/html HTTP/1.0\r\nHost: a\r\n{GZIP}\r\n");
    let response = gateway.client().await.ask(request).await;
    assert_eq!((response.field("content-encoding"), response.text()), (None, page()));
}

/// Each event arrives before the next one exists.
#[tokio::test]
async fn events_are_flushed() {
    let next = Arc::new(Notify::new());
    let may_send = Arc::clone(&next);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let may_send = Arc::clone(&may_send);
        async move {
            conn.request().await;
            conn.raw
                .send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            for number in 0..3 {
                conn.raw.send(format!("9\r\ndata: {number}\n\n\r\n")).await;
                may_send.notified().await;
            }
            conn.raw.send("0\r\n\r\n").await;
        }
    })
    .await;
    let gateway = TestGateway::start(&rules(&origin, "true"));
    let mut client = gateway.client().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{GZIP}\r\n")).await;
    let head = client.head().await.expect("a head");
    assert_eq!(head.field("content-encoding").as_deref(), Some("gzip"));
    let mut decoder = GzWriter::new(Vec::new());
    for number in 0..3 {
        let expected: String = (0..=number).map(|number| format!("data: {number}\n\n")).collect();
        while decoder.get_ref().len() < expected.len() {
            let piece = client.chunk().await.expect("a chunk");
            assert!(!piece.is_empty(), "not the end");
            std::io::Write::write_all(&mut decoder, &piece).expect("gzip");
            std::io::Write::flush(&mut decoder).expect("gzip");
        }
        assert_eq!(String::from_utf8_lossy(decoder.get_ref()), expected);
        next.notify_one();
    }
    let mut piece = client.chunk().await.expect("a chunk");
    while !piece.is_empty() {
        std::io::Write::write_all(&mut decoder, &piece).expect("gzip");
        piece = client.chunk().await.expect("a chunk");
    }
    assert_eq!(decoder.finish().expect("a complete stream").len(), 3 * 9);
}

/// A client must not take the part for the whole.
#[tokio::test]
async fn truncated_response_is_truncated() {
    let received = Arc::new(Notify::new());
    let may_end = Arc::clone(&received);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let may_end = Arc::clone(&may_end);
        async move {
            conn.request().await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9000\r\n\r\n";
            conn.raw.send(format!("{head}{}", "x".repeat(5000))).await;
            may_end.notified().await;
        }
    })
    .await;
    let gateway = TestGateway::start(&rules(&origin, "true"));
    let mut client = gateway.client().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{GZIP}\r\n")).await;
    let head = client.head().await.expect("a head");
    assert_eq!((head.status(), head.field("content-encoding").as_deref()), (200, Some("gzip")));
    assert!(!client.chunk().await.expect("a chunk").is_empty());
    received.notify_one();
    while let Ok(chunk) = client.chunk().await {
        assert!(!chunk.is_empty(), "the response has an end");
    }
}

/// Without compression, the kernel would move this body past the gateway.
#[tokio::test]
async fn large_body_is_compressed_over_both_protocols() {
    let size = 3 << 20;
    let text: String = (0..size / 16).map(|number| format!("{number:015}\n")).collect();
    let body = Arc::new(text);
    let sent = Arc::clone(&body);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let sent = Arc::clone(&sent);
        async move {
            while conn.request().await.is_some() {
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", sent.len());
                conn.raw.send(head).await;
                conn.raw.send(sent.as_bytes()).await;
            }
        }
    })
    .await;
    let gateway = TestGateway::start(&rules(&origin, "{ codings: [zstd, gzip] }"));
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: zstd\r\n\r\n";
    let response = Raw::connect(gateway.address).await.ask(request).await;
    assert!(response.body.len() < size / 3 && unzstd(&response.body) == **body);

    let stream = TcpStream::connect(gateway.address).await.expect("a connection");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("a handshake");
    tokio::spawn(connection);
    let request = http::Request::get("http://a/").header("accept-encoding", "gzip").body(()).expect("a request");
    let response = soon(client.send_request(request, true).expect("sent").0).await.expect("a response");
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let (mut stream, mut received) = (response.into_body(), Vec::new());
    while let Some(piece) = soon(stream.data()).await {
        let piece = piece.expect("data");
        stream.flow_control().release_capacity(piece.len()).expect("capacity");
        received.extend_from_slice(&piece);
    }
    assert!(gunzip(&received) == **body);
}
