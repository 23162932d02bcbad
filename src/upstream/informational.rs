//! Answers that only send_informational (1xx), on their way to a client.

use std::sync::Weak;

use http::{HeaderMap, Response, StatusCode, header};

use crate::sanitize::{FieldKinds, hop_by_hop};

/// Bytes of fields, over all such answers to one request, that a client is told. What is beyond is let go: nobody needs so
/// many, and a client that does not read would have them kept.
const MOST: usize = 32 * 1024;

/// A client that may have them.
pub(crate) trait InformationalSink: Send + Sync {
    /// Passes this one on, unless the answer has begun.
    fn send_informational(&self, answer: Response<()>);
}

/// The way to a client. It does not keep the client's connection.
#[derive(Clone)]
pub(crate) struct InformationalSender {
    to: Weak<dyn InformationalSink>,
    left: usize,
}

impl InformationalSender {
    pub(crate) fn new(to: Weak<dyn InformationalSink>) -> Self {
        Self { to, left: MOST }
    }

    /// Passes on what an upstream says before its answer. Not 100, which is about this connection: the client is told its own
    /// when its body is wanted.
    pub(super) fn forward(&mut self, mut answer: Response<()>) {
        if answer.status() == StatusCode::CONTINUE {
            return;
        }
        let fields = answer.headers_mut();
        hop_by_hop::remove(fields, &mut FieldKinds::classify(fields));
        fields.remove(header::CONTENT_LENGTH);
        let Some(left) = self.left.checked_sub(size(fields)) else { return };
        self.left = left;
        if let Some(to) = self.to.upgrade() {
            to.send_informational(answer);
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
