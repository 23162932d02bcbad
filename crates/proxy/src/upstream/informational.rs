//! Forwards informational responses (1xx) to the client, and asks whether it has room for the final response.

use std::sync::Weak;
use std::task::{Context, Poll};

use http::{HeaderMap, Response, StatusCode, header};

use tidegate_rules::request::sanitize::{FieldKinds, hop_by_hop};

/// The maximum size of the fields of all informational responses to one request. Further responses are dropped: they
/// would stay in memory if the client does not read them.
const MAX_FIELD_BYTES: usize = 32 * 1024;

/// A client connection that takes responses.
pub(crate) trait InformationalSink: Send + Sync {
    /// Sends an informational response, unless the final response has begun.
    fn send_informational(&self, response: Response<()>);

    /// Returns `Ready` when the connection has room for a long head of the final response. By default, it always has:
    /// it has one response at a time.
    fn poll_head_room(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Sends informational responses to a client. Does not keep the client's connection alive.
#[derive(Clone)]
pub(crate) struct InformationalSender {
    sink: Weak<dyn InformationalSink>,
    /// The bytes of fields that may still be sent.
    remaining: usize,
}

impl InformationalSender {
    pub(crate) fn new(sink: Weak<dyn InformationalSink>) -> Self {
        Self { sink, remaining: MAX_FIELD_BYTES }
    }

    /// Returns `Ready` when the client's connection has room for a long head, or is closed.
    pub(super) fn poll_head_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.sink.upgrade().map_or(Poll::Ready(()), |sink| sink.poll_head_room(cx))
    }

    /// Forwards an informational response of the upstream. Does not forward 100: it is about the connection to the
    /// upstream. The gateway sends its own 100 when it reads the client's body.
    pub(super) fn forward(&mut self, mut response: Response<()>) {
        if response.status() == StatusCode::CONTINUE {
            return;
        }
        let fields = response.headers_mut();
        hop_by_hop::remove(fields, &mut FieldKinds::classify(fields));
        fields.remove(header::CONTENT_LENGTH);
        let Some(remaining) = self.remaining.checked_sub(size(fields)) else { return };
        self.remaining = remaining;
        if let Some(sink) = self.sink.upgrade() {
            sink.send_informational(response);
        }
    }
}

fn size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

impl std::fmt::Debug for InformationalSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InformationalSender").finish_non_exhaustive()
    }
}
