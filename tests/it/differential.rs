//! The same bytes to the gateway and to hyper: nothing is forwarded that hyper's server takes for something else, and no
//! client reads an answer that hyper's client would read otherwise.
//!
//! The bytes are those of the attacks, one behind the other and with a few of them changed.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::attacks::format::bytes;
use crate::attacks::run::{Pieces, Stage};
use crate::attacks::{cases, origin::Origin};

const PATIENCE: Duration = Duration::from_millis(500);

/// However much of it is taken for a body: one of these requests is whole, and ends the connection.
const END: &[u8] = b"GET /end HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// `METHOD TARGET`, and the body.
type Asked = (String, Vec<u8>);

/// hyper's server, which remembers what it was asked.
async fn hyper_server() -> (SocketAddr, Arc<Mutex<Vec<Asked>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let shared = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let asked = Arc::clone(&shared);
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let asked = Arc::clone(&asked);
                async move {
                    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
                    let line = format!("{} {target}", request.method());
                    if let Ok(body) = request.into_body().collect().await {
                        asked.lock().push((line, body.to_bytes().to_vec()));
                    }
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, asked)
}

/// Sends these bytes, and waits until nothing comes any more.
async fn pour(address: SocketAddr, bytes: &[u8], patience: Duration) {
    let mut client = crate::support::wire::raw::Raw::connect(address).await;
    client.send(bytes).await;
    if timeout(patience, client.rest()).await.is_err() {
        _ = tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await;
        _ = client.rest().await;
    }
}

/// What hyper's client reads of an answer: its status and its whole body.
async fn hyper_reads(origin: &Origin, method: &str) -> Option<(u16, Vec<u8>)> {
    let stream = TcpStream::connect(origin.address).await.ok()?;
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.allow_spaces_after_header_name_in_responses(true); // a proxy removes them (RFC 9112 section 5.1)
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri("/a").header("host", "a.example");
    let reading = async {
        let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.into_body().collect().await.ok()?.to_bytes().to_vec()))
    };
    timeout(PATIENCE, reading).await.ok().flatten()
}

/// Are all of `some` among `all`, in this order?
fn is_among(some: &[Asked], all: &[Asked]) -> bool {
    let mut all = all.iter();
    some.iter().all(|one| all.any(|other| other == one))
}

/// Some of these attacks, one behind the other, with a few changes.
fn changed(attacks: Vec<Vec<u8>>, most: usize) -> impl Strategy<Value = Vec<u8>> {
    let change = (
        any::<prop::sample::Index>(),
        0..3_u8,
        prop_oneof![prop::sample::select(b"\r\n\0 -:;,0X\x80".to_vec()), any::<u8>()],
    );
    let attacks = prop::collection::vec(prop::sample::select(attacks), 1..=most).prop_map(|attacks| attacks.concat());
    (attacks, prop_oneof![2 => Just(Vec::new()).boxed(), 3 => prop::collection::vec(change, 1..3).boxed()]).prop_map(
        |(mut bytes, changes)| {
            for (at, kind, byte) in changes {
                let at = at.index(bytes.len());
                match kind {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => _ = bytes.remove(at),
                }
            }
            bytes
        },
    )
}

fn run(bytes: impl Strategy<Value = Vec<u8>>, holds: impl Fn(&Runtime, &[u8]) -> Result<(), String>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(768);
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&bytes, |bytes| {
        let told = |why| TestCaseError::fail(format!("{why}, in {:?}", String::from_utf8_lossy(&bytes)));
        holds(&runtime, &bytes).map_err(told)
    });
    outcome.unwrap();
}

#[test]
fn nothing_is_forwarded_that_another_server_takes_for_something_else() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stage, (theirs, asked)) = runtime.block_on(async { (Stage::start().await, hyper_server().await) });
    // What a target becomes is told by other tests, and hyper makes a tunnel of a CONNECT.
    let files = ["request_line", "host", "fields", "framing", "chunks", "trailers", "pipelining", "expect"];
    let attacks = cases()
        .into_iter()
        .filter(|case| case.pending.is_none() && files.iter().any(|file| case.place.starts_with(file)));
    let attacks = attacks
        .map(|case| bytes(&case.sent, 0))
        .filter(|bytes| (1..600).contains(&bytes.len()) && !bytes.starts_with(b"CONNECT"))
        .collect();
    let forwarded = Cell::new(0);
    run(changed(attacks, 3), |runtime, bytes| {
        let bytes = [bytes, &END.repeat(8)].concat();
        let compare = |patience| {
            asked.lock().clear();
            let got = runtime.block_on(async {
                pour(theirs, &bytes, patience).await;
                stage.talk(&bytes, Pieces::WithMore, patience).await.1
            });
            stage.guarded.take();
            if let Some(wrong) = stage.open.take_wrong().first() {
                return Err(format!("the origin was sent what is no request: {wrong}"));
            }
            let ours: Vec<Asked> = got.into_iter().map(|got| (got.method_and_target().to_owned(), got.body)).collect();
            let theirs = asked.lock();
            forwarded.update(|count| count + ours.len());
            if is_among(&ours, &theirs) { Ok(()) } else { Err(format!("we forward {ours:?}, hyper reads {theirs:?}")) }
        };
        // A machine that stood still for as long as we wait has cut a conversation short: what is true is true again.
        compare(PATIENCE).or_else(|_| compare(4 * PATIENCE)).or_else(|_| compare(10 * PATIENCE))
    });
    assert!(forwarded.get() > 100, "only {} requests were forwarded", forwarded.get());
}

#[test]
fn no_client_reads_an_answer_that_another_client_would_read_otherwise() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stage = runtime.block_on(Stage::start());
    let attacks = cases().into_iter().filter_map(|case| case.origin).map(|(said, _)| bytes(&said, 0));
    let attacks = attacks.filter(|bytes| (1..600).contains(&bytes.len())).collect();
    let (read, refused) = (Cell::new(0), Cell::new(0));
    run(changed(attacks, 2), |runtime, bytes| {
        for method in ["GET", "HEAD"] {
            stage.open.say(Some((bytes.to_vec(), true)));
            let (ours, theirs) =
                runtime.block_on(async { (stage.ask(method, PATIENCE).await, hyper_reads(&stage.open, method).await) });
            stage.open.take();
            match ours {
                // Our own word that there was no answer.
                Some((502, _)) => refused.update(|count| count + 1),
                Some(ours) if Some(&ours) != theirs.as_ref() => {
                    return Err(format!("to {method} our client reads {ours:?}, hyper's {theirs:?}"));
                }
                Some(_) => read.update(|count| count + 1),
                None => {}
            }
        }
        Ok(())
    });
    assert!(read.get() > 200 && refused.get() > 200, "{} read and {} refused", read.get(), refused.get());
}
