//! Limits the rate of frames without content, which `h2` would process without limit.
//!
//! A connection has credit for frames that neither open a stream nor carry data. It regains credit over time, with
//! requests, and with bytes that it is sent, because a client that receives much must send many WINDOW_UPDATE frames.
//! The limiter parses only frame headers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::sent_resets::SentResets;
use super::shared_counters::SharedCounters;
use crate::server::meter::Meter;

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
const END_STREAM: u8 = 1;

/// Counts the frames of a connection.
#[derive(Debug)]
pub(super) struct FrameLimiter {
    counters: Arc<SharedCounters>,
    headers: FrameHeaders,
    credit: FrameCredit,
    resets: SentResets,
}

/// Finds frame headers in bytes that arrive in pieces.
#[derive(Debug)]
struct FrameHeaders {
    header: [u8; HEADER_LENGTH],
    filled: usize,
    /// The number of bytes before the next frame header.
    skip: usize,
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
        Self { counters, headers, credit, resets: SentResets::default() }
    }
}

impl FrameHeaders {
    fn new() -> Self {
        Self { header: [0; HEADER_LENGTH], filled: 0, skip: PREFACE_LENGTH }
    }

    /// Calls `found` with the length, the type and the flags of each frame whose header ends in the bytes.
    fn find(&mut self, mut bytes: &[u8], mut found: impl FnMut(usize, u8, u8)) {
        while !bytes.is_empty() {
            let (payload, rest) = bytes.split_at(self.skip.min(bytes.len()));
            self.skip -= payload.len();
            let taken = (HEADER_LENGTH - self.filled).min(rest.len());
            self.header[self.filled..self.filled + taken].copy_from_slice(&rest[..taken]);
            bytes = &rest[taken..];
            self.filled += taken;
            if self.filled == HEADER_LENGTH {
                let [a, b, c, kind, flags, ..] = self.header;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.filled = 0;
                found(self.skip, kind, flags);
            }
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

    fn on_received(&mut self, bytes: &[u8]) {
        self.counters.record_read(bytes.len());
        let (credit, counters) = (&mut self.credit, &self.counters);
        let mut has_credit = true;
        self.headers.find(bytes, |length, kind, flags| match (length, kind) {
            (_, HEADERS) => credit.earn(PER_REQUEST),
            (1.., DATA) => credit.earn_bytes(length),
            (0, DATA) if flags & END_STREAM != 0 => {}
            (_, RST_STREAM) => {
                counters.count_rst_stream();
                has_credit &= credit.spend();
            }
            _ => has_credit &= credit.spend(),
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
            headers.find(piece, |length, kind, flags| found.push((length, kind, flags)));
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
