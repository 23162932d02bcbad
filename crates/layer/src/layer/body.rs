//! The body of a response of the inner service. Its request is in flight until the body has ended.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::disconnect::{ClientBanned, Disconnection};
use crate::admission::RequestInFlight;

type BoxError = Box<dyn Error + Send + Sync>;

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
        // Whether an operator bans the client. `None` if the body is short.
        disconnection: Option<Box<Disconnection>>,
    }
}

impl<B> ServedBody<B> {
    pub(super) fn new(
        body: B,
        in_flight: Option<Box<RequestInFlight>>,
        disconnection: Option<Box<Disconnection>>,
    ) -> Self {
        Self { body, in_flight, disconnection }
    }
}

impl<B: Body> Body for ServedBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let frame = this.body.as_mut().poll_frame(cx);
        let waits = frame.is_pending();
        if this.disconnection.as_mut().is_some_and(|disconnection| disconnection.poll(waits, cx).is_ready()) {
            (*this.in_flight, *this.disconnection) = (None, None);
            return Poll::Ready(Some(Err(ClientBanned.into())));
        }
        let frame = ready!(frame);
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            *this.in_flight = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
