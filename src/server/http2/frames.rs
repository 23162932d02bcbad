//! Rate limit on incoming frames that request nothing, which `h2` would answer without end.
//!
//! A connection has credit for so many frames that ask for nothing. Time, requests and what we send give it back, since
//! whoever is sent much has to say WINDOW_UPDATE often. Nothing is read here but lengths, types and one flag.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::Ledger;
use super::shutdown::{PAYLOAD, PING_ACK};
use crate::http2::Trailers;
use crate::server::stream::{Meter, NextRead};

/// The most frames that ask for nothing in one go.
const CREDIT: u64 = 1_000;
/// What comes back in a second,
const A_SECOND: u64 = 100;
/// for a request,
const A_REQUEST: u64 = 4;
/// and for bytes that are sent to us: one for so many.
const BYTES: u64 = 512;
/// What a client is sent gives back as much as so many times the bytes from it: it may answer each frame, and the shortest
/// message of gRPC is one of 15 bytes, with a WINDOW_UPDATE for the stream, one for the connection, and a PING.
const SENT: usize = 128;

/// How long and how many bytes of a client that was told to go away are thrown away, so that it hears it.
const LINGER: Duration = Duration::from_millis(500);
const MOST_LINGERED: usize = 256 * 1024;

const PREFACE: usize = 24;
const HEAD: usize = 9;
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
pub(super) struct Frames {
    ledger: Arc<Ledger>,
    heads: Heads,
    credit: Credit,
    /// The rest of the acknowledgement to insert in place of the client's.
    ack: &'static [u8],
}

/// Finds the heads of frames in bytes that come in pieces.
#[derive(Debug)]
struct Heads {
    head: [u8; HEAD],
    filled: usize,
    /// Bytes until the next head.
    skip: usize,
    /// A header block has begun and not ended: only CONTINUATION may follow (RFC 9113 section 6.10).
    in_block: bool,
    /// In a PING acknowledgement, the number of payload bytes so far, all equal to the shutdown PING's.
    matched: Option<usize>,
    trailers: Trailers,
}

/// An event in the bytes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The head of a frame: its length, type and flags.
    Head(usize, u8, u8),
    /// The end of an acknowledgement of the shutdown's PING.
    ShutdownAck,
    /// The end of trailers with a pseudo-header field, on this stream.
    MalformedTrailers(u32),
}

/// What may still come that asks for nothing.
#[derive(Debug)]
struct Credit {
    left: u64,
    /// Since when time has given nothing back.
    since: Instant,
    /// Bytes that have not given anything back yet.
    bytes: u64,
}

impl Frames {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        let heads = Heads::new();
        let credit = Credit { left: CREDIT, since: Instant::now(), bytes: 0 };
        Self { ledger, heads, credit, ack: &PING_ACK }
    }
}

impl Heads {
    fn new() -> Self {
        Self {
            head: [0; HEAD],
            filled: 0,
            skip: PREFACE,
            in_block: false,
            matched: None,
            trailers: Trailers::of_requests(),
        }
    }

    /// Whether another frame may stand here.
    fn are_at_boundary(&self) -> bool {
        self.skip == 0 && self.filled == 0 && !self.in_block
    }

    /// Bytes until the end of this frame, or of its head.
    fn until_end(&self) -> usize {
        if self.skip > 0 { self.skip } else { HEAD - self.filled }
    }

    /// Compares bytes of a payload; returns `true` at the end of an acknowledgement of the shutdown's PING.
    fn match_payload(&mut self, bytes: &[u8]) -> bool {
        let Some(matched) = self.matched.filter(|matched| PAYLOAD[*matched..].starts_with(bytes)) else {
            self.matched = None;
            return false;
        };
        self.matched = Some(matched + bytes.len());
        matched + bytes.len() == PAYLOAD.len()
    }

    /// Calls `found` with each event in the bytes.
    fn find(&mut self, mut bytes: &[u8], mut found: impl FnMut(Found)) {
        while !bytes.is_empty() {
            let (payload, rest) = bytes.split_at(self.skip.min(bytes.len()));
            self.skip -= payload.len();
            if !payload.is_empty() {
                self.read_payload(payload, &mut found);
            }
            let taken = (HEAD - self.filled).min(rest.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&rest[..taken]);
            bytes = &rest[taken..];
            self.filled += taken;
            if self.filled == HEAD {
                self.begin_frame(&mut found);
            }
        }
    }

