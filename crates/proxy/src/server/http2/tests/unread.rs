//! Clients that open all windows and do not read their socket, in virtual time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::Full;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::send_queue::FULL;
use super::*;

/// The length of a response body, which is a single frame of the service.
const BODY: usize = 60_000;
const STREAMS: usize = 100;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// SETTINGS_INITIAL_WINDOW_SIZE of 2^31 - 1, and a WINDOW_UPDATE that does the same for the connection.
const ALL_WINDOWS: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0";
const NO_WINDOWS: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";

struct Unread {
    client: UnixStream,
    queue: Arc<SendQueue>,
    metrics: Arc<Metrics>,
    requests: Arc<AtomicUsize>,
    connection: JoinHandle<()>,
    listen: Listen,
}

/// Frames that a client has read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    heads: usize,
    ends: usize,
    resets: usize,
    bytes: usize,
}

impl Unread {
    /// Starts a connection whose client has opened all windows. All requests get this response.
    async fn start(response: fn() -> Response<Full<Bytes>>) -> Self {
        let listen = Listen::new(ListenAddress::parse("127.0.0.1:0").unwrap());
        let metrics = Arc::new(Metrics::of_gateway(&[]));
        let context = Server::new(&listen, Arc::clone(&metrics), Drain::new().1).context;
        let (mut client, stream) = UnixStream::pair().unwrap();
        let activity = Arc::new(Activity::new(Instant::now()));
        let socket = MeteredSocket::new(Socket::new(Transport::Unix(stream), Arc::clone(&activity)));
        let requests = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&requests);
        let service = HandlerService(move |_, _| {
            counted.fetch_add(1, Relaxed);
            future::ready(response())
        });
        let peer: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let mut http2 = Http2::new(socket, service, peer.into(), Arc::clone(&context));
        let queue = Arc::clone(http2.counters.queue());
        let connection = tokio::spawn(async move {
            ConnectionDriver { activity, context }.drive(Pin::new(&mut http2), false).await;
        });
        client.write_all(PREFACE_AND_SETTINGS).await.unwrap();
        client.write_all(ALL_WINDOWS).await.unwrap();
        Self { client, queue, metrics, requests, connection, listen }
    }

    async fn get(&mut self, streams: impl Iterator<Item = usize>) {
        for stream in streams {
            let mut request = GET.to_vec();
            request[5..9].copy_from_slice(&u32::try_from(2 * stream + 1).unwrap().to_be_bytes());
            self.client.write_all(&request).await.unwrap();
        }
        self.settle().await;
    }

    /// Waits until no task can make progress.
    async fn settle(&self) {
        _ = timeout(Duration::from_millis(1), future::pending::<()>()).await;
    }

    /// Reads until this number of streams has ended, or the connection.
    async fn read(&mut self, ends: usize) -> Received {
        let mut received = Received::default();
        while received.ends + received.resets < ends {
            let mut head = [0; 9];
            if self.client.read_exact(&mut head).await.is_err() {
                break;
            }
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            self.client.read_exact(&mut payload).await.unwrap();
            match head[3] {
                DATA => received.bytes += payload.len(),
                HEADERS => received.heads += 1,
                RST_STREAM => received.resets += 1,
                PING if head[4] & ACK == 0 => {
                    self.client.write_all(&[&[0, 0, 8, PING, ACK, 0, 0, 0, 0], &payload[..]].concat()).await.unwrap();
                }
                _ => {}
            }
            received.ends += usize::from(matches!(head[3], DATA | HEADERS) && head[4] & END_STREAM != 0);
        }
        received
    }

    fn slow_readers(&self) -> bool {
        self.metrics.render().contains("tidegate_rejected_total{cause=\"slow_reader\"}")
    }
}

fn long_body() -> Response<Full<Bytes>> {
    Response::new(Full::from(vec![b'x'; BODY]))
}

/// Returns a response with 4 KiB of fields and no body.
fn long_head() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    for field in 0..20 {
        let name = HeaderName::try_from(format!("x-field-{field}")).unwrap();
        response.headers_mut().insert(name, HeaderValue::try_from("v".repeat(200)).unwrap());
    }
    response
}

