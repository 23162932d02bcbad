//! What a connection is waiting for, and its timeouts.
//!
//! A connection waits for its first byte, for the rest of a head, for the next request, or for nothing at all while a
//! request is being answered. Reads and requests record what changes; the connection's one timer checks the record
//! when it fires, so a request costs two stores and no timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::ConnectionLimits;
use super::pace::{Pace, TooSlow, millis};
use super::protocol::Protocol;

/// An HTTP/2 client is through with its greeting after this many bytes: the preface and an empty SETTINGS frame.
const GREETING: u64 = 24 + 9;

/// Clients that ask again do so within this time, mostly.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// The activity record of one connection. Moments are milliseconds after `begin`.
#[derive(Debug)]
pub(crate) struct Activity {
    begin: Instant,
    /// [`HTTP1`], [`HTTP2`] or [`OTHER`].
    speaks: AtomicU8,
    /// Requests that are being answered.
    in_flight: AtomicU32,
    /// Whether bytes have come that belong to a request that is not complete.
    partial: AtomicBool,
    /// When this wait began.
    since: AtomicU64,
    /// Bytes read so far.
    read: AtomicU64,
    /// Requests so far.
    requests: AtomicU32,
    /// How the client takes what it is sent.
    taking: Pace,
    /// How the client sends the body of the last request, in HTTP/1.
    sending: Pace,
    /// An answer broke off in the middle.
    broken: AtomicBool,
    /// The last request has a body, which has not been read to its end.
    uploading: AtomicBool,
    /// Streams of HTTP/2 that wait for nothing but the client; one counts twice that does so in both directions.
    waiting_streams: AtomicU32,
    /// When the last of them began to.
    waiting_since: AtomicU64,
    /// Streams of HTTP/2 that are tunnels.
    tunnels: AtomicU32,
}

/// What a connection speaks: HTTP/1, HTTP/2, or what it was switched to.
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;
const OTHER: u8 = 3;

/// A request under way. On drop, it is over.
#[derive(Debug)]
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    is_tunnel: bool,
}

/// What to do when the timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Look again then.
    Wait(Instant),
    /// Close once what is being answered is finished: nothing was asked for a long time.
    Retire,
    /// End the body that is being read, and tell the client: it sends too slowly.
    EndUpload,
    /// Close: the client keeps us waiting, in this way.
    Close(&'static str),
}

/// A wait for the client alone, and how long it has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) what: What,
    pub(crate) time: Duration,
}

/// What the client is waited for to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A request: none has begun.
    Request,
    /// The rest of a head.
    Head,
    /// More of a request's body.
    Upload,
    /// That it takes more of an answer.
    Answer,
    /// Bodies of all streams that there are, in either direction.
    Streams,
    /// Anything, in another protocol than HTTP. Its upstream is waited for as well.
    Switched,
}

/// The causes by which timeouts are counted.
pub(crate) const SLOW_HEAD: &str = "slow_head";
pub(crate) const SLOW_UPLOAD: &str = "slow_upload";
pub(crate) const SLOW_READER: &str = "slow_reader";

impl Activity {
    /// A connection that was opened at `begin`.
    pub(crate) fn new(begin: Instant) -> Self {
        Self {
            begin,
            speaks: AtomicU8::new(HTTP1),
            in_flight: AtomicU32::new(0),
            partial: AtomicBool::new(false),
            since: AtomicU64::new(0),
            read: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            taking: Pace::new(),
            sending: Pace::new(),
            broken: AtomicBool::new(false),
            uploading: AtomicBool::new(false),
            waiting_streams: AtomicU32::new(0),
            waiting_since: AtomicU64::new(0),
            tunnels: AtomicU32::new(0),
        }
    }

    /// TLS is spoken from now on, and a first request waited for.
    pub(crate) fn greeted(&self) {
        self.mark();
    }

    /// The first bytes have come, and tell this protocol. In HTTP/1 they are those of a head.
    pub(crate) fn speaks(&self, protocol: Protocol) {
        if protocol == Protocol::Http2 {
            self.speaks.store(HTTP2, Relaxed);
            self.partial.store(false, Relaxed);
        }
    }

    /// From here on it speaks another protocol, until it ends.
    pub(crate) fn switch(&self) {
        self.speaks.store(OTHER, Relaxed);
        self.mark();
    }

