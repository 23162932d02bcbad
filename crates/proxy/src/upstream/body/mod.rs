//! The body of a request, streamed to its upstream without buffering.

mod peek;
mod sending;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use self::sending::Sending;
use super::informational::InformationalSender;
use super::replay::ReplayBuffer;
use super::replay_budget::ReplayBudget;
use super::target_error::TargetError;
use super::trace::Trace;
use super::upload_progress::UploadProgress;
use super::{AttemptError, MAX_INFORMATIONAL};
use crate::transport::{BodyData, Relay};
use tidegate_rules::request::sanitize::{self, FieldFilter, trailers};

/// The error of a body that ends early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a client's request.
pub struct RequestBody {
    /// `None` if the request has no body.
    stream: Option<Stream>,
    /// Boxed, because few requests have a body.
    sending: Option<Box<Sending>>,
    /// The maximum number of bytes that are kept to send them again.
    max_replay: u32,
    /// Whether a target may have received a part of the request.
    was_sent: bool,
    /// Whether the body was taken while its response had begun. It is missing for another attempt.
    is_taken: bool,
    /// How many more bytes may come.
    max_bytes: u64,
    /// Filters the trailers.
    field_filter: Option<Arc<FieldFilter>>,
    /// The number of informational responses of the upstream in this attempt.
    informational_count: u8,
    /// Forwards informational responses to the client. `None` if the client uses HTTP/1.0.
    informational_sender: Option<InformationalSender>,
}

/// The body is longer than its limit (RFC 9110 section 15.5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is too long")]
pub struct TooLong;

type Stream = Pin<Box<dyn Body<Data = BodyData, Error = BoxError> + Send>>;

// === impl RequestBody ===

impl RequestBody {
    /// Creates a body from the client's stream.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = BodyData, Error: Into<BoxError>> + Send + 'static,
    {
        Self { stream: Some(Box::pin(body.map_err(Into::into))), ..Self::none() }
    }

    /// Creates an empty body.
    pub fn none() -> Self {
        Self {
            stream: None,
            sending: None,
            max_replay: 0,
            was_sent: false,
            is_taken: false,
            max_bytes: u64::MAX,
            field_filter: None,
            informational_count: 0,
            informational_sender: None,
        }
    }

    /// Sets the sender of informational responses (1xx) to the client.
    pub(crate) fn with_informational_sender(self, sender: InformationalSender) -> Self {
        Self { informational_sender: Some(sender), ..self }
    }

    /// Sets the bound of the bytes that the client's connection keeps to send requests again.
    pub(crate) fn with_replay_budget(mut self, budget: &Arc<ReplayBudget>) -> Self {
        self.sending.get_or_insert_default().replay_budget = Some(Arc::clone(budget));
        self
    }

    /// Sets the relay that can move the body from the client's connection.
    pub(crate) fn with_relay(self, relay: Option<Relay>) -> Self {
        let sending = relay.map(|relay| Box::new(Sending { relay: Some(relay), ..Sending::default() }));
        Self { sending, ..self }
    }

    /// Returns the relay that can move the body to its upstream connection.
    pub(super) fn relay(&self) -> Option<&Relay> {
        self.sending.as_ref()?.relay.as_ref()
    }

    /// Handles an informational response of the upstream: forwards it to the client, and releases the body after 100.
    ///
    /// # Errors
    /// There are too many informational responses, or this one is not valid.
    pub(super) fn on_informational(&mut self, response: Response<()>, is_valid: bool) -> Result<(), AttemptError> {
        self.informational_count += 1;
        if self.informational_count > MAX_INFORMATIONAL || !is_valid {
            return Err(AttemptError::Broken(TargetError::invalid(&"invalid informational responses")));
        }
        if let Some(progress) = self.progress().filter(|_| response.status() == StatusCode::CONTINUE) {
            progress.release();
        }
        if let Some(sender) = &mut self.informational_sender {
            sender.forward(response);
        }
        Ok(())
    }