#[tokio::test(start_paused = true)]
async fn unread_bodies_share_one_bound() {
    let mut unread = Unread::start(long_body).await;
    unread.get(0..STREAMS).await;
    let queued = unread.queue.queued();
    assert!((FULL / 2..FULL + BODY + 4096).contains(&queued), "{queued} bytes");
    let expected = Received { heads: STREAMS, ends: STREAMS, resets: 0, bytes: STREAMS * BODY };
    assert_eq!(unread.read(STREAMS).await, expected);
    unread.settle().await;
    assert_eq!((unread.queue.queued(), unread.slow_readers()), (0, false));
}

#[tokio::test(start_paused = true)]
async fn full_queue_holds_back_further_requests() {
    let mut unread = Unread::start(long_body).await;
    unread.get(0..20).await;
    assert_eq!(unread.requests.load(Relaxed), 20);
    unread.get(20..STREAMS).await;
    assert_eq!(unread.requests.load(Relaxed), 20);
    assert_eq!(unread.read(STREAMS).await.bytes, STREAMS * BODY);
    assert_eq!(unread.requests.load(Relaxed), STREAMS);
}

#[tokio::test(start_paused = true)]
async fn unread_heads_count_until_they_are_written() {
    let mut unread = Unread::start(long_head).await;
    let mut opened = 0;
    while unread.requests.load(Relaxed) == opened {
        unread.get(opened..opened + 10).await;
        opened += 10;
    }
    let queued = unread.queue.queued();
    assert!((FULL / 2..2 * FULL).contains(&queued), "{queued} bytes of {opened} heads");
    assert_eq!(unread.read(opened).await.heads, opened);
    unread.settle().await;
    assert_eq!(unread.queue.queued(), 0);
}

#[tokio::test(start_paused = true)]
async fn reset_streams_free_their_share_of_the_queue() {
    let mut unread = Unread::start(long_body).await;
    unread.get(0..20).await;
    let full = unread.queue.queued();
    for stream in 0..20_u32 {
        let frame = [&[0, 0, 4, RST_STREAM, 0][..], &(2 * stream + 1).to_be_bytes(), &8_u32.to_be_bytes()].concat();
        unread.client.write_all(&frame).await.unwrap();
    }
    unread.settle().await;
    assert!(unread.queue.queued() < full / 4, "{} of {full} bytes", unread.queue.queued());
}

#[tokio::test(start_paused = true)]
async fn client_that_never_reads_is_closed() {
    let mut unread = Unread::start(long_body).await;
    unread.get(0..STREAMS).await;
    timeout(2 * unread.listen.body_timeout, &mut unread.connection).await.expect("closed").unwrap();
    assert!(unread.slow_readers());
    unread.settle().await;
    assert_eq!(unread.queue.queued(), 0);
}

/// Data that was queued before the client closed the window stays in the queue, although the socket is writable.
#[tokio::test(start_paused = true)]
async fn closed_window_over_queued_data_ends_its_streams() {
    let mut unread = Unread::start(long_body).await;
    unread.get(0..STREAMS).await;
    unread.client.write_all(NO_WINDOWS).await.unwrap();
    let start = Instant::now();
    let received = timeout(3 * unread.listen.body_timeout, unread.read(STREAMS)).await.expect("all streams end");
    assert!(received.resets > 0, "{received:?}");
    assert!(start.elapsed() >= unread.listen.body_timeout && unread.slow_readers());
}

/// 100 streams of a client that reads 30 kB/s: each of them waits longer than `body_timeout`.
#[tokio::test(start_paused = true)]
async fn slow_client_receives_all_of_a_hundred_streams() {
    let mut unread = Unread::start(long_body).await;
    unread.get(0..STREAMS).await;
    let mut piece = vec![0; 30_000];
    let mut read = 0;
    while read < STREAMS * BODY {
        let count = unread.client.read(&mut piece).await.unwrap();
        assert_ne!(count, 0, "closed after {read} bytes");
        read += count;
        _ = timeout(Duration::from_secs(1), future::pending::<()>()).await;
        // The gateway expects a sign of life after a while.
        unread.client.write_all(&[&[0, 0, 8, PING, ACK][..], &[0; 12]].concat()).await.unwrap();
    }
    assert!(!unread.slow_readers());
}