    pub(crate) fn is_switched(&self) -> bool {
        self.speaks.load(Relaxed) == OTHER
    }

    /// Bytes came in.
    pub(crate) fn read(&self, count: usize) {
        self.read.fetch_add(count as u64, Relaxed);
        self.sending.moves(count, || self.now());
        let begins = self.in_flight.load(Relaxed) == 0 && !self.partial.load(Relaxed);
        if begins && !self.is_http2() {
            self.partial.store(true, Relaxed);
            self.mark();
        } else if self.is_switched() {
            self.mark();
        }
    }

    /// The request body is read, and the client has sent no more.
    pub(crate) fn awaits_upload(&self) {
        self.sending.wait(|| self.now());
    }

    /// So many bytes of ours were taken; or none, and the client is waited for.
    pub(crate) fn wrote(&self, count: Option<usize>) {
        match count {
            Some(count) => self.taking.moves(count, || self.now()),
            None => self.taking.wait(|| self.now()),
        }
        if count.is_some() && self.is_switched() {
            self.mark();
        }
    }

    /// A request's head is complete, and a body may follow.
    pub(crate) fn begin_request(self: &Arc<Self>, has_body: bool) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        self.requests.store(self.requests.load(Relaxed).saturating_add(1), Relaxed);
        self.partial.store(false, Relaxed);
        self.uploading.store(has_body, Relaxed);
        self.sending.rest();
        InFlight { activity: Arc::clone(self), is_tunnel: false }
    }

    /// Requests so far, with the last one.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Relaxed)
    }

    /// The body of the last request has been read to its end, which may be after its answer.
    pub(crate) fn end_upload(&self) {
        self.uploading.store(false, Relaxed);
        self.sending.rest();
    }

    /// The last request's body is no longer read.
    pub(crate) fn leave_upload(&self) {
        self.sending.rest();
    }

    /// Requests that are being answered.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Whether a request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Whether the client may be in the middle of sending something that is not going to be read.
    pub(crate) fn may_be_sending(&self) -> bool {
        !self.is_http2() && (self.partial.load(Relaxed) || self.uploading.load(Relaxed))
    }

    /// The body of a stream waits for nothing but the client.
    pub(crate) fn stream_waits(&self) {
        self.waiting_streams.fetch_add(1, Relaxed);
        self.waiting_since.store(self.now(), Relaxed);
    }

    /// It does so no longer.
    pub(crate) fn stream_goes_on(&self) {
        self.waiting_streams.fetch_sub(1, Relaxed);
    }

    /// Bytes moved in a tunnel of HTTP/2, or it has just been opened.
    pub(crate) fn tunnel_moved(&self) {
        self.mark();
    }

    /// Its answer is over, one way or the other.
    fn end_request(&self) {
        if self.in_flight.fetch_sub(1, Relaxed) == 1 {
            self.mark();
        }
    }

    /// An answer broke off in the middle. In HTTP/1 only a reset tells the client for certain.
    pub(crate) fn break_off(&self) {
        self.broken.store(true, Relaxed);
    }

    pub(crate) fn needs_reset(&self) -> bool {
        !self.is_http2() && self.broken.load(Relaxed)
    }

    /// What the timer is to do now.
    pub(crate) fn judge(&self, limits: &ConnectionLimits) -> Verdict {
        let now = self.now();
        // A shorter wait may begin at any moment: no look is further away than the shortest of them.
        let mut look = now + millis(limits.shortest());
        match self.taking.judge(now, limits.body) {
            Ok(at) => look = look.min(at.unwrap_or(look)),
            Err(TooSlow) => return Verdict::Close(SLOW_READER),
        }
        match self.sending.judge(now, limits.body) {
            Ok(at) => look = look.min(at.unwrap_or(look)),
            Err(TooSlow) => return Verdict::EndUpload,
        }
        if !self.is_busy() && !self.taking.is_waiting() {
            let (limit, at_deadline) = match self.is_in_a_head() {
                true => (limits.header_timeout, Verdict::Close(SLOW_HEAD)),
                false => (limits.idle_timeout, Verdict::Retire),
            };
            let deadline = self.since.load(Relaxed).saturating_add(millis(limit));
            if deadline <= now {
                return at_deadline;
            }
            look = look.min(deadline);
        }
        Verdict::Wait(self.begin + Duration::from_millis(look))
    }

    /// What nothing but the client is waited for with; none while anything else is.
    pub(crate) fn wait(&self) -> Option<Wait> {
        let waiting_streams = self.waiting_streams.load(Relaxed);
        let tunnels = self.tunnels.load(Relaxed);
        let (what, since) = if let Some(since) = self.taking.since() {
            (What::Answer, since)
        } else if self.is_switched() {
            (What::Switched, self.since.load(Relaxed))
        } else if !self.is_busy() {
            (if self.is_in_a_head() { What::Head } else { What::Request }, self.since.load(Relaxed))
        } else if let Some(since) = self.sending.since() {
            (What::Upload, since)
        } else if tunnels > 0 && tunnels >= self.in_flight() {
            (What::Switched, self.since.load(Relaxed))
        } else if waiting_streams > 0 && waiting_streams + self.silent_tunnels() >= self.in_flight() {
            (What::Streams, self.waiting_since.load(Relaxed))
        } else {
            return None;
        };
        Some(Wait { what, time: Duration::from_millis(self.now().saturating_sub(since)) })
    }

    /// The tunnels of HTTP/2, once all have been silent for as long as another protocol must be to make room.
    fn silent_tunnels(&self) -> u32 {
        let are_silent = self.now() >= self.since.load(Relaxed).saturating_add(millis(What::Switched.still()));
        if are_silent { self.tunnels.load(Relaxed) } else { 0 }
    }

    /// Whether in HTTP/1 nothing has been asked for a while, and nothing is left of what was: what serves requests may go.
    pub(crate) fn rests(&self) -> bool {
        let was_asked = !self.is_http2() && self.requests() > 0;
        let idle = was_asked && !self.is_busy() && !self.is_in_a_head() && !self.uploading.load(Relaxed);
        idle && !self.taking.is_waiting() && self.now() >= self.since.load(Relaxed).saturating_add(millis(REST))
    }

    fn is_in_a_head(&self) -> bool {
        if self.is_http2() { self.read.load(Relaxed) < GREETING } else { self.partial.load(Relaxed) }
    }

    fn is_http2(&self) -> bool {
        self.speaks.load(Relaxed) == HTTP2
    }

    fn mark(&self) {
        self.since.store(self.now(), Relaxed);
    }

    fn now(&self) -> u64 {
        millis(self.begin.elapsed())
    }
}