    /// Returns `Ready` when the client's connection has room for a long head of a response.
    pub(super) fn poll_head_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let room = self.informational_sender.as_ref().map_or(Poll::Ready(()), |sender| sender.poll_head_room(cx));
        self.progress().into_iter().for_each(|progress| progress.set_waits_for_reader(room.is_pending()));
        room
    }

    /// Returns `true` if the upstream has sent an informational response in this attempt.
    pub(super) fn has_informational(&self) -> bool {
        self.informational_count > 0
    }

    /// Takes the body and leaves an empty one.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::none())
    }

    /// Limits the body to `max_bytes` bytes.
    ///
    /// # Errors
    /// The body is known to be longer.
    pub fn limit(&mut self, max_bytes: u64) -> Result<(), TooLong> {
        self.max_bytes = max_bytes;
        if self.size_hint().lower() > max_bytes { Err(TooLong) } else { Ok(()) }
    }

    /// Removes the limit. The bytes of an upgraded connection are not part of a body.
    pub(super) fn remove_limit(&mut self) {
        self.max_bytes = u64::MAX;
    }

    /// Sets the filter for the trailers.
    pub(crate) fn filter_trailers(&mut self, field_filter: Option<Arc<FieldFilter>>) {
        self.field_filter = field_filter;
    }

    /// Keeps a body of at most `max_bytes` bytes until a response has begun, so that the request can be sent again.
    pub(super) fn keep(&mut self, max_bytes: usize) {
        self.max_replay = u32::try_from(max_bytes).unwrap_or(u32::MAX);
    }

    /// Starts an attempt, and tracks the progress of the body. Returns `None` if there is no body. If `is_held`, the
    /// body is held back until the upstream requests it (100).
    pub(crate) fn start_attempt(&mut self, is_held: bool) -> Option<Arc<UploadProgress>> {
        (self.informational_count, self.was_sent) = (0, true);
        if self.is_end_stream() {
            return None;
        }
        let is_kept = self.size_hint().lower() <= u64::from(self.max_replay);
        let kept = is_kept.then_some(self.max_replay as usize);
        Some(self.sending.get_or_insert_default().start_attempt(kept, is_held))
    }

    /// Counts the bytes of the body in `trace`.
    pub fn count_bytes_in(&mut self, trace: &Trace) {
        if !self.is_end_stream()
            && let Some(stream) = self.stream.take()
        {
            let trace = trace.clone();
            let count = move |frame: &Frame<BodyData>| trace.count_bytes(frame.data_ref().map_or(0, BodyData::len));
            self.stream = Some(Box::pin(stream.inspect_frame(count)));
        }
    }

    /// Prepares the body for another attempt. Returns `false` if a part of it was read and not kept, or if it was taken.
    pub(super) fn rewind(&mut self) -> bool {
        !self.is_taken && self.replay_mut().is_none_or(ReplayBuffer::rewind)
    }

    /// Takes the rest of the body, after which the request cannot be sent again.
    pub(super) fn take_rest(&mut self) -> Self {
        if let Some(replay) = self.replay_mut() {
            replay.stop();
        }
        let rest = self.take();
        self.is_taken = true;
        rest
    }

    /// Returns `true` if a target may have received a part of the request.
    pub(crate) fn was_sent(&self) -> bool {
        self.was_sent
    }

    /// Records that no target has received a part of the request.
    pub(super) fn set_not_sent(&mut self) {
        self.was_sent = false;
    }

    /// Returns `true` if the client's stream has ended.
    fn has_ended(&self) -> bool {
        self.replay().is_some_and(ReplayBuffer::has_ended)
    }

    fn progress(&self) -> Option<&Arc<UploadProgress>> {
        self.sending.as_ref()?.progress.as_ref()
    }

    fn replay(&self) -> Option<&ReplayBuffer> {
        self.sending.as_ref()?.replay.as_ref()
    }

    fn replay_mut(&mut self) -> Option<&mut ReplayBuffer> {
        self.sending.as_mut()?.replay.as_mut()
    }

    fn record_progress(&self, polled: &Poll<Option<Result<Frame<BodyData>, BoxError>>>) {
        let Some(progress) = self.progress() else { return };
        match polled {
            Poll::Pending => progress.set_waits_for_client(),
            Poll::Ready(_) => progress.record_progress(),
        }
    }
}

impl Body for RequestBody {
    type Data = BodyData;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, BoxError>>> {
        if let Some(progress) = self.progress() {
            ready!(progress.poll_released(cx));
        }
        if let Some(frame) = self.replay_mut().and_then(ReplayBuffer::next) {
            let frame = Poll::Ready(Some(Ok(frame)));
            self.record_progress(&frame);
            return frame;
        }
        if self.has_ended() {
            return Poll::Ready(None);
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let polled = stream.as_mut().poll_frame(cx);
        self.record_progress(&polled);
        let Some(mut frame) = ready!(polled).transpose()? else {
            if let Some(replay) = self.replay_mut() {
                replay.record_end();
            }
            return Poll::Ready(None);
        };
        let length = frame.data_ref().map_or(0, BodyData::len) as u64;
        match self.max_bytes.checked_sub(length) {
            Some(rest) => self.max_bytes = rest,
            None => return Poll::Ready(Some(Err(TooLong.into()))),
        }
        match (frame.trailers_mut(), &self.field_filter) {
            (Some(trailers), Some(field_filter)) => field_filter.apply_to_trailers(trailers)?,
            (Some(trailers), None) => sanitize::remove(trailers, trailers::is_forbidden),
            (None, _) => {}
        }
        if let Some(replay) = self.replay_mut() {
            replay.record(&frame);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        let is_replayed = self.replay().is_none_or(ReplayBuffer::is_read);
        is_replayed && (self.has_ended() || self.stream.as_ref().is_none_or(Body::is_end_stream))
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.stream.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let unread = self.replay().map_or(0, ReplayBuffer::unread);
        if unread > 0 {
            // The upper bound first: it must never be below the lower one.
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + unread);
            }
            hint.set_lower(hint.lower() + unread);
        }
        hint
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody").field("has_ended", &self.is_end_stream()).finish_non_exhaustive()
    }
}
