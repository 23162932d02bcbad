//! The body of a response of the inner service. Its request is in flight until the body has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::admission::RequestInFlight;

/// The requests in flight of the client of a request, for the response.
#[derive(Debug)]
pub(super) struct ClientInFlight {
    /// The slot of the request, until the body of its response has it.
    pub(super) slot: Option<Box<RequestInFlight>>,
    /// The bound of each client, and how many slots remained for this client. `None` without such a bound.
    pub(super) quota: Option<(u32, u32)>,
}

pin_project! {
    /// The body of the inner service. It holds the slot of its request, if the route bounds the requests in flight, until it
    /// has ended or is dropped.
    #[derive(Debug)]
    pub struct ServedBody<B> {
        #[pin]
        body: B,
        in_flight: Option<Box<RequestInFlight>>,
    }
}

impl<B> ServedBody<B> {
    pub(super) fn new(body: B, in_flight: Option<Box<RequestInFlight>>) -> Self {
        Self { body, in_flight }
    }
}

impl<B: Body> Body for ServedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            *this.in_flight = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
