//! Serves one connection, from its first byte to its end.

use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::time::{Instant, sleep};

use super::activity::{Activity, SLOW_HEAD};
use super::greeting::greet;
use super::http1::Http1;
use super::http2::Http2;
use super::protocol::{Protocol, Spoken};
use super::proxied::identified;
use super::slots::Slot;
use super::stream::{Socket, Watched};
use super::watch::{End, Watch, last_word};
use super::{HttpService, Terms};
use crate::timer::Timer;
use crate::transport::Transport;

/// A client's connection. An idle connection holds nothing else, so its size matters.
struct Client<S> {
    socket: Held,
    service: S,
    watch: Watch,
    slot: Arc<Slot>,
}

/// What is kept of a connection between two stages of it.
enum Held {
    /// One on which nothing has happened yet.
    Fresh(Transport),
    /// One that waits for the next request.
    Idle(Socket),
    /// Nothing while requests are served.
    Nothing,
}

/// Serves until the client leaves, a timeout passes, or the server drains.
pub(crate) fn serve<S: HttpService>(
    stream: Transport,
    service: S,
    activity: Arc<Activity>,
    terms: Arc<Terms>,
    slot: Arc<Slot>,
) -> impl Future<Output = ()> + Send {
    let mut client = Client { socket: Held::Fresh(stream), service, watch: Watch { activity, terms }, slot };
    // What is not needed while the connection is idle is boxed: in line, it would make every connection larger.
    async move {
        Box::pin(client.serve_first()).await;
        while client.next_request().await {
            Box::pin(client.serve_again()).await;
        }
    }
}

/// What the client may speak. Over TLS, that is agreed upon before the first byte (RFC 9113 section 3.2).
fn spoken(socket: &Socket, http2: bool) -> Spoken {
    match socket.agreed() {
        None if http2 => Spoken::Either,
        Some(Some(b"h2")) => Spoken::Only(Protocol::Http2),
        _ => Spoken::Only(Protocol::Http1),
    }
}

fn take(held: &mut Held) -> Held {
    replace(held, Held::Nothing)
}

// === impl Client ===

impl<S: HttpService> Client<S> {
    /// Serves from the first byte on, until the connection is idle or over.
    async fn serve_first(&mut self) {
        let Held::Fresh(stream) = take(&mut self.socket) else { return };
        let Watch { activity, terms } = &self.watch;
        let Some(stream) = identified(stream, terms, &self.slot).await else { return };
        let Some(stream) = greet(stream, terms, activity, &self.slot).await else { return };
        let mut io = Watched::new(Socket::new(stream, activity.clone()));
        match self.first_bytes(&mut io).await {
            Some(Protocol::Http1) => self.serve_http1(io).await,
            Some(Protocol::Http2) => self.serve_http2(io).await,
            None => {}
        }
    }

    /// Serves an idle connection on which something has come.
    async fn serve_again(&mut self) {
        if let Held::Idle(socket) = take(&mut self.socket) {
            self.serve_http1(Watched::new(socket)).await;
        }
    }

    /// Detects the protocol by the first bytes, which stay in the buffer; `None` on timeout.
    async fn first_bytes(&mut self, io: &mut Watched) -> Option<Protocol> {
        let Watch { activity, terms } = &self.watch;
        let timeout = terms.limits.header_timeout;
        let mut end = pin!(sleep(timeout));
        let mut drained = pin!(last_word(&terms.drain));
        let spoken = spoken(io.socket(), terms.http2);
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
            if let Some(protocol) = spoken.told_by(io.ahead()) {
                activity.speaks(protocol);
                return Some(protocol);
            }
            if is_first {
                end.as_mut().reset(Instant::now() + timeout);
            }
        }
    }

    /// Serves requests until the connection is over or idle; then keeps its socket, and frees everything else.
    async fn serve_http1(&mut self, io: Watched) {
        let terms = Arc::clone(&self.watch.terms);
        let mut connection = Http1::new(io, self.service.clone(), self.slot.connection_peer(), terms);
        if let End::Resting = self.watch.drive(Pin::new(&mut connection), true).await {
            self.socket = connection.into_socket().map_or(Held::Nothing, Held::Idle);
        }
    }

    async fn serve_http2(&mut self, io: Watched) {
        let terms = Arc::clone(&self.watch.terms);
        let mut connection = Http2::new(io, self.service.clone(), self.slot.connection_peer(), terms);
        self.watch.drive(Pin::new(&mut connection), false).await;
    }

    /// Waits for the next request of an idle connection; false on timeout, or if it is over. A drain ends it by
    /// [`Open::end_resting`](super::open::Open::end_resting), and it has no place in a list of those to be told.
    async fn next_request(&mut self) -> bool {
        let (Held::Idle(socket), watch) = (&self.socket, &self.watch) else { return false };
        if watch.terms.drain.has_started() {
            return false;
        }
        let mut timer = Timer::new();
        poll_fn(|cx| {
            if let Poll::Ready(readable) = socket.poll_readable(cx) {
                return Poll::Ready(readable.is_ok());
            }
            while let Some(until) = watch.until() {
                ready!(timer.poll(until, cx));
            }
            Poll::Ready(false)
        })
        .await
    }
}
