//! Long bodies over HTTP/2 on both sides, in both directions at once: memory, and independence of streams.
//! `TIDEGATE_ECHO_MIB=1024` makes the bodies a gigabyte long.

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

/// The windows of one stream and of a connection, at both ends.
const WINDOW: u32 = 1 << 20;
const ALL_WINDOWS: u32 = 128 << 20;

/// The maximum growth of memory for a body of any length.
const MAX_GROWTH: u64 = 32 * MIB;

/// A gateway in front of an origin that echoes bodies.
struct Echo {
    program: Program,
    address: SocketAddr,
    /// The authority of the gateway's certificate, with TLS.
    authority: Option<Authority>,
    /// The origin, if it is a process.
    _origin: Option<Program>,
}

impl Echo {
    /// Starts a plaintext gateway, with an origin in the test.
    async fn plaintext() -> Self {
        Self::plaintext_to(origin().await)
    }

    fn plaintext_to(origin: SocketAddr) -> Self {
        let upstream = format!("targets: ['http://{origin}'], protocol: http2");
        let (program, address) = run("127.0.0.1:0", &upstream, "http");
        Self { program, address, authority: None, _origin: None }
    }

    /// Starts a gateway with TLS on both sides. The origin is another gateway.
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

    /// Connects to the gateway through this address.
    async fn client_at(&self, address: SocketAddr) -> SendRequest<Bytes> {
        match &self.authority {
            None => handshake(TcpStream::connect(address).await.expect("a gateway")).await,
            Some(authority) => {
                let client = TlsClient { protocols: &["h2"], ..TlsClient::new(authority) };
                handshake(client.connect(address).await.expect("a handshake").stream).await
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

async fn handshake(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(ALL_WINDOWS);
    let (sender, connection) = builder.handshake(stream).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// Starts an origin that echoes bodies, as fast as the client reads.
async fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                builder.initial_window_size(WINDOW).initial_connection_window_size(ALL_WINDOWS);
                let mut connection = builder.handshake::<_, Bytes>(stream).await.expect("a handshake");
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

/// Bodies repeat it.
static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// Sends a body of this length.
async fn send_all(to: &mut SendStream<Bytes>, length: u64) {
    for _ in 0..length / PIECE.len() as u64 {
        send(to, Bytes::from_static(&PIECE)).await;
    }
    to.send_data(Bytes::new(), true).expect("a stream");
}

/// Reads a body to its end, and returns its length.
async fn read_all(from: &mut RecvStream) -> u64 {
    let mut read = 0;
    while let Some(data) = next(from).await {
        assert!(data.chunks(PIECE.len()).all(|part| part == &PIECE[..part.len()]));
        read += data.len() as u64;
    }
    read
}

/// Sends a body of this length, and reads its echo in the meantime.
async fn exchange(client: &mut SendRequest<Bytes>, length: u64) {
    let request = Request::post("http://api.example/").body(()).expect("a request");
    let (response, mut to) = client.send_request(request, false).expect("a stream");
    let reading = async { read_all(&mut response.await.expect("a response").into_body()).await };
    let ((), read) = tokio::join!(send_all(&mut to, length), reading);
    assert_eq!(read, length);
}

/// Returns the length of a long body: `mib` MiB, or `TIDEGATE_ECHO_MIB`.
fn body_length(mib: u64) -> u64 {
    let asked = std::env::var("TIDEGATE_ECHO_MIB").ok().map(|text| text.parse().expect("a number"));
    asked.unwrap_or(mib) * MIB
}

#[tokio::test]
async fn memory_is_independent_of_the_body_length() {
    for (name, echo) in [("in plaintext", Echo::plaintext().await), ("over TLS", Echo::tls())] {
        let mut client = echo.client().await;
        exchange(&mut client, MIB).await;
        let before = echo.program.peak_memory();
        let (begin, length) = (Instant::now(), body_length(64));
        exchange(&mut client, length).await;
        let more = echo.program.peak_memory().saturating_sub(before) as u64;
        assert!(more < MAX_GROWTH, "{name}: {} KiB", more / 1024);
        print_rate(&format!("{} MiB both ways {name}: {} KiB more", length / MIB, more / 1024), begin, length);
    }
}

#[expect(clippy::print_stdout, reason = "prints measurements")]
fn print_rate(what: &str, begin: Instant, bytes: u64) {
    println!("{what}, {:.1} MB/s", bytes as f64 / begin.elapsed().as_secs_f64() / 1e6);
}
