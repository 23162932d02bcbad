//! Serves one connection, from its first byte to its end.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::activity::{Activity, Verdict};
use super::drain::Drain;
use super::protocol::{self, Protocol};
use super::service::{MAX_FIELD_BYTES, Service};
use super::stream::Watched;
use super::{Handler, Limits};

/// The most bytes of a message that are buffered in one direction, and of a head that are read before it is too large:
/// the limits on targets and fields in `service`, with some room to refuse with the right status.
const BUFFER: usize = 64 * 1024;
const MAX_HEAD: usize = 32 * 1024;

/// HTTP/2: streams at a time, and how far ahead of us a client may send.
const STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// While draining, a client that has connected and said nothing is given this long to say it.
const LAST_WORD: Duration = Duration::from_millis(250);

/// A protocol's connection.
trait Connection: Future<Output = hyper::Result<()>> {
    /// Answers what has begun, and nothing more.
    fn retire(self: Pin<&mut Self>);
}

/// Serves until the client leaves, keeps us waiting for too long, or everything drains.
pub(crate) async fn serve<H: Handler>(
    stream: TcpStream,
    peer: SocketAddr,
    handler: H,
    limits: Limits,
    mut drain: Drain,
) {
    let begin = Instant::now();
    // Without it, the end of an answer may wait for the client to acknowledge its beginning.
    _ = stream.set_nodelay(true);
    let first_byte = timeout(limits.header_timeout, protocol::detect(&stream));
    let detected = tokio::select! {
        biased;
        detected = first_byte => detected,
        () = last_word(&mut drain) => return,
    };
    let Ok(Ok(Some(protocol))) = detected else { return };
    let activity = Arc::new(Activity::new(begin, protocol));
    let service = Service::new(handler, peer, activity.clone());
    let io = TokioIo::new(Watched::new(stream, activity.clone()));
    match protocol {
        Protocol::Http1 => run(http1().serve_connection(io, service), &activity, &limits, drain).await,
        Protocol::Http2 => run(http2().serve_connection(io, service), &activity, &limits, drain).await,
    }
}

/// A client may close its sending half only when it leaves: whoever asks and hangs up wants no answer, and what is
/// done for it upstream is cancelled. That is what `half_close(false)`, the default, means.
fn http1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Its timer would also close connections between requests; `activity` tells the two apart. Its most fields are 100
    // without being told, and then cost no allocation.
    builder.header_read_timeout(None).max_buf_size(BUFFER).max_header_size(MAX_HEAD);
    builder
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(MAX_FIELD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(BUFFER);
    builder
}

async fn last_word(drain: &mut Drain) {
    drain.started().await;
    tokio::time::sleep(LAST_WORD).await;
}

/// Drives a connection beside its timer and the drain.
async fn run(connection: impl Connection, activity: &Activity, limits: &Limits, mut drain: Drain) {
    let mut connection = pin!(connection);
    let mut timer = pin!(sleep_until(Instant::now() + limits.header_timeout.min(limits.idle_timeout)));
    let mut retired = false;
    loop {
        tokio::select! {
            biased;
            // What goes wrong is the client's doing, and has been answered if it could be.
            _ = connection.as_mut() => return,
            () = drain.started(), if !retired => {
                connection.as_mut().retire();
                retired = true;
            }
            () = timer.as_mut() => match activity.judge(limits) {
                Verdict::Wait(until) => timer.as_mut().reset(until),
                Verdict::Retire if !retired => {
                    connection.as_mut().retire();
                    retired = true;
                    timer.as_mut().reset(Instant::now() + limits.header_timeout);
                }
                Verdict::Retire | Verdict::Close => return,
            }
        }
    }
}

// === impl Connection ===

impl<H: Handler> Connection for http1::Connection<TokioIo<Watched>, Service<H>> {
    fn retire(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<H: Handler> Connection for http2::Connection<TokioIo<Watched>, Service<H>, TokioExecutor> {
    fn retire(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
