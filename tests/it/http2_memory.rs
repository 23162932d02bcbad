//! The memory of HTTP/2 connections whose clients send large heads and bodies, and read nothing.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::process::{Program, RuleFile};
use crate::support::wire::frames::*;
use crate::support::wire::raw::Raw;
use crate::support::wire::upstream::{Origin, OriginConnection};
use crate::support::wire::{until, until_within};

/// The largest initial window.
const ALL_WINDOWS: [u8; 6] = [0, 4, 0x7f, 0xff, 0xff, 0xff];
/// The window of a connection before the first WINDOW_UPDATE.
const FIRST_WINDOW: usize = 65_535;

const CONNECTIONS: usize = 8;
/// The streams that a client may open on a connection.
const STREAMS: u32 = 100;

const KIB: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);
const REFUSED: &str = "tidegate_rejected_total{cause=\"waiting_heads\"}";

/// A gateway process with one worker.
struct Gateway {
    program: Program,
    address: SocketAddr,
    admin: SocketAddr,
    _file: RuleFile,
}

impl Gateway {
    fn start(name: &str, origin: SocketAddr) -> Self {
        // A busy machine may read later than the default of `body_timeout` permits.
        let rules = format!(
            "listen: {{ address: 127.0.0.1:0, body_timeout: 10m, min_rate: 0B }}
admin: 127.0.0.1:0
upstreams: {{ origin: {{ targets: ['http://{origin}'], max_connections: 4096, timeouts: {{ response: 1m }} }} }}
routes:
  - name: waiting
    match: {{ path: /waiting }}
    upstream: origin
    limits: [{{ name: slow, mode: OVERALL, rate: 1, interval: 1m, max_wait: 1h, queue: 10000 }}]
  - {{ name: all, match: {{}}, upstream: origin }}
"
        );
        let file = RuleFile::new(&format!("http2-memory-{name}"), &rules);
        let (program, address, admin) = Program::run(&file, &["--workers", "1"]);
        Self { program, address, admin, _file: file }
    }

    /// Connects clients that open all windows. Returns them with the memory of the gateway.
    async fn clients(&self) -> (Vec<Frames>, usize) {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = Frames::connect(self.address, &ALL_WINDOWS).await;
            client.frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()).await;
            client.find(|frame| frame.kind == SETTINGS).await;
            clients.push(client);
        }
        (clients, self.program.idle_memory().await)
    }

    /// Fails if each connection takes more memory than `max` KiB.
    async fn assert_growth(&self, before: usize, max: usize) {
        let each = self.program.idle_memory().await.saturating_sub(before) / KIB / CONNECTIONS;
        assert!(each <= max, "{each} KiB for each connection, more than {max} KiB");
    }

    async fn counter(&self, name: &str) -> u64 {
        let mut client = Raw::connect(self.admin).await;
        let metrics = client.ask("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or(" 0");
        line.trim().parse().expect("a number")
    }
}

fn streams() -> impl Iterator<Item = u32> {
    (1..2 * STREAMS).step_by(2)
}

/// Fields of 15 KB.
fn long_fields() -> Vec<(String, String)> {
    (0..15).map(|number| (format!("x-field-{number}"), "v".repeat(990))).collect()
}

/// An origin that reads a request and never responds.
async fn silent(reads: bool) -> Origin {
    Origin::start(move |mut conn: OriginConnection| async move {
        conn.head().await;
        if reads {
            _ = conn.raw.take_all().await;
        }
        std::future::pending::<()>().await;
    })
    .await
}

#[tokio::test]
async fn waiting_heads_are_bounded() {
    let origin = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let gateway = Gateway::start("heads", origin.address);
    let (mut clients, before) = gateway.clients().await;
    let long = long_fields();
    let fields: Vec<_> = long.iter().map(|(name, value)| (&**name, &**value)).collect();
    for client in &mut clients {
        for stream in streams() {
            client.open(stream, "GET", "/waiting", &fields, true).await;
        }
    }
    gateway.assert_growth(before, 2_048).await;

    // The requests that do not fit were refused, and others of the connection are served.
    let refused = gateway.counter(REFUSED).await;
    assert!((40..60).contains(&(refused / CONNECTIONS as u64)), "{refused} requests refused");
    let client = &mut clients[CONNECTIONS - 1];
    assert_eq!(client.find(|frame| frame.kind == RST_STREAM).await.number(0), REFUSED_STREAM);
    client.get(2 * STREAMS + 1, "/").await;
    assert_eq!(client.status(2 * STREAMS + 1).await, 200);
}

