//! Reads the usage of a response while its body is forwarded.

use crate::event_stream::EventStream;
use crate::events::{Events, Part};
use crate::format::{Counts, Format};
use crate::json::Scanner;
use crate::usage::Usage;

/// Reads the usage of one response. It takes a few hundred bytes, and stores no part of the body.
#[derive(Clone, Debug)]
pub struct UsageReader {
    format: Format,
    body: Body,
    scanner: Scanner,
    counts: Counts,
}

/// The kinds of bodies, by their media type.
#[derive(Clone, Debug)]
enum Body {
    Json,
    Events(Events),
    EventStream(EventStream),
}

impl UsageReader {
    /// Creates a reader for a response with this `Content-Type`. Types other than event streams are read as JSON.
    pub fn new(format: &Format, content_type: &[u8]) -> Self {
        let scanner = Scanner::new(format.pointers());
        Self { format: format.clone(), body: Body::new(content_type), scanner, counts: Counts::default() }
    }

    /// Reads the next piece of the body. A body that is malformed has no usage after the fault.
    pub fn push(&mut self, piece: &[u8]) {
        let (scanner, counts) = (&mut self.scanner, &mut self.counts);
        match &mut self.body {
            Body::Json => _ = scanner.push(piece, counts),
            Body::Events(events) => events.push(piece, |part| read(scanner, counts, part)),
            Body::EventStream(stream) => stream.push(piece, |part| read(scanner, counts, part)),
        }
    }

    /// Returns `true` if the body has server-sent events.
    pub fn reads_events(&self) -> bool {
        matches!(self.body, Body::Events(_))
    }

    /// Ends the body.
    pub fn end(&mut self) {
        let (scanner, counts) = (&mut self.scanner, &mut self.counts);
        if let Body::Events(events) = &mut self.body {
            events.end(|part| read(scanner, counts, part));
        }
    }

    /// The usage that the response has reported so far. In a stream, the latest one.
    pub fn usage(&self) -> Option<Usage> {
        self.format.usage(&self.counts)
    }

    /// The input that the response has reported so far, without the output.
    pub fn input(&self) -> Option<Usage> {
        self.format.input(&self.counts)
    }

    /// The bytes of text that a stream has sent so far. A token has at least one byte.
    pub fn text_bytes(&self) -> u64 {
        self.counts.text_bytes()
    }
}

impl Body {
    fn new(content_type: &[u8]) -> Self {
        let is = |media_type: &[u8]| {
            let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
            essence.trim_ascii().eq_ignore_ascii_case(media_type)
        };
        if is(b"text/event-stream") {
            Self::Events(Events::default())
        } else if is(b"application/vnd.amazon.eventstream") {
            Self::EventStream(EventStream::default())
        } else {
            Self::Json
        }
    }
}

/// Reads a part of an event. The data of some events is no JSON (`[DONE]`).
fn read(scanner: &mut Scanner, counts: &mut Counts, part: Part<'_>) {
    match part {
        Part::Data(piece) => _ = scanner.push(piece, counts),
        Part::End => scanner.reset(),
    }
}

#[cfg(test)]
mod tests;
