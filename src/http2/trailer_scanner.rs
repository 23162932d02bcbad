//! Scans the frames of a connection for trailers with a pseudo-header field.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use super::hpack::HeaderBlocks;

/// The largest number of streams that are remembered per connection.
const MAX_STREAMS: usize = 200;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
/// A stream identifier has 31 bits.
const STREAM_ID_MASK: u32 = 0x7fff_ffff;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The streams of a connection that have received malformed trailers.
#[derive(Debug, Default)]
pub(crate) struct MalformedStreams {
    streams: Mutex<Vec<u32>>,
    /// Whether a stream was ever added. Usually `false`, which saves the lock.
    has_any: AtomicBool,
}

/// The sender of header blocks, which decides how trailers are recognized.
#[derive(Debug)]
enum Sender {
    /// A client, which opens streams in the order of their numbers. HEADERS of a stream up to `highest` are trailers.
    Client { highest: u32 },
    /// A server. `open` are the streams that have a head and have not ended. HEADERS that end an open stream are
    /// trailers, or the final head after an informational head, for which `h2` returns no trailers. Streams that the
    /// gateway has reset may stay in `open`: their number is bounded, because a connection with many resets takes no more
    /// requests.
    Server { open: HashSet<u32> },
}

impl MalformedStreams {
    /// Adds a stream. Returns `false` if there are too many.
    pub(crate) fn add(&self, stream: u32) -> bool {
        let mut streams = self.streams.lock();
        let has_capacity = streams.len() < MAX_STREAMS;
        if has_capacity {
            streams.push(stream);
        }
        self.has_any.store(true, Relaxed);
        has_capacity
    }

    /// Returns `true` if the trailers of this stream are malformed.
    pub(crate) fn contains(&self, stream: impl Into<u32>) -> bool {
        self.has_any.load(Relaxed) && self.streams.lock().contains(&stream.into())
    }

    /// Removes a stream that has ended.
    pub(crate) fn remove(&self, stream: impl Into<u32>) {
        if self.has_any.load(Relaxed) {
            let stream = stream.into();
            self.streams.lock().retain(|one| *one != stream);
        }
    }
}

/// Scans the frames that one side of a connection sends.
#[derive(Debug)]
pub(crate) struct TrailerScanner {
    blocks: HeaderBlocks,
    /// The stream of the current header block, and whether the block contains trailers.
    stream: u32,
    are_trailers: bool,
    sender: Sender,
    /// The current frame: whether it starts with its padding length, and the remaining bytes of the priority and of the
    /// header block.
    is_padded: bool,
    priority: usize,
    fragment: usize,
    ends_block: bool,
    /// The stream of a malformed response head.
    malformed_head: Option<u32>,
}

impl TrailerScanner {
    /// Creates a scanner for the frames of a client.
    pub(crate) fn for_requests() -> Self {
        Self::new(Sender::Client { highest: 0 })
    }

    /// Creates a scanner for the frames of a server.
    pub(crate) fn for_responses() -> Self {
        Self::new(Sender::Server { open: HashSet::new() })
    }

    fn new(sender: Sender) -> Self {
        let (blocks, stream, are_trailers) = (HeaderBlocks::new(), 0, false);
        Self {
            blocks,
            stream,
            are_trailers,
            sender,
            is_padded: false,
            priority: 0,
            fragment: 0,
            ends_block: false,
            malformed_head: None,
        }
    }

    /// Takes the stream of a response head that has another pseudo-header field than `:status`. `h2` drops such fields,
    /// and rejects heads without `:status`.
    pub(crate) fn take_malformed_head(&mut self) -> Option<u32> {
        self.malformed_head.take()
    }

    /// Starts a frame. Returns the stream if this frame ends trailers with a pseudo-header field.
    pub(crate) fn begin_frame(&mut self, length: usize, kind: u8, flags: u8, stream: u32) -> Option<u32> {
        (self.is_padded, self.priority, self.fragment, self.ends_block) = (false, 0, 0, false);
        let stream = stream & STREAM_ID_MASK;
        match kind {
            HEADERS => {
                self.is_padded = flags & PADDED != 0 && length > 0;
                self.priority = if flags & PRIORITY != 0 { 5 } else { 0 };
                self.fragment = length.saturating_sub(self.priority + usize::from(self.is_padded));
                self.stream = stream;
                self.are_trailers = self.sender.begins_trailers(stream, flags & END_STREAM != 0);
                self.blocks.begin_block();
            }
            CONTINUATION => self.fragment = length,
            DATA if flags & END_STREAM == 0 => return None,
            DATA | RST_STREAM => {
                self.sender.end_stream(stream);
                return None;
            }
            _ => return None,
        }
        self.ends_block = flags & END_HEADERS != 0;
        if length == 0 { self.end_payload() } else { None }
    }

    /// Returns `true` if the payload of the current frame must be passed to [`read_payload`](Self::read_payload).
    pub(crate) fn needs_payload(&self) -> bool {
        self.fragment > 0 || self.ends_block
    }

    /// Reads a part of the payload of the current frame, after which `left` bytes follow. Returns the stream if the
    /// part ends trailers with a pseudo-header field.
    pub(crate) fn read_payload(&mut self, mut bytes: &[u8], left: usize) -> Option<u32> {
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
        if left == 0 { self.end_payload() } else { None }
    }

    fn end_payload(&mut self) -> Option<u32> {
        let ends_block = std::mem::take(&mut self.ends_block);
        if ends_block && matches!(self.sender, Sender::Server { .. }) && self.blocks.has_several_pseudo() {
            self.malformed_head = Some(self.stream);
        }
        (ends_block && self.are_trailers && self.blocks.has_pseudo()).then_some(self.stream)
    }
}

impl Sender {
    /// Returns `true` if a HEADERS frame starts trailers. `ends` is its END_STREAM flag.
    fn begins_trailers(&mut self, stream: u32, ends: bool) -> bool {
        match self {
            Self::Client { highest } => {
                let is_known = stream <= *highest;
                *highest = stream.max(*highest);
                is_known
            }
            Self::Server { open } if ends => open.remove(&stream),
            Self::Server { open } => {
                open.insert(stream);
                false
            }
        }
    }

    /// Handles the end of a stream without trailers.
    fn end_stream(&mut self, stream: u32) {
        if let Self::Server { open } = self {
            open.remove(&stream);
        }
    }
}
