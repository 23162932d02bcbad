//! Between HTTP/2 and the handler: limits on a request's head, and notes of its beginning and end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::Handler;
use super::activity::{Activity, InFlight};
use crate::refusal::Refusal;
use crate::upstream::RequestBody;

/// The longest target.
const MAX_TARGET: usize = 8 * 1024;
/// The most header fields.
const MAX_FIELDS: usize = 100;
/// The most bytes of header fields, as they are written in HTTP/1.
pub(crate) const MAX_FIELD_BYTES: u32 = 16 * 1024;

/// Hands requests on.
#[derive(Clone, Debug)]
pub(crate) struct Service<H> {
    handler: H,
    peer: SocketAddr,
    activity: Arc<Activity>,
}

pin_project! {
    /// An answer to be: the handler's, or a refusal.
    pub(crate) struct Answering<F> {
        #[pin]
        handling: Option<F>,
        refusal: Option<Refusal>,
        in_flight: Option<InFlight>,
    }
}

pin_project! {
    /// The body of an answer.
    #[derive(Debug)]
    pub struct Answer<B> {
        #[pin]
        body: Option<B>,
        own: Full<Bytes>,
        in_flight: Option<InFlight>,
    }
}

// === impl Service ===

impl<H> Service<H> {
    pub(crate) fn new(handler: H, peer: SocketAddr, activity: Arc<Activity>) -> Self {
        Self { handler, peer, activity }
    }
}

impl<H: Handler> hyper::service::Service<Request<Incoming>> for Service<H> {
    type Response = Response<Answer<H::Body>>;
    type Error = Infallible;
    type Future = Answering<H::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let in_flight = Some(self.activity.begin_request(!request.body().is_end_stream()));
        match excess(&request) {
            Some(refusal) => Answering { handling: None, refusal: Some(refusal), in_flight },
            None => {
                let body =
                    |body: Incoming| if body.is_end_stream() { RequestBody::none() } else { RequestBody::new(body) };
                let request = request.map(body);
                Answering { handling: Some(self.handler.handle(request, self.peer)), refusal: None, in_flight }
            }
        }
    }
}

/// Whether a head is too large. The protocols have bounds of their own, which are not much above these.
pub(crate) fn excess<B>(request: &Request<B>) -> Option<Refusal> {
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    if authority + uri.path_and_query().map_or(0, |path| path.as_str().len()) > MAX_TARGET {
        return Some(Refusal::UriTooLong);
    }
    let fields = request.headers();
    // A colon, a space and the end of the line.
    let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (fields.len() > MAX_FIELDS || bytes > MAX_FIELD_BYTES as usize).then_some(Refusal::HeadersTooLarge)
}

// === impl Answering ===

impl<F, B> Future for Answering<F>
where
    F: Future<Output = Response<B>>,
{
    type Output = Result<Response<Answer<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(handling) = this.handling.as_pin_mut() {
            let response = ready!(handling.poll(cx));
            let in_flight = this.in_flight.take();
            return Poll::Ready(Ok(response.map(|body| Answer { body: Some(body), own: Full::default(), in_flight })));
        }
        let response = this.refusal.take().unwrap_or(Refusal::Internal).into_response();
        let in_flight = this.in_flight.take();
        Poll::Ready(Ok(response.map(|own| Answer { body: None, own, in_flight })))
    }
}

// === impl Answer ===

impl<B: Body<Data = Bytes>> Body for Answer<B>
where
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(body) = this.body.as_pin_mut() else {
            return Pin::new(this.own).poll_frame(cx).map_err(|never| match never {});
        };
        let polled = ready!(body.poll_frame(cx));
        if let (Some(Err(_)), Some(in_flight)) = (&polled, &this.in_flight) {
            in_flight.break_off();
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().map_or_else(|| self.own.is_end_stream(), B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| self.own.size_hint(), B::size_hint)
    }
}
