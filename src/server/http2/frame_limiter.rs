//! Limits the rate of frames without content, which `h2` would process without limit.
//!
//! A connection has credit for frames that neither open a stream nor carry data. It regains credit over time, with
//! requests, and with bytes that it is sent, because a client that receives much must send many WINDOW_UPDATE frames.
//! The limiter parses only frame headers, PING acknowledgements and trailers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::sent_resets::SentResets;
use super::shared_counters::SharedCounters;
use super::shutdown::{PAYLOAD, PING_ACK};
use crate::http2::TrailerScanner;
use crate::server::metered_socket::{Meter, NextRead};

/// The highest credit: how many frames without content may arrive at once.
const MAX_CREDIT: u64 = 1_000;
/// The credit that a connection regains each second.
const PER_SECOND: u64 = 100;
/// The credit that a request adds.
const PER_REQUEST: u64 = 4;
/// The number of body bytes that add a credit of one.
const BYTES_PER_CREDIT: u64 = 512;
/// Bytes to the client add this many times the credit of bytes from the client. The client may respond to each frame:
/// the shortest gRPC message takes 15 bytes, and causes a WINDOW_UPDATE for the stream, one for the connection, and a
/// PING.
const SENT_WEIGHT: usize = 128;

/// How long, and for how many bytes, the input of a client is discarded after a GOAWAY, so that the client can read
/// the GOAWAY.
const LINGER: Duration = Duration::from_millis(500);
const MAX_LINGERED: usize = 256 * 1024;

const PREFACE_LENGTH: usize = 24;
const HEADER_LENGTH: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Counts the frames of a connection.
#[derive(Debug)]
pub(super) struct FrameLimiter {
    counters: Arc<SharedCounters>,
    headers: FrameHeaders,
    credit: FrameCredit,
    resets: SentResets,
    /// The rest of the PING acknowledgement that is inserted in place of the client's.
    ack: &'static [u8],
}

/// Finds frame headers in bytes that arrive in pieces.
#[derive(Debug)]
struct FrameHeaders {
    header: [u8; HEADER_LENGTH],
    filled: usize,
    /// The number of bytes before the next frame header.
    skip: usize,
    /// Whether a header block is open: only CONTINUATION may follow (RFC 9113 section 6.10).
    in_block: bool,
    /// In a PING acknowledgement, the number of payload bytes that match the shutdown PING so far.
    ack_matched: Option<usize>,
    trailers: TrailerScanner,
}

/// An event in the bytes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameEvent {
    /// A frame header: length, type and flags.
    Header(usize, u8, u8),
    /// The end of an acknowledgement of the shutdown PING.
    ShutdownAck,
    /// The end of trailers with a pseudo-header field, on this stream.
    MalformedTrailers(u32),
}

/// The credit for frames without content.
#[derive(Debug)]
struct FrameCredit {
    available: u64,
    /// When time last added credit.
    since: Instant,
    /// Body bytes that have not added credit yet.
    bytes: u64,
}

impl FrameLimiter {
    pub(super) fn new(counters: Arc<SharedCounters>) -> Self {
        let headers = FrameHeaders::new();
        let credit = FrameCredit { available: MAX_CREDIT, since: Instant::now(), bytes: 0 };
        Self { counters, headers, credit, resets: SentResets::default(), ack: &PING_ACK }
    }
}

impl FrameHeaders {
    fn new() -> Self {
        Self {
            header: [0; HEADER_LENGTH],
            filled: 0,
            skip: PREFACE_LENGTH,
            in_block: false,
            ack_matched: None,
            trailers: TrailerScanner::for_requests(),
        }
    }

    /// Returns `true` if another frame may be inserted here.
    fn is_at_boundary(&self) -> bool {
        self.skip == 0 && self.filled == 0 && !self.in_block
    }

    /// Returns the number of bytes to the end of the current frame, or of its header.
    fn bytes_to_end(&self) -> usize {
        if self.skip > 0 { self.skip } else { HEADER_LENGTH - self.filled }
    }

    /// Compares bytes of a payload. Returns `true` at the end of an acknowledgement of the shutdown PING.
    fn match_payload(&mut self, bytes: &[u8]) -> bool {
        let Some(matched) = self.ack_matched.filter(|matched| PAYLOAD[*matched..].starts_with(bytes)) else {
            self.ack_matched = None;
            return false;
        };
        self.ack_matched = Some(matched + bytes.len());
        matched + bytes.len() == PAYLOAD.len()
    }

    /// Calls `found` with each event in the bytes.
    fn find(&mut self, mut bytes: &[u8], mut found: impl FnMut(FrameEvent)) {
        while !bytes.is_empty() {
            let (payload, rest) = bytes.split_at(self.skip.min(bytes.len()));
            self.skip -= payload.len();
            if !payload.is_empty() {
                self.read_payload(payload, &mut found);
            }
            let taken = (HEADER_LENGTH - self.filled).min(rest.len());
            self.header[self.filled..self.filled + taken].copy_from_slice(&rest[..taken]);
            bytes = &rest[taken..];
            self.filled += taken;
            if self.filled == HEADER_LENGTH {
                self.begin_frame(&mut found);
            }
        }
    }

