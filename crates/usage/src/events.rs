//! Server-sent events (WHATWG HTML, section 9.2), in pieces that end anywhere.
//!
//! The reader stores no data. It returns the data of each event in the pieces in which it arrives.

/// The reader of one stream of events.
#[derive(Clone, Debug, Default)]
pub struct Events {
    line: Line,
    /// The last byte was a carriage return: a line feed after it belongs to the same end of a line.
    is_after_return: bool,
    /// The event has a line of data.
    has_data: bool,
}

/// A part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Some bytes of the data. Lines of data are joined by a line feed.
    Data(&'a [u8]),
    /// The event is complete. Events without data are left out.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// In a byte order mark, of which this many bytes were read. Only at the start of the stream.
    Mark(u8),
    /// In the name of the field, which equals this many bytes of `data`.
    Name(u8),
    /// After `data:`. A space here is not part of the value.
    BeforeValue,
    /// In the value of `data`.
    Value,
    /// In another field or a comment.
    Other,
}

const MARK: &[u8] = b"\xEF\xBB\xBF";
const DATA: &[u8] = b"data";

impl Default for Line {
    fn default() -> Self {
        Self::Mark(0)
    }
}

impl Events {
    /// Reads the next piece of the stream. Calls `sink` with each part of events.
    pub fn push(&mut self, mut piece: &[u8], mut sink: impl FnMut(Part<'_>)) {
        while let Some((&byte, rest)) = piece.split_first() {
            let is_second_half = byte == b'\n' && std::mem::take(&mut self.is_after_return);
            self.is_after_return = byte == b'\r';
            piece = match byte {
                b'\n' if is_second_half => rest,
                b'\r' | b'\n' => {
                    self.end_line(&mut sink);
                    rest
                }
                _ => self.bytes(byte, piece, &mut sink),
            };
        }
    }

    /// Ends the stream. An event without the blank line after it counts: some servers omit the line after the last event.
    pub fn end(&mut self, mut sink: impl FnMut(Part<'_>)) {
        self.end_line(&mut sink);
        self.end_event(&mut sink);
    }

    /// Reads bytes of a line. Returns the bytes after them.
    fn bytes<'p>(&mut self, byte: u8, piece: &'p [u8], sink: &mut impl FnMut(Part<'_>)) -> &'p [u8] {
        let rest = &piece[1..];
        match self.line {
            Line::Mark(read) if MARK[usize::from(read)] == byte => {
                self.line = if read == 2 { Line::Name(0) } else { Line::Mark(read + 1) };
                rest
            }
            Line::Mark(0) => {
                self.line = Line::Name(0);
                piece
            }
            Line::Name(read) => {
                self.line = match DATA.get(usize::from(read)) {
                    Some(expected) if *expected == byte => Line::Name(read + 1),
                    None if byte == b':' => Line::BeforeValue,
                    _ => Line::Other,
                };
                if self.line == Line::BeforeValue {
                    self.start_data(sink);
                }
                rest
            }
            Line::BeforeValue => {
                self.line = Line::Value;
                if byte == b' ' { rest } else { piece }
            }
            Line::Value => {
                let end = end_of_line(piece);
                sink(Part::Data(&piece[..end]));
                &piece[end..]
            }
            Line::Mark(_) | Line::Other => {
                self.line = Line::Other;
                &piece[end_of_line(piece)..]
            }
        }
    }

    fn start_data(&mut self, sink: &mut impl FnMut(Part<'_>)) {
        if self.has_data {
            sink(Part::Data(b"\n"));
        }
        self.has_data = true;
    }

    fn end_line(&mut self, sink: &mut impl FnMut(Part<'_>)) {
        match self.line {
            Line::Mark(0) | Line::Name(0) => self.end_event(sink),
            // A field without a colon has the empty value.
            Line::Name(read) if usize::from(read) == DATA.len() => self.start_data(sink),
            _ => {}
        }
        self.line = Line::Name(0);
    }

    fn end_event(&mut self, sink: &mut impl FnMut(Part<'_>)) {
        if std::mem::take(&mut self.has_data) {
            sink(Part::End);
        }
    }
}

fn end_of_line(piece: &[u8]) -> usize {
    memchr::memchr2(b'\r', b'\n', piece).unwrap_or(piece.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Events, Part};

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut events, mut all, mut data) = (Events::default(), Vec::new(), Vec::new());
        let mut sink = |part: Part<'_>| match part {
            Part::Data(bytes) => data.extend_from_slice(bytes),
            Part::End => all.push(String::from_utf8_lossy(&std::mem::take(&mut data)).into_owned()),
        };
        for piece in pieces {
            events.push(piece, &mut sink);
        }
        events.end(&mut sink);
        all
    }

    /// A reader of whole streams: splits them into lines, and lines into fields.
    fn reference(stream: &str) -> Vec<String> {
        let stream = stream.strip_prefix('\u{FEFF}').unwrap_or(stream).replace("\r\n", "\n").replace('\r', "\n");
        let (mut all, mut data) = (Vec::new(), None::<String>);
        for line in stream.split('\n').chain([""]) {
            let value = line
                .strip_prefix("data")
                .and_then(|rest| if rest.is_empty() { Some("") } else { rest.strip_prefix(':') });
            match (line, value) {
                ("", _) => all.extend(data.take()),
                (_, Some(value)) => {
                    let value = value.strip_prefix(' ').unwrap_or(value);
                    data = Some(data.map_or_else(|| value.to_owned(), |data| data + "\n" + value));
                }
                _ => {}
            }
        }
        all
    }

    #[test]
    fn data_lines_of_an_event_are_joined() {
        let stream =
            "\u{FEFF}: hello\r\nevent: x\ndata: {\"a\":\rdata:  1}\r\n\r\nid: 7\n\ndata\n\ndatax: no\n\ndata: [DONE]";
        assert_eq!(read([stream.as_bytes()]), ["{\"a\":\n 1}", "", "[DONE]"]);
    }

    proptest! {
        #[test]
        fn reader_finds_what_a_reader_of_lines_finds(stream in "(\u{FEFF})?((data|dat|datas|:|event)?:? ?[ab: \u{FEFF}]{0,3}(\r\n|\r|\n|\n\n)){0,8}") {
            let expected = reference(&stream);
            prop_assert_eq!(&read([stream.as_bytes()]), &expected);
            for end in 0..stream.len() {
                let (head, tail) = stream.as_bytes().split_at(end);
                prop_assert_eq!(&read([head, tail]), &expected);
            }
        }
    }
}
