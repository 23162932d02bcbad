//! Removes the event with the usage from a stream of OpenAI's chat or completions, if only the gateway has requested it.

use std::sync::{Arc, LazyLock};

use crate::events::{Events, Part};
use crate::json::{Field, PointerError, Pointers, Scanner, Sink, Value};

/// The longest event that is held back, in bytes. The event with the usage is much shorter.
const MAX_HELD: usize = 64 * 1024;

const USAGE: Field = Field(0);
const CHOICE: Field = Field(1);

/// The filter of one stream. It holds an event back until it is complete.
#[derive(Clone, Debug)]
pub struct UsageEventFilter {
    events: Events,
    scanner: Scanner,
    found: Found,
    held: Vec<u8>,
    /// The event is too long to be held back.
    passes: bool,
}

/// The members of the current event.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    has_usage: bool,
    has_choice: bool,
}

impl Sink for Found {
    fn value(&mut self, field: Field, value: Value<'_>, _: u64) {
        self.has_usage |= field == USAGE && value == Value::Object;
        self.has_choice |= field == CHOICE;
    }

    fn text(&mut self, _: Field, _: usize) {}
}

impl Default for UsageEventFilter {
    fn default() -> Self {
        static POINTERS: LazyLock<Arc<Pointers>> = LazyLock::new(|| Arc::new(pointers().unwrap_or_default()));
        let scanner = Scanner::new(Arc::clone(&POINTERS));
        Self { events: Events::default(), scanner, found: Found::default(), held: Vec::new(), passes: false }
    }
}

/// A test reads a usage with them.
fn pointers() -> Result<Pointers, PointerError> {
    Pointers::default().value("/usage", USAGE)?.value("/choices/*", CHOICE)
}

impl UsageEventFilter {
    /// Reads the next piece of the stream. Appends to `out` what is forwarded.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        for line in piece.split_inclusive(is_end) {
            self.held.extend_from_slice(line);
            if self.read(line) {
                self.end_event(out);
            } else if self.passes || self.held.len() > MAX_HELD {
                self.passes = true;
                out.append(&mut self.held);
            }
        }
    }

    /// Ends the stream. Appends to `out` what is forwarded.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.end_event(out);
    }

    /// Reads a line, or a part of one. Returns `true` if it ends an event.
    fn read(&mut self, line: &[u8]) -> bool {
        let (scanner, found, mut has_ended) = (&mut self.scanner, &mut self.found, false);
        self.events.push(line, |part| match part {
            // Some events are no JSON.
            Part::Data(data) => _ = scanner.push(data, found),
            Part::End => has_ended = true,
        });
        has_ended
    }

    fn end_event(&mut self, out: &mut Vec<u8>) {
        let Found { has_usage, has_choice } = std::mem::take(&mut self.found);
        if has_usage && !has_choice && !self.passes {
            self.held.clear();
        }
        out.append(&mut self.held);
        self.scanner.reset();
        self.passes = false;
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_HELD, UsageEventFilter};

    fn filter<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let (mut filter, mut out) = (UsageEventFilter::default(), Vec::new());
        for piece in pieces {
            filter.push(piece, &mut out);
        }
        filter.end(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn only_the_event_with_the_usage_is_removed() {
        let before = ": comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n";
        let usage = "event: x\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\ndata: \"total_tokens\":2}}\n\n";
        let after = "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n";
        let stream = [before, usage, after].concat();
        assert_eq!(filter([stream.as_bytes()]), [before, after].concat());
        assert_eq!(filter(stream.as_bytes().chunks(1)), [before, after].concat());
        for end in 0..stream.len() {
            let (head, tail) = stream.as_bytes().split_at(end);
            assert_eq!(filter([head, tail]), [before, after].concat(), "split at {end}");
        }
    }

    #[test]
    fn last_event_is_removed_without_its_blank_line() {
        assert_eq!(filter([&b"data: a\n\ndata: {\"choices\":[],\"usage\":{}}"[..]]), "data: a\n\n");
    }

    #[test]
    fn long_event_passes_in_pieces() {
        let long = format!("data: {{\"choices\":[],\"usage\":{{}},\"x\":\"{}\"}}\n\n", "x".repeat(2 * MAX_HELD));
        assert_eq!(filter(long.as_bytes().chunks(1_000)), long);
        let (mut filter, mut out) = (UsageEventFilter::default(), Vec::new());
        filter.push(&long.as_bytes()[..long.len() / 2 + 100], &mut out);
        assert!(!out.is_empty());
    }
}
