//! The memory of compressed responses, and the most responses that a gateway compresses at a time (docs/security.md).

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use flate2::write::GzDecoder;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;

use crate::support::process::{Program, RuleFile};
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::upstream::{Origin, OriginConnection};

/// The most responses at a time.
const MAX: usize = 512;

/// The responses with a long page. The others have a short one, which takes less time.
const LONG: usize = 64;

/// The most KiB for a response, with the buffers of its connections.
const MAX_EACH: usize = 1_024;

const CODINGS: [&str; 2] = ["gzip", "zstd"];

/// A gateway process with one worker, and an origin that sends half of each page.
struct Halves {
    program: Program,
    address: SocketAddr,
    /// Releases the second half of the page `/first`.
    release: Arc<Notify>,
    _origin: Origin,
    _file: RuleFile,
}

impl Halves {
    async fn start() -> Self {
        let release = Arc::new(Notify::new());
        let (released, long, short) = (Arc::clone(&release), Arc::new(chunk(&half())), chunk(&half()[..2_048]));
        let origin = Origin::start(move |mut conn: OriginConnection| {
            let (released, long, short) = (Arc::clone(&released), Arc::clone(&long), short.clone());
            async move {
                let Some(request) = conn.request().await else { return };
                let half = if request.start.contains("/short") { &short } else { &*long };
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
                conn.raw.send(format!("{head}{half}")).await;
                match request.start.contains("/first") {
                    true => released.notified().await,
                    false => std::future::pending().await,
                }
                conn.raw.send(format!("{half}0\r\n\r\n")).await;
            }
        })
        .await;
        let rules = format!(
            "listen: {{ address: 127.0.0.1:0, body_timeout: 10m, min_rate: 0B }}
admin: 127.0.0.1:0
upstreams: {{ origin: {{ targets: ['http://{}'], max_connections: 4096, timeouts: {{ idle: 10m }} }} }}
routes: [{{ name: all, match: {{}}, upstream: origin, compression: true }}]
",
            origin.address
        );
        let file = RuleFile::new("compression-memory", &rules);
        let (program, address, _) = Program::run(&file, &["--workers", "1"]);
        Self { program, address, release, _origin: origin, _file: file }
    }

    /// Requests a page. Returns the head of the response, and the connection with its body.
    async fn ask(&self, path: &str, coding: &str) -> (Message, Raw) {
        let mut client = Raw::connect(self.address).await;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n")).await;
        (client.head().await.expect("a head"), client)
    }

    /// Requests these pages, with each coding in turn. Returns the connections with the compressed bodies.
    async fn ask_all(&self, path: &str, numbers: std::ops::Range<usize>) -> Vec<Raw> {
        let mut clients = Vec::new();
        for number in numbers {
            let coding = CODINGS[number % 2];
            let (head, client) = self.ask(path, coding).await;
            assert_eq!(head.field("content-encoding").as_deref(), Some(coding), "response {number}");
            clients.push(client);
        }
        clients
    }
}

/// Returns half of a page, which is as long as the window of zstd: 4,096 lines of 32 bytes. Random parts fill the tables of
/// the encoder.
fn half() -> String {
    let line = |number: u64| format!("{:016x} of line {number:6}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (0..4_096).map(line).collect()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[tokio::test]
async fn memory_of_compressed_responses_is_bounded() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("more file descriptors");
    let halves = Halves::start().await;
    let (_, mut first) = halves.ask("/first", "gzip").await;
    let before = halves.program.idle_memory().await;
    let _long = halves.ask_all("/long", 1..LONG + 1).await;
    let each = halves.program.idle_memory().await.saturating_sub(before) / LONG / 1_024;
    assert!(each <= MAX_EACH, "{each} KiB for each response");

    let _short = halves.ask_all("/short", LONG + 1..MAX).await;
    let (further, _further) = halves.ask("/short", "gzip").await;
    assert_eq!((further.status(), further.field("content-encoding")), (200, None));
    assert_eq!(further.field("vary").as_deref(), Some("accept-encoding"));

    // The first response ends, and another one can be compressed.
    halves.release.notify_one();
    let mut page = GzDecoder::new(Vec::new());
    loop {
        let piece = first.chunk().await.expect("a chunk");
        if piece.is_empty() {
            break;
        }
        page.write_all(&piece).expect("gzip");
    }
    assert!(page.finish().expect("a whole page") == half().repeat(2).into_bytes());
    let (next, _next) = halves.ask("/short", "zstd").await;
    assert_eq!(next.field("content-encoding").as_deref(), Some("zstd"));
}