    fn begin_frame(&mut self, found: &mut impl FnMut(FrameEvent)) {
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.filled = 0;
        self.in_block = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS == 0;
        self.ack_matched = (kind == PING && flags & ACK != 0 && self.skip == PAYLOAD.len()).then_some(0);
        found(FrameEvent::Header(self.skip, kind, flags));
        let stream = u32::from_be_bytes(stream);
        self.trailers
            .begin_frame(self.skip, kind, flags, stream)
            .map(FrameEvent::MalformedTrailers)
            .into_iter()
            .for_each(found);
    }

    fn read_payload(&mut self, bytes: &[u8], found: &mut impl FnMut(FrameEvent)) {
        if self.ack_matched.is_some() && self.match_payload(bytes) {
            found(FrameEvent::ShutdownAck);
        }
        if self.trailers.needs_payload() {
            self.trailers.read_payload(bytes, self.skip).map(FrameEvent::MalformedTrailers).into_iter().for_each(found);
        }
    }
}

impl FrameCredit {
    fn earn(&mut self, count: u64) {
        self.available = (self.available + count).min(MAX_CREDIT);
    }

    fn earn_bytes(&mut self, count: usize) {
        self.bytes += count as u64;
        self.earn(self.bytes / BYTES_PER_CREDIT);
        self.bytes %= BYTES_PER_CREDIT;
    }

    /// Charges a frame. Returns `false` if no credit was left.
    fn spend(&mut self) -> bool {
        if self.available == 0 {
            let now = Instant::now();
            let time = u64::try_from((now - self.since).as_millis()).unwrap_or(u64::MAX);
            self.since = now;
            self.earn(time.saturating_mul(PER_SECOND) / 1000);
        }
        let has_credit = self.available > 0;
        self.available = self.available.saturating_sub(1);
        has_credit
    }
}

impl Meter for FrameLimiter {
    /// When nothing can be read, the connection's task checks the counters itself.
    fn can_read(&self) -> bool {
        self.counters.exceeded_limit().is_none()
    }

    fn next_read(&mut self, room: usize) -> NextRead {
        if !self.counters.lacks_ack() {
            return NextRead::Client(usize::MAX);
        }
        if !self.headers.is_at_boundary() {
            return NextRead::Client(self.headers.bytes_to_end());
        }
        let (part, rest) = self.ack.split_at(room.min(self.ack.len()));
        self.ack = rest;
        if rest.is_empty() {
            self.counters.set_acknowledged();
        }
        NextRead::Inserted(part)
    }

    fn on_received(&mut self, bytes: &[u8]) {
        self.counters.record_read(bytes.len());
        let (credit, counters) = (&mut self.credit, &self.counters);
        let mut has_credit = true;
        self.headers.find(bytes, |found| match found {
            FrameEvent::Header(_, HEADERS, _) => credit.earn(PER_REQUEST),
            FrameEvent::Header(length @ 1.., DATA, _) => credit.earn_bytes(length),
            FrameEvent::Header(0, DATA, flags) if flags & END_STREAM != 0 => {}
            FrameEvent::Header(_, RST_STREAM, _) => {
                counters.count_rst_stream();
                has_credit &= credit.spend();
            }
            FrameEvent::Header(..) => has_credit &= credit.spend(),
            FrameEvent::ShutdownAck => counters.set_acknowledged(),
            FrameEvent::MalformedTrailers(stream) => has_credit &= counters.malformed.add(stream),
        });
        if !has_credit {
            self.counters.set_flooded();
        }
    }

    fn on_sent(&mut self, bytes: &[u8]) {
        self.credit.earn_bytes(bytes.len().saturating_mul(SENT_WEIGHT));
        let counters = &self.counters;
        self.resets.find(bytes, |stream, code| counters.record_sent_reset(stream, code));
    }

    fn set_blocked(&mut self, is_blocked: bool) {
        self.counters.queue().set_blocked(is_blocked);
    }

