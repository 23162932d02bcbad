//! The body of a request over HTTP/1.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::request_reader::RequestReader;
use crate::transport::{BodyData, Relay};

/// The body of a request. After the end of its request it fails, and never reads bytes of the next request.
#[derive(Debug)]
pub(super) struct ClientBody {
    reader: Arc<Mutex<RequestReader>>,
    request: u32,
    /// Moves the body if the upstream has a plaintext socket.
    relay: Option<Relay>,
}

impl ClientBody {
    /// Creates the body of the current request.
    pub(super) fn new(reader: &Arc<Mutex<RequestReader>>, relay: Option<Relay>) -> Self {
        Self { reader: Arc::clone(reader), request: reader.lock().request, relay }
    }
}

/// On drop, the connection no longer waits for the body.
impl Drop for ClientBody {
    fn drop(&mut self) {
        let mut reader = self.reader.lock();
        if reader.request == self.request {
            reader.stop_upload_wait();
        }
    }
}

impl Body for ClientBody {
    type Data = BodyData;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<BodyData>>>> {
        let mut reader = self.reader.lock();
        if reader.request != self.request {
            return Poll::Ready(Some(Err(io::ErrorKind::BrokenPipe.into())));
        }
        reader.poll_frame(self.relay.as_ref(), cx).map(Result::transpose)
    }

    fn is_end_stream(&self) -> bool {
        let reader = self.reader.lock();
        reader.request == self.request && reader.remaining.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.reader.lock().remaining.size_hint()
    }
}