    fn begin_frame(&mut self, found: &mut impl FnMut(Found)) {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.filled = 0;
        self.in_block = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS == 0;
        self.matched = (kind == PING && flags & ACK != 0 && self.skip == PAYLOAD.len()).then_some(0);
        found(Found::Head(self.skip, kind, flags));
        let stream = u32::from_be_bytes(stream);
        self.trailers.begin(self.skip, kind, flags, stream).map(Found::MalformedTrailers).into_iter().for_each(found);
    }

    fn read_payload(&mut self, bytes: &[u8], found: &mut impl FnMut(Found)) {
        if self.matched.is_some() && self.match_payload(bytes) {
            found(Found::ShutdownAck);
        }
        if self.trailers.reads() {
            self.trailers.read(bytes, self.skip).map(Found::MalformedTrailers).into_iter().for_each(found);
        }
    }
}

impl Credit {
    fn earn(&mut self, count: u64) {
        self.left = (self.left + count).min(CREDIT);
    }

    fn earn_bytes(&mut self, count: usize) {
        self.bytes += count as u64;
        self.earn(self.bytes / BYTES);
        self.bytes %= BYTES;
    }

    /// Pays for a frame; whether there was something left to pay with.
    fn spend(&mut self) -> bool {
        if self.left == 0 {
            let now = Instant::now();
            let time = u64::try_from((now - self.since).as_millis()).unwrap_or(u64::MAX);
            self.since = now;
            self.earn(time.saturating_mul(A_SECOND) / 1000);
        }
        let pays = self.left > 0;
        self.left = self.left.saturating_sub(1);
        pays
    }
}

impl Meter for Frames {
    /// The connection's task reads the ledger when there is nothing to read.
    fn may_read(&self) -> bool {
        self.ledger.excess().is_none()
    }

    fn next_read(&mut self, room: usize) -> NextRead {
        if !self.ledger.lacks_ack() {
            return NextRead::Client(usize::MAX);
        }
        if !self.heads.are_at_boundary() {
            return NextRead::Client(self.heads.until_end());
        }
        let (part, rest) = self.ack.split_at(room.min(self.ack.len()));
        self.ack = rest;
        if rest.is_empty() {
            self.ledger.acknowledge();
        }
        NextRead::Inserted(part)
    }

    fn received(&mut self, bytes: &[u8]) {
        self.ledger.read(bytes.len());
        let (credit, ledger) = (&mut self.credit, &self.ledger);
        let mut pays = true;
        self.heads.find(bytes, |found| match found {
            Found::Head(_, HEADERS, _) => credit.earn(A_REQUEST),
            Found::Head(length @ 1.., DATA, _) => credit.earn_bytes(length),
            Found::Head(0, DATA, flags) if flags & END_STREAM != 0 => {}
            Found::Head(_, RST_STREAM, _) => {
                ledger.told_to_reset();
                pays &= credit.spend();
            }
            Found::Head(..) => pays &= credit.spend(),
            Found::ShutdownAck => ledger.acknowledge(),
            Found::MalformedTrailers(stream) => pays &= ledger.malformed.add(stream),
        });
        if !pays {
            self.ledger.flood();
        }
    }

    fn sent(&mut self, count: usize) {
        self.credit.earn_bytes(count.saturating_mul(SENT));
    }

    fn blocked(&mut self, is_blocked: bool) {
        self.ledger.queue().set_blocked(is_blocked);
    }

