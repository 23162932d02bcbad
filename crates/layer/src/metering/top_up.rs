//! Reserves the output of a stream in slices, ahead of the text that passes. If a budget has no more permits, the stream ends as if
//! its output had reached the bound.
//!
//! The text is counted in bytes, since a token has at least one. The next slice is reserved when half of the last one
//! is left, so that the text only waits if the store is slower. The last quarter is for text that the upstream sends before it
//! notices the end of the stream.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};

use super::Metering;
use super::extension::Extension;
use tidegate_usage::{EndableStream, Progress, Usage};

/// The tokens of an output that have no text: its end, and the role.
const TOKENS_WITHOUT_TEXT: u64 = 4;

/// A slice is at least this fraction of the text that has passed: a long stream needs few slices.
const LEAST_FRACTION: u64 = 8;

/// The part of a response that has not passed, and the output that is reserved.
pub struct TopUp {
    metering: Arc<Metering>,
    /// `None` if the gateway cannot end the response: its whole bound is reserved before it passes.
    stream: Option<EndableStream>,
    /// The data of the upstream that the stream has not read.
    unread: Bytes,
    /// The stream has a complete event that has not passed.
    has_event: bool,
    /// The tokens that have passed.
    passed: u64,
    /// The tokens that are reserved; `None` if all are.
    covered: Option<u64>,
    slice: u64,
    /// A decision about more tokens that is in flight.
    extension: Option<Extension>,
    /// The last whole slice was refused.
    is_scarce: bool,
    /// The tokens of output that the complete response has reported.
    reported: Option<u64>,
}

/// The result of [`TopUp::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// All data has passed, except an event that is not complete.
    Passed,
    /// An event waits for its reservation.
    Waits,
    /// A budget has no more permits: the stream must [end](TopUp::end).
    Exhausted,
    /// The response cannot pass: an event is too long, or the rest of its bound was refused.
    Broken,
}

impl Metering {
    /// Returns the reservations of a response in slices; `None` if its whole bound is reserved. `has_events`: the response is a
    /// stream of server-sent events.
    pub fn top_up(self: &Arc<Self>, has_events: bool) -> Option<Box<TopUp>> {
        let (slice, covered) = (self.slice()?, self.covered());
        let api = self.source.api().filter(|_| has_events);
        let stream = api.and_then(|api| EndableStream::new(api, self.removes_usage));
        Some(Box::new(TopUp {
            metering: Arc::clone(self),
            stream,
            unread: Bytes::new(),
            has_event: false,
            passed: TOKENS_WITHOUT_TEXT,
            covered,
            slice,
            extension: None,
            is_scarce: false,
            reported: None,
        }))
    }
}

impl fmt::Debug for TopUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopUp").field("passed", &self.passed).field("covered", &self.covered).finish_non_exhaustive()
    }
}

impl TopUp {
    /// Adds data of the upstream. All earlier data has passed.
    pub fn push(&mut self, data: Bytes) {
        self.unread = data;
    }

    /// Ends the data of the upstream, whose response has reported this usage. An event without its blank line passes too.
    pub fn finish(&mut self, usage: Option<&Usage>) {
        self.reported = usage.map(|usage| usage.output);
        self.has_event |= self.stream.as_ref().is_some_and(EndableStream::has_part);
    }

    /// Passes the events that are reserved, appends them to `out`, and reserves the next ones.
    pub fn advance(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Advance {
        loop {
            if let Some(extension) = &mut self.extension {
                match extension.as_mut().poll(cx) {
                    Poll::Pending => return self.pass(out),
                    Poll::Ready(true) => (self.covered, self.is_scarce) = (self.metering.covered(), false),
                    Poll::Ready(false) if self.is_scarce || self.stream.is_none() => return self.exhausted(),
                    Poll::Ready(false) => self.is_scarce = true,
                }
                self.extension = None;
            }
            let advance = self.pass(out);
            if advance == Advance::Broken || !self.needs_more() {
                return advance;
            }
            self.extension = Some(self.metering.extend(self.target()));
        }
    }

    /// Charges what is reserved, and appends the end of the stream to `out`. `input` is the input, if the response has reported it.
    pub fn end(&mut self, input: Option<Usage>, out: &mut Vec<u8>) {
        let usage = self.metering.settle_ended(input, self.covered.unwrap_or(self.passed));
        if let Some(stream) = &mut self.stream {
            stream.end(&usage, out);
        }
    }

    fn exhausted(&mut self) -> Advance {
        self.extension = None;
        if self.stream.is_some() { Advance::Exhausted } else { Advance::Broken }
    }

    /// Passes events until one is not reserved.
    fn pass(&mut self, out: &mut Vec<u8>) -> Advance {
        let Some(stream) = &mut self.stream else {
            if self.covered.is_some() {
                return Advance::Waits;
            }
            out.extend_from_slice(&std::mem::take(&mut self.unread));
            return Advance::Passed;
        };
        loop {
            if !self.has_event {
                match stream.read(&self.unread) {
                    Progress::Complete(read) => self.unread.advance(read),
                    Progress::Incomplete => {
                        self.unread.clear();
                        return Advance::Passed;
                    }
                    Progress::TooLong => return Advance::Broken,
                }
                self.has_event = true;
            }
            let needed = self.passed.saturating_add(stream.tokens());
            let is_free = stream.tokens() == 0 || stream.is_finished();
            let is_reserved = |covered| needed <= covered || self.reported.is_some_and(|output| output <= covered);
            if !is_free && !self.covered.is_none_or(is_reserved) {
                return Advance::Waits;
            }
            stream.pass(out);
            (self.passed, self.has_event) = (needed, false);
        }
    }

    /// Returns `true` if it is time for more tokens.
    fn needs_more(&self) -> bool {
        let (Some(covered), Some(stream)) = (self.covered, &self.stream) else { return self.covered.is_some() };
        let least = self.slice / if self.is_scarce { 4 } else { 2 };
        self.has_event
            || (!stream.is_finished() && self.reported.is_none() && covered - self.passed.min(covered) < least)
    }

    /// The tokens that are reserved next.
    fn target(&self) -> u64 {
        let (Some(covered), Some(stream)) = (self.covered, &self.stream) else { return u64::MAX };
        let needed =
            if self.has_event { self.passed.saturating_add(stream.tokens()).saturating_sub(covered) } else { 0 };
        let more = match self.is_scarce {
            true => needed.max(self.slice / 4).max(1),
            false => needed.saturating_add(self.slice.max(self.passed / LEAST_FRACTION)),
        };
        covered.saturating_add(more)
    }
}
