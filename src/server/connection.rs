//! Serves one connection, from its first byte to its end.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::activity::Activity;
use super::drain::Drain;
use super::http1::Http1;
use super::protocol::{self, Protocol};
use super::service::{MAX_FIELD_BYTES, Service};
use super::slots::Slot;
use super::stream::Watched;
use super::watch::{End, Watch};
use super::{Handler, Terms};

/// HTTP/2: the most bytes of a stream that wait to be sent, streams at a time, and how far ahead of us a client may send.
const BUFFER: usize = 64 * 1024;
const STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// While draining, a client that has connected and said nothing is given this long to say it.
const LAST_WORD: Duration = Duration::from_millis(250);

/// A client's connection. It is all that there is of one that rests, so its size counts.
struct Client<H> {
    /// None while requests are served.
    io: Option<Watched>,
    handler: H,
    peer: SocketAddr,
    watch: Watch,
    _slot: Slot,
}

/// Serves until the client leaves, keeps us waiting for too long, or everything drains.
pub(crate) fn serve<H: Handler>(
    stream: TcpStream,
    peer: SocketAddr,
    handler: H,
    terms: Arc<Terms>,
    slot: Slot,
) -> impl Future<Output = ()> + Send {
    // Without it, the end of an answer may wait for the client to acknowledge its beginning.
    _ = stream.set_nodelay(true);
    let activity = Arc::new(Activity::new(Instant::now()));
    let io = Some(Watched::new(stream, activity.clone()));
    let mut client = Client { io, handler, peer, watch: Watch { activity, terms }, _slot: slot };
    // Stages that are short or rare are boxed: in line, each would make every connection larger.
    async move {
        match Box::pin(client.first_bytes()).await {
            Some(Protocol::Http1) => while Box::pin(client.serve_http1()).await && client.next_request().await {},
            Some(Protocol::Http2) => Box::pin(client.serve_http2()).await,
            None => {}
        }
    }
}

async fn last_word(drain: &Drain) {
    drain.started().await;
    tokio::time::sleep(LAST_WORD).await;
}

// === impl Client ===

impl<H: Handler> Client<H> {
    /// What the client speaks; nothing if it says nothing in time.
    async fn first_bytes(&mut self) -> Option<Protocol> {
        let (io, watch) = (self.io.as_mut()?, &self.watch);
        let first_byte = timeout(watch.terms.limits.header_timeout, protocol::detect(io.socket()));
        let protocol = tokio::select! {
            biased;
            detected = first_byte => detected.ok()?.ok()?,
            () = last_word(&watch.terms.drain) => None,
        };
        watch.activity.speaks(protocol?);
        protocol
    }

    /// Serves requests until none come for a while. Whether there may be more: what serves them, buffers above all, is
    /// there while they come, and gone while none do.
    async fn serve_http1(&mut self) -> bool {
        let Some(io) = self.io.take() else { return false };
        let mut connection = Http1::new(io, self.handler.clone(), self.peer);
        match self.watch.drive(Pin::new(&mut connection), true).await {
            End::Over => false,
            End::Resting => {
                self.io = connection.into_stream();
                self.io.is_some()
            }
        }
    }

    fn service(&self) -> Service<H> {
        Service::new(self.handler.clone(), self.peer, self.watch.activity.clone())
    }

    async fn serve_http2(&mut self) {
        let Some(io) = self.io.take() else { return };
        let mut connection = pin!(http2().serve_connection(TokioIo::new(io), self.service()));
        self.watch.drive(connection.as_mut(), false).await;
    }

    /// Waits for a client that rests; whether it asks again before its time is over and before the drain.
    async fn next_request(&mut self) -> bool {
        let (Some(io), watch) = (&mut self.io, &self.watch) else { return false };
        let Some(until) = watch.until() else { return false };
        let mut timer = pin!(sleep_until(until));
        let mut drained = pin!(watch.terms.drain.started());
        poll_fn(|cx| {
            if let Poll::Ready(readable) = io.socket().poll_read_ready(cx) {
                return Poll::Ready(readable.is_ok());
            }
            if drained.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            loop {
                ready!(timer.as_mut().poll(cx));
                match watch.until() {
                    Some(until) => timer.as_mut().reset(until),
                    None => return Poll::Ready(false),
                }
            }
        })
        .await
    }
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