#[tokio::test]
async fn short_heads_are_not_refused() {
    let origin = silent(true).await;
    let gateway = Gateway::start("short-heads", origin.address);
    let (mut clients, _) = gateway.clients().await;
    let cookie = "c".repeat(4_000);
    for stream in streams() {
        clients[0].open(stream, "GET", "/", &[("cookie", &cookie)], true).await;
    }
    until(|| origin.connections() == STREAMS as usize).await;
    assert_eq!(gateway.counter(REFUSED).await, 0);
}

/// Starts an origin whose responses have heads of 60 KB. They begin when the returned sender sends `true`.
async fn long_heads() -> (Origin, watch::Sender<bool>) {
    let (release, released) = watch::channel(false);
    let origin = Origin::start(move |mut conn: OriginConnection| {
        let mut released = released.clone();
        async move {
            let field = format!("X-Field: {}\r\n", "v".repeat(990)).repeat(60);
            let head = format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 0\r\n\r\n");
            while timeout(5 * SECOND, conn.head()).await.is_ok_and(|head| head.is_some()) {
                released.wait_for(|released| *released).await.unwrap();
                if conn.raw.stream.write_all(head.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (origin, release)
}

#[tokio::test]
async fn unread_response_heads_are_bounded() {
    let (origin, release) = long_heads().await;
    let gateway = Gateway::start("responses", origin.address);
    let (mut clients, _) = gateway.clients().await;
    for (client, number) in clients.iter_mut().zip(1..) {
        for stream in streams() {
            client.get(stream, "/").await;
        }
        // Before the next client: the queue of new connections to the origin is short.
        until_within(60 * SECOND, || origin.connections() == number * STREAMS as usize).await;
    }
    let before = gateway.program.idle_memory().await;
    release.send(true).unwrap();
    gateway.assert_growth(before, 1_024).await;

    // A client that reads late gets all responses.
    for client in &mut clients {
        let mut responses = 0;
        while responses < STREAMS {
            let frame = client.next().await.unwrap();
            assert_ne!(frame.kind, RST_STREAM);
            responses += u32::from(frame.kind == HEADERS);
            assert!(frame.kind != HEADERS || frame.status() == 200);
        }
    }
}

/// Sends bodies of 60 kB on all streams, as far as the windows of each connection permit.
async fn send_uploads(clients: &mut [Frames], path: &str) {
    const LENGTH: usize = 60_000;
    let piece = vec![7; LENGTH / 4];
    for client in clients {
        for stream in streams() {
            client.open(stream, "PUT", path, &[("content-length", &LENGTH.to_string())], false).await;
        }
        let mut window = FIRST_WINDOW;
        'sending: for stream in streams() {
            for _ in 0..4 {
                while window < piece.len() {
                    let Ok(frame) = timeout(SECOND / 2, client.next()).await else { break 'sending };
                    let frame = frame.expect("a connection");
                    let opens = frame.kind == WINDOW_UPDATE && frame.stream == 0;
                    window += if opens { frame.number(0) as usize } else { 0 };
                }
                client.frame(DATA, 0, stream, &piece).await;
                window -= piece.len();
            }
        }
    }
}

async fn assert_uploads_are_bounded(name: &str, origin: Origin, path: &str) {
    let gateway = Gateway::start(name, origin.address);
    let (mut clients, before) = gateway.clients().await;
    send_uploads(&mut clients, path).await;
    gateway.assert_growth(before, 4_608).await;
}

#[tokio::test]
async fn uploads_that_wait_for_permits_are_bounded() {
    assert_uploads_are_bounded("waiting", silent(true).await, "/waiting").await;
}

#[tokio::test]
async fn uploads_that_wait_for_a_response_are_bounded() {
    assert_uploads_are_bounded("unanswered", silent(true).await, "/").await;
}

#[tokio::test]
async fn uploads_that_the_upstream_does_not_read_are_bounded() {
    assert_uploads_are_bounded("unread", silent(false).await, "/").await;
}
