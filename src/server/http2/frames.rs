//! Rate limit on incoming frames that request nothing, which `h2` would answer without end.
//!
//! A connection has credit for so many frames that ask for nothing. Time, requests and what we send give it back, since
//! whoever is sent much has to say WINDOW_UPDATE often. Nothing is read here but lengths, types and one flag.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::Ledger;
use crate::server::stream::Meter;

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
const END_STREAM: u8 = 1;

/// Counts the frames of a connection.
#[derive(Debug)]
pub(super) struct Frames {
    ledger: Arc<Ledger>,
    heads: Heads,
    credit: Credit,
}

/// Finds the heads of frames in bytes that come in pieces.
#[derive(Debug)]
struct Heads {
    head: [u8; HEAD],
    filled: usize,
    /// Bytes until the next head.
    skip: usize,
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
        let heads = Heads { head: [0; HEAD], filled: 0, skip: PREFACE };
        let credit = Credit { left: CREDIT, since: Instant::now(), bytes: 0 };
        Self { ledger, heads, credit }
    }
}

impl Heads {
    fn find(&mut self, mut bytes: &[u8], mut found: impl FnMut(usize, u8, u8)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            bytes = &bytes[skipped..];
            self.skip -= skipped;
            let taken = (HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.filled += taken;
            if self.filled == HEAD {
                let [a, b, c, kind, flags, ..] = self.head;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.filled = 0;
                found(self.skip, kind, flags);
            }
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

    fn received(&mut self, bytes: &[u8]) {
        self.ledger.read(bytes.len());
        let (credit, ledger) = (&mut self.credit, &self.ledger);
        let mut pays = true;
        self.heads.find(bytes, |length, kind, flags| match (kind, length) {
            (HEADERS, _) => credit.earn(A_REQUEST),
            (DATA, 1..) => credit.earn_bytes(length),
            (DATA, 0) if flags & END_STREAM != 0 => {}
            (RST_STREAM, _) => {
                ledger.told_to_reset();
                pays &= credit.spend();
            }
            _ => pays &= credit.spend(),
        });
        if !pays {
            self.ledger.flood();
        }
    }

    fn sent(&mut self, count: usize) {
        self.credit.earn_bytes(count.saturating_mul(SENT));
    }

    fn lingers(&self) -> Option<(Duration, usize)> {
        self.ledger.is_dismissed().then_some((LINGER, MOST_LINGERED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pieces: &[&[u8]]) -> Vec<(usize, u8, u8)> {
        let mut heads = Heads { head: [0; HEAD], filled: 0, skip: PREFACE };
        let mut found = Vec::new();
        for piece in pieces {
            heads.find(piece, |length, kind, flags| found.push((length, kind, flags)));
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
