//! Long bodies over HTTP/2 on both sides, in both directions at once: what they take of memory, and who waits for whom.
//! `TIDEGATE_ECHO_MIB=1024` makes it a gigabyte.

mod far;
mod unread;
mod waiting;
mod windows;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::support::listening;
use crate::support::process::{Program, RuleFile, tidegate};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;

const MIB: u64 = 1024 * 1024;

/// As much as both ends may have on their way, for one stream and for all of them.
const WINDOW: u32 = 1 << 20;
const ALL_WINDOWS: u32 = 128 << 20;

/// How much memory it may take, whatever the length.
const MOST: u64 = 32 * MIB;

/// A gateway in front of an origin that sends back what it is sent.
struct Echo {
    program: Program,
    address: SocketAddr,
    /// Who has signed for the gateway, where it speaks TLS.
    authority: Option<Authority>,
    /// The origin, where it is a program.
    _origin: Option<Program>,
}

impl Echo {
    /// In clear, with an origin of the test's own.
    async fn clear() -> Self {
        Self::clear_to(origin().await)
    }

    fn clear_to(origin: SocketAddr) -> Self {
        let upstream = format!("targets: ['http://{origin}'], protocol: http2");
        let (program, address) = run("127.0.0.1:0", &upstream, "http");
        Self { program, address, authority: None, _origin: None }
    }

    /// Over TLS on both sides. The origin is another gateway.
    fn tls() -> Self {
        let authority = Authority::new();
        authority.sign("api", &["api.example", "localhost"]);
        let listen = listener(&authority, &["api"], "");
        let (origin, behind) = run(&listen, "targets: ['builtin:echo']", "https");
        let target = format!("targets: ['https://localhost:{}'], protocol: http2", behind.port());
        let upstream = format!("{target}, tls: {{ ca: '{}' }}", authority.path("ca.pem"));
        let (program, address) = run(&listen, &upstream, "https");
        Self { program, address, authority: Some(authority), _origin: Some(origin) }
    }

    async fn client(&self) -> SendRequest<Bytes> {
        self.client_at(self.address).await
    }

    /// A client that finds the gateway at this address.
    async fn client_at(&self, address: SocketAddr) -> SendRequest<Bytes> {
        match &self.authority {
            None => greet(TcpStream::connect(address).await.expect("a gateway")).await,
            Some(authority) => {
                let client = TlsClient { protocols: &["h2"], ..TlsClient::new(authority) };
                greet(client.connect(address).await.expect("a greeting").stream).await
            }
        }
    }
}

fn run(listen: &str, upstream: &str, scheme: &str) -> (Program, SocketAddr) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let rules = format!(
        "listen: {listen}\nadmin: off\nupstreams: {{ echo: {{ {upstream} }} }}
routes: [{{ name: all, match: {{}}, upstream: echo }}]\n"
    );
    let name = format!("http2-large-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let file = RuleFile::new(&name, &rules);
    let mut program = Program::start(&mut tidegate(&["run", "-c", file.path(), "--workers", "1"]));
    let address = listening::address(&mut program.stderr, &format!("listening on {scheme}://"));
    (program, address)
}

async fn greet(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(ALL_WINDOWS);
    let (sender, connection) = builder.handshake(stream).await.expect("a greeting");
    tokio::spawn(connection);
    sender
}

/// An origin that sends back what comes, as far as it is taken.
async fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                builder.initial_window_size(WINDOW).initial_connection_window_size(ALL_WINDOWS);
                let mut connection = builder.handshake::<_, Bytes>(stream).await.expect("a greeting");
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let mut to = respond.send_response(Response::new(()), false).expect("a client");
                    tokio::spawn(async move {
                        let mut from = request.into_body();
                        while let Some(data) = next(&mut from).await {
                            send(&mut to, data).await;
                        }
                        to.send_data(Bytes::new(), true).expect("a client");
                    });
                }
            });
        }
    });
    address
}

async fn next(from: &mut RecvStream) -> Option<Bytes> {
    let data = from.data().await?.expect("a body");
    from.flow_control().release_capacity(data.len()).expect("a window");
    Some(data)
}

async fn send(to: &mut SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        to.reserve_capacity(data.len());
        let capacity = poll_fn(|cx| to.poll_capacity(cx)).await.expect("a stream").expect("a window");
        to.send_data(data.split_to(capacity.min(data.len())), false).expect("a stream");
    }
}

/// Sends so many bytes, and then the end.
async fn send_all(to: &mut SendStream<Bytes>, length: u64) {
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    for _ in 0..length / piece.len() as u64 {
        send(to, piece.clone()).await;
    }
    to.send_data(Bytes::new(), true).expect("a stream");
}

/// Reads to the end; returns how many bytes there were.
async fn read_all(from: &mut RecvStream) -> u64 {
    let mut read = 0;
    while let Some(data) = next(from).await {
        assert!(data.iter().all(|byte| *byte == b'x'));
        read += data.len() as u64;
    }
    read
}

/// Sends so many bytes, and reads as many back meanwhile.
async fn exchange(client: &mut SendRequest<Bytes>, length: u64) {
    let request = Request::post("http://api.example/").body(()).expect("a request");
    let (response, mut to) = client.send_request(request, false).expect("a stream");
    let reading = async { read_all(&mut response.await.expect("an answer").into_body()).await };
    let ((), read) = tokio::join!(send_all(&mut to, length), reading);
    assert_eq!(read, length);
}

/// How many bytes are much, unless somebody asks for more.
fn much(mib: u64) -> u64 {
    let asked = std::env::var("TIDEGATE_ECHO_MIB").ok().map(|text| text.parse().expect("a number"));
    asked.unwrap_or(mib) * MIB
}

#[tokio::test]
async fn an_echo_of_a_long_body_takes_no_more_memory_than_one_of_a_short_body() {
    for (name, echo) in [("in clear", Echo::clear().await), ("over TLS", Echo::tls())] {
        let mut client = echo.client().await;
        exchange(&mut client, MIB).await;
        let before = echo.program.peak_memory();
        let (begin, length) = (Instant::now(), much(64));
        exchange(&mut client, length).await;
        let more = echo.program.peak_memory().saturating_sub(before) as u64;
        assert!(more < MOST, "{name}: {} KiB", more / 1024);
        tell(&format!("{} MiB both ways {name}: {} KiB more", length / MIB, more / 1024), begin, length);
    }
}

#[expect(clippy::print_stdout, reason = "what was measured is told")]
fn tell(what: &str, begin: Instant, bytes: u64) {
    println!("{what}, {:.1} MB/s", bytes as f64 / begin.elapsed().as_secs_f64() / 1e6);
}