    fn linger_limits(&self) -> Option<(Duration, usize)> {
        (self.counters.is_goaway_sent() || self.counters.is_finished()).then_some((LINGER, MAX_LINGERED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_in(pieces: &[&[u8]]) -> Vec<(usize, u8, u8)> {
        let mut headers = FrameHeaders::new();
        let mut found = Vec::new();
        for piece in pieces {
            headers.find(piece, |one| match one {
                FrameEvent::Header(length, kind, flags) => found.push((length, kind, flags)),
                other => panic!("{other:?}"),
            });
        }
        found
    }

    #[test]
    fn frame_headers_are_found_at_any_split() {
        let mut bytes = vec![7; PREFACE_LENGTH];
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        bytes.extend([0, 1, 2, 0, 1, 0, 0, 0, 1]);
        bytes.extend([9; 258]);
        bytes.extend([0, 0, 5, 2, 0, 0, 0, 0, 3, 1, 2, 3, 4, 5]);
        let expected = vec![(0, 4, 0), (258, 0, 1), (5, 2, 0)];
        for cut in 0..=bytes.len() {
            let (one, two) = bytes.split_at(cut);
            assert_eq!(headers_in(&[one, two]), expected, "cut at {cut}");
        }
        assert_eq!(headers_in(&bytes.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn ping_ack_is_inserted_once_between_two_frames() {
        let inserted = |sent: &[u8], room: usize| {
            let counters = Arc::new(SharedCounters::default());
            let mut limiter = FrameLimiter::new(Arc::clone(&counters));
            limiter.on_received(&[0; PREFACE_LENGTH]);
            counters.set_finished();
            let (mut read, mut sent) = (Vec::<u8>::new(), sent);
            loop {
                match limiter.next_read(room) {
                    NextRead::Inserted(bytes) => read.extend(bytes),
                    NextRead::Client(_) if sent.is_empty() => return read,
                    NextRead::Client(max) => {
                        let (part, rest) = sent.split_at(max.min(sent.len()).min(room));
                        limiter.on_received(part);
                        (sent, _) = (rest, read.extend(part));
                    }
                }
            }
        };
        let ping = [[0, 0, 8, PING, 0, 0, 0, 0, 0].as_slice(), &PAYLOAD].concat();
        let ack_of_another = [[0, 0, 8, PING, ACK, 0, 0, 0, 0].as_slice(), &[1; 8]].concat();
        for room in 1..40 {
            for frame in [&ping, &ack_of_another] {
                assert_eq!(inserted(frame, room), [&PING_ACK, &frame[..]].concat(), "{room}");
            }
            // If the client's own acknowledgement has arrived, in two pieces, the gateway inserts none.
            let counters = Arc::new(SharedCounters::default());
            let mut limiter = FrameLimiter::new(Arc::clone(&counters));
            limiter.on_received(&[0; PREFACE_LENGTH]);
            PING_ACK.chunks(room).for_each(|part| limiter.on_received(part));
            counters.set_finished();
            assert_eq!(limiter.next_read(room), NextRead::Client(usize::MAX));
        }
    }

    #[test]
    fn ping_ack_waits_for_the_end_of_a_header_block() {
        let counters = Arc::new(SharedCounters::default());
        let mut limiter = FrameLimiter::new(Arc::clone(&counters));
        limiter.on_received(&[0; PREFACE_LENGTH]);
        counters.set_finished();
        for (bytes, next) in [
            (vec![0, 0, 3, HEADERS], NextRead::Client(5)),
            (vec![0, 0, 0, 0, 1], NextRead::Client(3)),
            (vec![7; 3], NextRead::Client(9)),
            (vec![0, 0, 0, CONTINUATION, 0, 0, 0, 0, 1], NextRead::Client(9)),
            (vec![0, 0, 0, CONTINUATION, END_HEADERS, 0, 0, 0, 1], NextRead::Inserted(&PING_ACK)),
            (vec![], NextRead::Client(usize::MAX)),
        ] {
            limiter.on_received(&bytes);
            assert_eq!(limiter.next_read(100), next, "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responding_to_each_small_message_is_no_flood() {
        let counters = Arc::new(SharedCounters::default());
        let mut limiter = FrameLimiter::new(Arc::clone(&counters));
        let window_update = [0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 15];
        let ping = [[0, 0, 8, 6, 0, 0, 0, 0, 0].as_slice(), &[0; 8]].concat();
        limiter.on_received(&[0; PREFACE_LENGTH]);
        for _ in 0..100_000 {
            limiter.on_sent(&[0, 0, 6, DATA, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 7]);
            limiter.on_received(&[window_update.as_slice(), &window_update, &ping].concat());
        }
        assert_eq!(counters.exceeded_limit(), None);
        for _ in 0..=MAX_CREDIT {
            limiter.on_received(&ping);
        }
        assert_eq!(counters.exceeded_limit(), Some("h2_flood"));
    }

    #[tokio::test(start_paused = true)]
    async fn credit_is_regained_by_time_requests_and_bytes() {
        let mut credit = FrameCredit { available: 0, since: Instant::now(), bytes: 0 };
        assert!(!credit.spend());
        credit.earn(PER_REQUEST);
        assert!((0..PER_REQUEST).all(|_| credit.spend()) && !credit.spend());
        (0..BYTES_PER_CREDIT).for_each(|_| credit.earn_bytes(1));
        assert!(credit.spend() && !credit.spend());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!((0..PER_SECOND).all(|_| credit.spend()) && !credit.spend());
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert!((0..MAX_CREDIT).all(|_| credit.spend()) && !credit.spend());
    }
}
