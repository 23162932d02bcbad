//! Streams that the gateway may end before the upstream does, in the way of the API: as if the output had reached its bound.
//!
//! The events of the stream pass one by one. Each is held back until it is complete, so that a client never has a part of an
//! event when the stream ends.

mod anthropic;
mod events;
mod openai;
mod responses;

use std::sync::{Arc, LazyLock};

use self::events::Event;
use crate::events::{Events, Part};
use crate::format::Api;
use crate::json::{PointerError, Pointers, Scanner};
use crate::usage::Usage;

/// The longest event, in bytes. The last event of OpenAI's responses repeats the whole output.
const MAX_EVENT: usize = 1 << 20;

/// A stream of server-sent events that can be ended after each event.
#[derive(Clone, Debug)]
pub struct EndableStream {
    ending: Ending,
    /// The client must not receive the event with the usage.
    removes_usage: bool,
    events: Events,
    scanner: Scanner,
    /// The event that is being read, and what it has.
    held: Vec<u8>,
    event: Event,
    /// The last byte that was read, and the last one that has passed.
    last_read: Option<u8>,
    last_passed: Option<u8>,
}

/// The way in which the streams of an API end, with the members of earlier events that the end repeats.
#[derive(Clone, Debug)]
enum Ending {
    OpenAi(openai::Stream),
    Responses(responses::Stream),
    Anthropic(anthropic::Stream),
}

/// The result of [`EndableStream::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The piece has this many bytes of the event, and the event is complete.
    Complete(usize),
    /// The whole piece belongs to the event, which is not complete.
    Incomplete,
    /// The event has more than a mebibyte.
    TooLong,
}

impl Api {
    /// Returns `true` if the gateway can end the streams of this API.
    pub fn has_endable_streams(self) -> bool {
        matches!(self, Self::OpenAi | Self::OpenAiResponses | Self::Anthropic)
    }
}

impl EndableStream {
    /// Creates the reader of one stream. With `removes_usage`, the event with the usage of OpenAI's chat and completions does not
    /// pass. Returns `None` if the gateway cannot end the streams of this API.
    pub fn new(api: Api, removes_usage: bool) -> Option<Self> {
        let ending = match api {
            Api::OpenAi => Ending::OpenAi(openai::Stream::default()),
            Api::OpenAiResponses => Ending::Responses(responses::Stream::default()),
            Api::Anthropic => Ending::Anthropic(anthropic::Stream::default()),
            Api::Gemini | Api::Bedrock => return None,
        };
        let (events, event) = <(Events, Event)>::default();
        let scanner = Scanner::new(pointers(api));
        Some(Self {
            ending,
            removes_usage,
            events,
            scanner,
            held: Vec::new(),
            event,
            last_read: None,
            last_passed: None,
        })
    }

    /// Reads a piece of the stream up to the end of the next event. A complete event [passes](Self::pass) before the next one is
    /// read.
    pub fn read(&mut self, piece: &[u8]) -> Progress {
        let mut read = 0;
        for line in piece.split_inclusive(|byte| is_line_end(*byte)) {
            read += line.len();
            if self.read_line(line) {
                // Both bytes of the end of a line pass together, if they have arrived together.
                if line == b"\r" && piece.get(read) == Some(&b'\n') {
                    self.read_line(b"\n");
                    read += 1;
                }
                return Progress::Complete(read);
            }
            if self.held.len() > MAX_EVENT {
                return Progress::TooLong;
            }
        }
        Progress::Incomplete
    }

    /// Reads a line, or a part of one. Returns `true` if it is the blank line after an event.
    fn read_line(&mut self, line: &[u8]) -> bool {
        let is_second_half = line == b"\n" && self.last_read == Some(b'\r');
        let is_blank = line.len() == 1 && is_line_end(line[0]) && self.last_read.is_none_or(is_line_end);
        self.held.extend_from_slice(line);
        self.last_read = line.last().copied();
        let (scanner, event) = (&mut self.scanner, &mut self.event);
        self.events.push(line, |part| {
            // Some events are no JSON.
            if let Part::Data(data) = part {
                _ = scanner.push(data, event);
            }
        });
        is_blank && !is_second_half
    }

    /// The most tokens of output that the event can be: a token has at least one byte. 0 for events without text.
    pub fn tokens(&self) -> u64 {
        self.event.text
    }

    /// Appends the event that was read to `out`.
    pub fn pass(&mut self, out: &mut Vec<u8>) {
        let event = std::mem::take(&mut self.event);
        self.event.is_named = event.is_named || event.id.is_some();
        self.scanner.reset();
        if self.removes_usage && event.has_usage && !event.has_choice {
            return self.held.clear();
        }
        self.ending.pass(event);
        self.last_passed = self.held.last().copied().or(self.last_passed);
        out.append(&mut self.held);
    }

    /// Appends the end of the stream to `out`, instead of all further events. Clients see that the output has reached its bound.
    /// `usage` is the usage that the end reports.
    pub fn end(&mut self, usage: &Usage, out: &mut Vec<u8>) {
        if self.last_passed == Some(b'\r') {
            out.push(b'\n');
        }
        self.held.clear();
        // The first event may be held back: only it has the names of the response.
        self.ending.pass(std::mem::take(&mut self.event).names());
        match &self.ending {
            Ending::OpenAi(stream) => stream.end(usage, !self.removes_usage, out),
            Ending::Responses(stream) => stream.end(usage, out),
            Ending::Anthropic(stream) => stream.end(usage, out),
        }
    }

    /// Returns `true` if a part of the stream has not passed.
    pub fn has_part(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns `true` if the output is complete: further events have no text.
    pub fn is_finished(&self) -> bool {
        match &self.ending {
            Ending::OpenAi(stream) => stream.is_finished,
            Ending::Responses(stream) => stream.is_finished,
            Ending::Anthropic(stream) => stream.is_finished,
        }
    }
}

impl Ending {
    fn pass(&mut self, event: Event) {
        match self {
            Self::OpenAi(stream) => stream.pass(event),
            Self::Responses(stream) => stream.pass(event),
            Self::Anthropic(stream) => stream.pass(&event),
        }
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Appends an event. Its data is one line.
fn write(name: Option<&str>, data: &impl std::fmt::Display, out: &mut Vec<u8>) {
    let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    out.extend_from_slice(format!("{name}data: {data}\n\n").as_bytes());
}

/// The places of the members that are read of each event.
fn pointers(api: Api) -> Arc<Pointers> {
    // A test builds the pointers of every API.
    static ALL: LazyLock<Vec<Arc<Pointers>>> =
        LazyLock::new(|| Api::ALL.iter().map(|api| Arc::new(build(*api).unwrap_or_default())).collect());
    Arc::clone(&ALL[api as usize])
}

fn build(api: Api) -> Result<Pointers, PointerError> {
    let texts = events::texts(api).iter().try_fold(Pointers::default(), |all, place| all.text(place, events::TEXT));
    events::values(api).iter().try_fold(texts?, |all, (field, place)| all.value(place, *field))
}

#[cfg(test)]
mod tests;
