//! The binary event streams of AWS (`application/vnd.amazon.eventstream`), in pieces that end anywhere.
//!
//! A message has a prelude of 12 bytes (its length, the length of its headers, a checksum), headers, a payload, and a
//! checksum of 4 bytes. The reader returns payloads. It leaves checksums to the client.

use crate::events::Part;

const PRELUDE: usize = 12;
const CHECKSUM: u32 = 4;

/// The longest message: AWS limits a payload to 24 MB, and headers to 128 KiB.
const MAX_MESSAGE: u32 = 32 << 20;

/// The reader of one stream.
#[derive(Clone, Debug)]
pub struct EventStream {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Prelude {
        bytes: [u8; PRELUDE],
        read: usize,
    },
    Headers {
        left: u32,
        payload: u32,
    },
    Payload {
        left: u32,
    },
    Checksum {
        left: u32,
    },
    /// A length is invalid, so the next message cannot be found.
    Malformed,
}

impl Default for EventStream {
    fn default() -> Self {
        Self { state: State::PRELUDE }
    }
}

impl State {
    const PRELUDE: Self = Self::Prelude { bytes: [0; PRELUDE], read: 0 };

    fn after_prelude(bytes: [u8; PRELUDE]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = bytes;
        let (message, headers) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let overhead = headers.saturating_add(12 + CHECKSUM);
        match message.checked_sub(overhead) {
            Some(payload) if message <= MAX_MESSAGE => Self::headers(headers, payload),
            _ => Self::Malformed,
        }
    }

    fn headers(left: u32, payload: u32) -> Self {
        if left == 0 { Self::payload(payload) } else { Self::Headers { left, payload } }
    }

    fn payload(left: u32) -> Self {
        if left == 0 { Self::Checksum { left: CHECKSUM } } else { Self::Payload { left } }
    }
}

impl EventStream {
    /// Reads the next piece of the stream. Calls `sink` with each part of payloads. After a malformed message, it reads
    /// nothing more.
    pub fn push(&mut self, mut piece: &[u8], mut sink: impl FnMut(Part<'_>)) {
        while !piece.is_empty() {
            piece = self.part(piece, &mut sink);
        }
    }

    /// Reads bytes of one part of a message. Returns the bytes after them.
    fn part<'p>(&mut self, piece: &'p [u8], sink: &mut impl FnMut(Part<'_>)) -> &'p [u8] {
        match &mut self.state {
            State::Prelude { bytes, read } => {
                let (now, rest) = split(piece, PRELUDE - *read);
                bytes[*read..*read + now.len()].copy_from_slice(now);
                *read += now.len();
                if *read == PRELUDE {
                    self.state = State::after_prelude(*bytes);
                }
                rest
            }
            State::Headers { left, payload } => {
                let (now, rest) = split(piece, *left as usize);
                self.state = State::headers(*left - len(now), *payload);
                rest
            }
            State::Payload { left } => {
                let (now, rest) = split(piece, *left as usize);
                sink(Part::Data(now));
                self.state = State::payload(*left - len(now));
                rest
            }
            State::Checksum { left } => {
                let (now, rest) = split(piece, *left as usize);
                *left -= len(now);
                if *left == 0 {
                    sink(Part::End);
                    self.state = State::PRELUDE;
                }
                rest
            }
            State::Malformed => &[],
        }
    }
}

/// The first `at` bytes or fewer, and the rest.
fn split(piece: &[u8], at: usize) -> (&[u8], &[u8]) {
    piece.split_at(at.min(piece.len()))
}

/// The length of a part of a message, which is below [`MAX_MESSAGE`].
fn len(part: &[u8]) -> u32 {
    u32::try_from(part.len()).unwrap_or(u32::MAX)
}
