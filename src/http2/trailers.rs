//! Finds messages whose trailers have a pseudo-header field, among the frames of a connection.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use super::hpack::Blocks;

/// The most streams of a connection that are remembered.
const MAX_MALFORMED: usize = 200;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
/// A stream identifier has 31 bits.
const STREAM: u32 = 0x7fff_ffff;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The streams of a connection that have received malformed trailers.
#[derive(Debug, Default)]
pub(crate) struct MalformedStreams {
    streams: Mutex<Vec<u32>>,
    /// Whether there are any: mostly not, which saves the lock.
    are_some: AtomicBool,
}

/// The sender of header blocks, which decides how trailers are recognized.
#[derive(Debug)]
enum Sender {
    /// A client, whose streams have rising numbers. This is the highest so far: HEADERS of a stream that is not higher are trailers.
    Client { highest: u32 },
    /// A server. These streams have a head and no end. HEADERS that end one of them are trailers, or the head behind an
    /// informational one, for which `h2` returns no trailers.
    Server { begun: HashSet<u32> },
}

impl MalformedStreams {
    /// Adds a stream. Returns `false` if there are too many.
    pub(crate) fn add(&self, stream: u32) -> bool {
        let mut streams = self.streams.lock();
        let has_room = streams.len() < MAX_MALFORMED;
        if has_room {
            streams.push(stream);
        }
        self.are_some.store(true, Relaxed);
        has_room
    }

    /// Whether the trailers of this stream are malformed.
    pub(crate) fn contains(&self, stream: impl Into<u32>) -> bool {
        self.are_some.load(Relaxed) && self.streams.lock().contains(&stream.into())
    }

    /// Forgets a stream that has ended.
    pub(crate) fn remove(&self, stream: impl Into<u32>) {
        if self.are_some.load(Relaxed) {
            let stream = stream.into();
            self.streams.lock().retain(|one| *one != stream);
        }
    }
}

/// Reads the header blocks that one side sends.
#[derive(Debug)]
pub(crate) struct Trailers {
    blocks: Blocks,
    /// The stream of the present block, and whether the block is that of trailers.
    stream: u32,
    are_trailers: bool,
    sender: Sender,
    /// The present frame: whether it begins with its padding length, and how many bytes of priority and of the block are left.
    is_padded: bool,
    priority: usize,
    fragment: usize,
    ends_block: bool,
}

impl Trailers {
    /// Creates a reader of a client's header blocks.
    pub(crate) fn of_requests() -> Self {
        Self::new(Sender::Client { highest: 0 })
    }

    /// Creates a reader of a server's header blocks.
    pub(crate) fn of_responses() -> Self {
        Self::new(Sender::Server { begun: HashSet::new() })
    }

    fn new(sender: Sender) -> Self {
        let (blocks, stream, are_trailers) = (Blocks::new(), 0, false);
        Self { blocks, stream, are_trailers, sender, is_padded: false, priority: 0, fragment: 0, ends_block: false }
    }

    /// A frame begins. Returns the stream if that ends trailers with a pseudo-header field.
    pub(crate) fn begin(&mut self, length: usize, kind: u8, flags: u8, stream: u32) -> Option<u32> {
        (self.is_padded, self.priority, self.fragment, self.ends_block) = (false, 0, 0, false);
        let stream = stream & STREAM;
        match kind {
            HEADERS => {
                self.is_padded = flags & PADDED != 0 && length > 0;
                self.priority = if flags & PRIORITY != 0 { 5 } else { 0 };
                self.fragment = length.saturating_sub(self.priority + usize::from(self.is_padded));
                self.stream = stream;
                self.are_trailers = self.sender.begins_trailers(stream, flags & END_STREAM != 0);
                self.blocks.begin();
            }
            CONTINUATION => self.fragment = length,
            DATA if flags & END_STREAM == 0 => return None,
            DATA | RST_STREAM => {
                self.sender.end(stream);
                return None;
            }
            _ => return None,
        }
        self.ends_block = flags & END_HEADERS != 0;
        if length == 0 { self.end() } else { None }
    }

    /// Whether bytes of the present frame are of interest.
    pub(crate) fn reads(&self) -> bool {
        self.fragment > 0 || self.ends_block
    }

    /// Reads bytes of the present frame, of which `left` follow. Returns the stream if they end trailers with a pseudo-header
    /// field.
    pub(crate) fn read(&mut self, mut bytes: &[u8], left: usize) -> Option<u32> {
        if let (true, Some((padding, rest))) = (self.is_padded, bytes.split_first()) {
            self.is_padded = false;
            self.fragment = self.fragment.saturating_sub(usize::from(*padding));
            bytes = rest;
        }
        let stripped = self.priority.min(bytes.len());
        self.priority -= stripped;
        bytes = &bytes[stripped..];
        let count = self.fragment.min(bytes.len());
        self.fragment -= count;
        self.blocks.read(&bytes[..count]);
        if left == 0 { self.end() } else { None }
    }

    fn end(&mut self) -> Option<u32> {
        let is_malformed = std::mem::take(&mut self.ends_block) && self.are_trailers && self.blocks.has_pseudo();
        is_malformed.then_some(self.stream)
    }
}

impl Sender {
    /// Whether HEADERS that end their stream or not are trailers.
    fn begins_trailers(&mut self, stream: u32, ends: bool) -> bool {
        match self {
            Self::Client { highest } => {
                let is_known = stream <= *highest;
                *highest = stream.max(*highest);
                is_known
            }
            Self::Server { begun } if ends => begun.remove(&stream),
            Self::Server { begun } => {
                begun.insert(stream);
                false
            }
        }
    }

    /// The stream has ended without trailers.
    fn end(&mut self, stream: u32) {
        if let Self::Server { begun } = self {
            begun.remove(&stream);
        }
    }
}
