//! Sends the same bytes to the gateway and to hyper. The gateway must forward only requests that hyper's server reads
//! in the same way, and only responses that hyper's client reads in the same way.
//!
//! The bytes are attacks from `attacks/`, concatenated, with random changes.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::case_count;

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
use crate::attacks::run::{Harness, Pieces};
use crate::attacks::{cases, origin::Origin};

const MAX_WAIT: Duration = Duration::from_millis(500);

/// A request that ends the connection. Repeated, so that one of them is outside any body.
const END: &[u8] = b"GET /end HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// `METHOD TARGET`, and the body.
type Asked = (String, Vec<u8>);

/// Starts a server with hyper, which records its requests.
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

/// Sends bytes, and waits until the connection ends. Closes it after `max_wait`.
async fn send_to_hyper(address: SocketAddr, bytes: &[u8], max_wait: Duration) {
    let mut client = crate::support::wire::raw::Raw::connect(address).await;
    client.send(bytes).await;
    if timeout(max_wait, client.rest()).await.is_err() {
        _ = tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await;
        _ = client.rest().await;
    }
}

/// Returns the status and the body of the origin's response as read by hyper's client. Returns `None` if it is
/// incomplete after `max_wait`.
async fn hyper_reads(origin: &Origin, method: &str, max_wait: Duration) -> Option<(u16, Vec<u8>)> {
    let stream = TcpStream::connect(origin.address).await.ok()?;
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.allow_spaces_after_header_name_in_responses(true); // a proxy removes them (RFC 9112 section 5.1)
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri("/a").header("host", "a.example");
    let reading = async {
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.into_body().collect().await.ok()?.to_bytes().to_vec()))
    };
    timeout(max_wait, reading).await.ok().flatten()
}

/// Returns `true` if `some` is a subsequence of `all`.
fn is_subsequence(some: &[Asked], all: &[Asked]) -> bool {
    let mut all = all.iter();
    some.iter().all(|one| all.any(|other| other == one))
}

/// Concatenates some of the attacks, and changes a few bytes.
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

/// The number of random requests or responses of a test.
const CASES: u32 = 768;

fn run(bytes: impl Strategy<Value = Vec<u8>>, holds: impl Fn(&Runtime, &[u8]) -> Result<(), String>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: case_count(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&bytes, |bytes| {
        let failure = |why| TestCaseError::fail(format!("{why}, in {:?}", String::from_utf8_lossy(&bytes)));
        holds(&runtime, &bytes).map_err(failure)
    });
    outcome.unwrap();
}

#[test]
fn forwarded_requests_are_read_alike_by_hyper() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (harness, (hyper, asked)) = runtime.block_on(async { (Harness::start().await, hyper_server().await) });
    // Without targets, which other tests cover, and without CONNECT, for which hyper opens a tunnel.
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
        let compare = |max_wait| {
            asked.lock().clear();
            let got = runtime.block_on(async {
                send_to_hyper(hyper, &bytes, max_wait).await;
                harness.talk(&bytes, Pieces::WithMore, max_wait).await.1
            });
            harness.guarded.take_requests();
            if let Some(malformed) = harness.open.take_malformed().first() {
                return Err(format!("a malformed request at the origin: {malformed}"));
            }
            let ours: Vec<Asked> = got.into_iter().map(|got| (got.method_and_target().to_owned(), got.body)).collect();
            let theirs = asked.lock();
            forwarded.update(|count| count + ours.len());
            match is_subsequence(&ours, &theirs) {
                true => Ok(()),
                false => Err(format!("the gateway forwards {ours:?}, hyper reads {theirs:?}")),
            }
        };
        // Retries with longer waits: a busy machine may have ended an exchange too early.
        compare(MAX_WAIT).or_else(|_| compare(4 * MAX_WAIT)).or_else(|_| compare(10 * MAX_WAIT))
    });
    assert!(
        768 * forwarded.get() > 100 * case_count(CASES) as usize,
        "only {} requests were forwarded",
        forwarded.get()
    );
}

#[test]
fn forwarded_responses_are_read_alike_by_hyper() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let harness = runtime.block_on(Harness::start());
    let attacks = cases().into_iter().filter_map(|case| case.origin).map(|(response, _)| bytes(&response, 0));
    let attacks = attacks.filter(|bytes| (1..600).contains(&bytes.len())).collect();
    let (forwarded, rejected) = (Cell::new(0), Cell::new(0));
    run(changed(attacks, 2), |runtime, bytes| {
        let compare = |method, max_wait| {
            harness.open.set_response(Some((bytes.to_vec(), true)));
            let (ours, theirs) = runtime.block_on(async {
                (harness.ask(method, max_wait).await, hyper_reads(&harness.open, method, max_wait).await)
            });
            harness.open.take_requests();
            match ours {
                // The gateway rejected the response of the origin.
                Some((502, _)) => rejected.update(|count| count + 1),
                Some(ours) if Some(&ours) != theirs.as_ref() => {
                    return Err(format!("to {method} the gateway's client reads {ours:?}, hyper's {theirs:?}"));
                }
                Some(_) => forwarded.update(|count| count + 1),
                None => {}
            }
            Ok(())
        };
        // Retries with longer waits: on a busy machine hyper may have read an incomplete response.
        ["GET", "HEAD"].into_iter().try_for_each(|method| {
            compare(method, MAX_WAIT)
                .or_else(|_| compare(method, 4 * MAX_WAIT))
                .or_else(|_| compare(method, 10 * MAX_WAIT))
        })
    });
    let (forwarded, rejected) = (forwarded.get(), rejected.get());
    assert!(768 * forwarded.min(rejected) > 200 * case_count(CASES), "{forwarded} forwarded and {rejected} rejected");
}
