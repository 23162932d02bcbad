//! Serves an HTTP/1 connection: reads a request, writes the response, and continues with the next request.
//!
//! Everything runs in the connection's own task, in the order of the requests. While a request is handled, the next
//! one may be read ahead. If the client closes the connection, the request is cancelled.

mod client_body;
mod request;
mod request_reader;
mod response;
mod response_writer;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Extensions, HeaderMap, Version};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use self::request_reader::RequestReader;
use self::response_writer::ResponseWriter;
use super::activity::{Activity, InFlightRequest};
use super::driver::Drainable;
use super::metered_socket::MeteredSocket;
use super::peer::ConnectionPeer;
use super::socket::Socket;
use super::{HttpService, ServerContext};
use crate::http::http1::WriteBuffer;
use tidegate_layer::layer::TlsPeer;
use tidegate_limit::clock::timer::Timer;

/// An HTTP/1 connection.
pub(crate) struct Http1<S: HttpService> {
    reader: Arc<Mutex<RequestReader>>,
    activity: Arc<Activity>,
    service: S,
    peer: ConnectionPeer,
    tls: Option<Arc<TlsPeer>>,
    context: Arc<ServerContext>,
    stage: Stage<S::Body>,
    /// The service's future, in an allocation that is reused.
    handling: Pin<Box<Option<S::Future>>>,
    outgoing: WriteBuffer,
    /// The maps of the last request's fields and extensions, reused for the next.
    fields: HeaderMap,
    extensions: Extensions,
    /// How many bytes were already searched for the end of the head.
    searched: usize,
    /// The next response is the last one. A response that has already begun does not count.
    is_last: bool,
    /// No further request is accepted.
    is_finishing: bool,
}

enum Stage<B> {
    /// Reading a request head.
    Head,
    /// Waiting for the service.
    Handling(Exchange),
    Responding(Exchange, ResponseWriter<B>),
    /// Discarding the rest of a request body.
    Discarding(DiscardLimits),
    Closing,
}

/// Properties of the request that its response depends on.
pub(super) struct Exchange {
    version: Version,
    head_only: bool,
    accepts_trailers: bool,
    keeps_open: bool,
    in_flight: InFlightRequest,
}

/// The limits on discarding the rest of a body.
struct DiscardLimits {
    /// How many more bytes may arrive.
    budget: u64,
    until: Instant,
    timer: Timer,
}

/// The next action of the connection.
enum Step {
    /// Continue with the current stage.
    Continue,
    /// Close the connection.
    Close,
}

impl<S: HttpService> Future for Http1<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let next = match &self.stage {
                Stage::Head => self.poll_head(cx),
                Stage::Handling(_) => self.poll_handling(cx),
                Stage::Responding(..) => self.poll_response(cx),
                Stage::Discarding(_) => self.poll_discarding(cx),
                Stage::Closing => {
                    // An error while closing does not matter.
                    _ = ready!(Pin::new(&mut self.reader.lock().stream).poll_shutdown(cx));
                    return Poll::Ready(());
                }
            };
            match ready!(next) {
                Step::Continue => {}
                Step::Close => return Poll::Ready(()),
            }
        }
    }
}

impl<S: HttpService> Http1<S> {
    pub(super) fn new(stream: MeteredSocket, service: S, peer: ConnectionPeer, context: Arc<ServerContext>) -> Self {
        Self {
            activity: Arc::clone(stream.activity()),
            tls: peer.tls(stream.socket().tls_peer()),
            reader: Arc::new(Mutex::new(RequestReader::new(stream))),
            service,
            peer,
            context,
            stage: Stage::Head,
            handling: Box::pin(None),
            outgoing: WriteBuffer::default(),
            fields: HeaderMap::new(),
            extensions: Extensions::new(),
            searched: 0,
            is_last: false,
            is_finishing: false,
        }
    }

    /// Returns the socket of an idle connection. Returns `None` if a request has begun.
    pub(super) fn into_socket(self) -> Option<Socket> {
        let reader = Arc::into_inner(self.reader)?.into_inner();
        (matches!(self.stage, Stage::Head) && reader.unread.is_empty()).then(|| reader.stream.into_socket())
    }
}

impl<S: HttpService> Drainable for Http1<S> {
    fn begin_drain(mut self: Pin<&mut Self>) {
        self.is_last = true;
    }

    fn finish(mut self: Pin<&mut Self>) {
        self.is_finishing = true;
    }

    fn end_upload(self: Pin<&mut Self>) {
        self.reader.lock().end_upload();
    }

    fn client_has_closed(&self) -> bool {
        let is_http = match &self.stage {
            Stage::Handling(_) => true,
            Stage::Responding(_, writer) => !writer.is_upgraded(),
            Stage::Head | Stage::Discarding(_) | Stage::Closing => false,
        };
        is_http && self.reader.lock().stream.is_closed()
    }
}

/// Everything that must not move is boxed.
impl<S: HttpService> Unpin for Http1<S> {}