    fn lingers(&self) -> Option<(Duration, usize)> {
        (self.ledger.is_dismissed() || self.ledger.is_finished()).then_some((LINGER, MOST_LINGERED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pieces: &[&[u8]]) -> Vec<(usize, u8, u8)> {
        let mut heads = Heads::new();
        let mut found = Vec::new();
        for piece in pieces {
            heads.find(piece, |one| match one {
                Found::Head(length, kind, flags) => found.push((length, kind, flags)),
                other => panic!("{other:?}"),
            });
        }
        found
    }

    #[test]
    fn heads_are_found_wherever_the_bytes_are_cut() {
        let mut bytes = vec![7; PREFACE];
        bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        bytes.extend([0, 1, 2, 0, 1, 0, 0, 0, 1]);
        bytes.extend([9; 258]);
        bytes.extend([0, 0, 5, 2, 0, 0, 0, 0, 3, 1, 2, 3, 4, 5]);
        let expected = vec![(0, 4, 0), (258, 0, 1), (5, 2, 0)];
        for cut in 0..=bytes.len() {
            let (one, two) = bytes.split_at(cut);
            assert_eq!(found(&[one, two]), expected, "cut at {cut}");
        }
        assert_eq!(found(&bytes.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn acknowledgement_is_inserted_once_between_two_frames() {
        let inserted = |sent: &[u8], room: usize| {
            let ledger = Arc::new(Ledger::default());
            let mut frames = Frames::new(Arc::clone(&ledger));
            frames.received(&[0; PREFACE]);
            ledger.finish();
            let (mut read, mut sent) = (Vec::<u8>::new(), sent);
            loop {
                match frames.next_read(room) {
                    NextRead::Inserted(bytes) => read.extend(bytes),
                    NextRead::Client(_) if sent.is_empty() => return read,
                    NextRead::Client(max) => {
                        let (part, rest) = sent.split_at(max.min(sent.len()).min(room));
                        frames.received(part);
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
            // The client's own comes in two pieces: the gateway inserts none.
            let ledger = Arc::new(Ledger::default());
            let mut frames = Frames::new(Arc::clone(&ledger));
            frames.received(&[0; PREFACE]);
            PING_ACK.chunks(room).for_each(|part| frames.received(part));
            ledger.finish();
            assert_eq!(frames.next_read(room), NextRead::Client(usize::MAX));
        }
    }

    #[test]
    fn acknowledgement_waits_for_the_end_of_a_header_block() {
        let ledger = Arc::new(Ledger::default());
        let mut frames = Frames::new(Arc::clone(&ledger));
        frames.received(&[0; PREFACE]);
        ledger.finish();
        for (bytes, next) in [
            (vec![0, 0, 3, HEADERS], NextRead::Client(5)),
            (vec![0, 0, 0, 0, 1], NextRead::Client(3)),
            (vec![7; 3], NextRead::Client(9)),
            (vec![0, 0, 0, CONTINUATION, 0, 0, 0, 0, 1], NextRead::Client(9)),
            (vec![0, 0, 0, CONTINUATION, END_HEADERS, 0, 0, 0, 1], NextRead::Inserted(&PING_ACK)),
            (vec![], NextRead::Client(usize::MAX)),
        ] {
            frames.received(&bytes);
            assert_eq!(frames.next_read(100), next, "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_small_messages_may_be_answered_frame_by_frame() {
        let ledger = Arc::new(Ledger::default());
        let mut frames = Frames::new(Arc::clone(&ledger));
        let window_update = [0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 15];
        let ping = [[0, 0, 8, 6, 0, 0, 0, 0, 0].as_slice(), &[0; 8]].concat();
        frames.received(&[0; PREFACE]);
        for _ in 0..100_000 {
            frames.sent(15);
            frames.received(&[window_update.as_slice(), &window_update, &ping].concat());
        }
        assert_eq!(ledger.excess(), None);
        for _ in 0..=CREDIT {
            frames.received(&ping);
        }
        assert_eq!(ledger.excess(), Some("h2_flood"));
    }

    #[tokio::test(start_paused = true)]
    async fn credit_is_given_back_by_time_by_requests_and_by_what_is_sent() {
        let mut credit = Credit { left: 0, since: Instant::now(), bytes: 0 };
        assert!(!credit.spend());
        credit.earn(A_REQUEST);
        assert!((0..A_REQUEST).all(|_| credit.spend()) && !credit.spend());
        (0..BYTES).for_each(|_| credit.earn_bytes(1));
        assert!(credit.spend() && !credit.spend());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!((0..A_SECOND).all(|_| credit.spend()) && !credit.spend());
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert!((0..CREDIT).all(|_| credit.spend()) && !credit.spend());
    }
}
