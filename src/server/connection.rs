//! Serves one connection, from its first byte to its end.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::activity::{Activity, SLOW_HEAD};
use super::drain::Drain;
use super::http1::Http1;
use super::http2::Http2;
use super::protocol::{self, Protocol};
use super::slots::Slot;
use super::stream::Watched;
use super::watch::{End, Watch};
use super::{HttpService, Terms};

/// How long a client that has sent nothing yet may take for its first byte during a drain.
const LAST_WORD: Duration = Duration::from_millis(250);

/// A client's connection. An idle connection holds nothing else, so its size matters.
struct Client<S> {
    /// None while requests are served.
    io: Option<Watched>,
    service: S,
    peer: SocketAddr,
    watch: Watch,
    _slot: Arc<Slot>,
}

/// Serves until the client leaves, a timeout passes, or the server drains.
pub(crate) fn serve<S: HttpService>(
    stream: TcpStream,
    peer: SocketAddr,
    service: S,
    activity: Arc<Activity>,
    terms: Arc<Terms>,
    slot: Arc<Slot>,
) -> impl Future<Output = ()> + Send {
    let io = Some(Watched::new(stream, activity.clone()));
    let mut client = Client { io, service, peer, watch: Watch { activity, terms }, _slot: slot };
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
    sleep(LAST_WORD).await;
}

// === impl Client ===

impl<S: HttpService> Client<S> {
    /// Detects the protocol by the first bytes, which stay in the buffer; `None` on timeout.
    async fn first_bytes(&mut self) -> Option<Protocol> {
        let (io, Watch { activity, terms }) = (self.io.as_mut()?, &self.watch);
        let timeout = terms.limits.header_timeout;
        let mut end = pin!(sleep(timeout));
        let mut drained = pin!(last_word(&terms.drain));
        loop {
            let is_first = io.ahead().is_empty();
            tokio::select! {
                biased;
                read = poll_fn(|cx| io.poll_ahead(cx)) => read.ok().filter(|count| *count > 0)?,
                () = &mut end => {
                    if !is_first {
                        terms.metrics.rejected(SLOW_HEAD);
                    }
                    return None;
                }
                () = &mut drained => return None,
            };
            if let Some(protocol) = protocol::of(io.ahead()) {
                activity.speaks(protocol);
                return Some(protocol);
            }
            if is_first {
                end.as_mut().reset(Instant::now() + timeout);
            }
        }
    }

    /// Serves requests until the connection is idle, then frees its buffers. Returns whether the connection stays open.
    async fn serve_http1(&mut self) -> bool {
        let Some(io) = self.io.take() else { return false };
        let mut connection = Http1::new(io, self.service.clone(), self.peer, Arc::clone(&self.watch.terms));
        match self.watch.drive(Pin::new(&mut connection), true).await {
            End::Over => false,
            End::Resting => {
                self.io = connection.into_stream();
                self.io.is_some()
            }
        }
    }

    async fn serve_http2(&mut self) {
        let Some(io) = self.io.take() else { return };
        let mut connection = Http2::new(io, self.service.clone(), self.peer, Arc::clone(&self.watch.terms));
        self.watch.drive(Pin::new(&mut connection), false).await;
    }

    /// Waits for the next request of an idle connection; false on timeout or drain.
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