impl InFlight {
    /// The notes on its connection.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Its stream of HTTP/2 is a tunnel from now on.
    pub(crate) fn becomes_tunnel(&mut self) {
        self.is_tunnel = true;
        self.activity.tunnels.fetch_add(1, Relaxed);
        self.activity.tunnel_moved();
    }

    /// The answer broke off in the middle.
    pub(crate) fn break_off(&self) {
        self.activity.break_off();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.is_tunnel {
            self.activity.tunnels.fetch_sub(1, Relaxed);
        }
        self.activity.end_request();
    }
}

impl Wait {
    /// Whether no request has begun for so long.
    pub(crate) fn is_for_a_request(self, time: Duration) -> bool {
        self.what == What::Request && self.time >= time
    }
}

impl What {
    /// What is lost with the connection: nothing, what its client can begin anew, or an answer under way.
    pub(crate) fn loss(self) -> u8 {
        match self {
            Self::Request | Self::Head => 0,
            Self::Switched => 1,
            Self::Upload | Self::Answer | Self::Streams => 2,
        }
    }

    /// How long it must last before the connection may be closed for another: a request needs as long to arrive. Much longer,
    /// and a flood of connections would leave no slot for anybody meanwhile. Other protocols are silent on purpose, but for
    /// pings more often than this.
    pub(crate) fn still(self) -> Duration {
        if self == Self::Switched { Duration::from_secs(60) } else { Duration::from_millis(250) }
    }

    /// The word by which connections are counted that end for it.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Request => "evicted_idle",
            Self::Head => "evicted_head",
            Self::Upload => "evicted_upload",
            Self::Answer => "evicted_reader",
            Self::Streams => "evicted_streams",
            Self::Switched => "evicted_upgraded",
        }
    }
}

impl ConnectionLimits {
    pub(crate) fn shortest(&self) -> Duration {
        self.header_timeout.min(self.idle_timeout).min(self.body.timeout)
    }
}

#[cfg(test)]
mod tests;
