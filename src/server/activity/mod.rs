//! Records what a connection waits for, and checks its timeouts.
//!
//! A connection waits for its first byte, for the rest of a head, for the next request, or for nothing while a request
//! is in flight. Reads and requests record changes. The connection has one timer, which checks the record when it
//! fires. A request therefore costs two stores and no timer operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::ConnectionLimits;
use super::protocol::Protocol;
use super::transfer_rate::{TooSlow, TransferRate, millis};
use tidegate_limit::clock::poll_time;

/// The bytes of a complete HTTP/2 handshake: the preface and an empty SETTINGS frame.
const HTTP2_HANDSHAKE_BYTES: u64 = 24 + 9;

/// How long a connection without requests keeps its buffers. Most clients send their next request within this time.
pub(crate) const IDLE_DELAY: Duration = Duration::from_secs(1);

/// The activity record of one connection. Times are milliseconds after `opened_at`.
#[derive(Debug)]
pub(crate) struct Activity {
    opened_at: Instant,
    /// [`HTTP1`], [`HTTP2`] or [`UPGRADED`].
    protocol: AtomicU8,
    /// Requests in flight.
    in_flight: AtomicU32,
    /// Whether bytes of an incomplete request have arrived.
    has_partial_head: AtomicBool,
    /// When the current wait began.
    since: AtomicU64,
    /// Bytes read so far.
    bytes_read: AtomicU64,
    /// Requests so far.
    requests: AtomicU32,
    /// How fast the client reads responses.
    response_rate: TransferRate,
    /// How fast the client sends the body of the last request, in HTTP/1.
    upload_rate: TransferRate,
    /// A response was aborted.
    is_response_aborted: AtomicBool,
    /// The body of the last request has not been read to its end.
    has_unread_body: AtomicBool,
    /// HTTP/2 streams that wait for nothing but the client. A stream that waits in both directions counts twice.
    waiting_streams: AtomicU32,
    /// When the last of these waits began.
    waiting_since: AtomicU64,
    /// HTTP/2 streams that are tunnels.
    tunnels: AtomicU32,
}

/// The protocol of a connection: HTTP/1, HTTP/2, or the one that it was upgraded to.
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;
const UPGRADED: u8 = 3;

/// A request in flight. It ends on drop.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    activity: Arc<Activity>,
    is_tunnel: bool,
}

/// The action to take when the timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerAction {
    /// Check again at this time.
    Wait(Instant),
    /// Close after the requests in flight: the connection has been idle for too long.
    Finish,
    /// End the request body that is being read, and respond with an error: the client sends too slowly.
    EndUpload,
    /// Close the connection: the client is too slow. Contains the label of the timeout.
    Close(&'static str),
}

/// A wait for the client, or for either side of a tunnel, and how long it has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientWait {
    pub(crate) reason: WaitReason,
    pub(crate) duration: Duration,
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// A request, of which no byte has arrived.
    Request,
    /// The rest of a head.
    Head,
    /// More of a request body.
    Upload,
    /// The client must read more of a response.
    Response,
    /// The bodies of all streams, in either direction.
    Streams,
    /// Bytes of an upgraded connection or of tunnels, from the client or the upstream.
    Upgraded,
}

/// The labels by which timeouts are counted.
pub(crate) const SLOW_HEAD: &str = "slow_head";
pub(crate) const SLOW_UPLOAD: &str = "slow_upload";
pub(crate) const SLOW_READER: &str = "slow_reader";

impl Activity {
    /// Creates the record of a connection that was opened at this time.
    pub(crate) fn new(opened_at: Instant) -> Self {
        Self {
            opened_at,
            protocol: AtomicU8::new(HTTP1),
            in_flight: AtomicU32::new(0),
            has_partial_head: AtomicBool::new(false),
            since: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            response_rate: TransferRate::new(),
            upload_rate: TransferRate::new(),
            is_response_aborted: AtomicBool::new(false),
            has_unread_body: AtomicBool::new(false),
            waiting_streams: AtomicU32::new(0),
            waiting_since: AtomicU64::new(0),
            tunnels: AtomicU32::new(0),
        }
    }

    /// Records the end of the TLS handshake: the wait for the first request begins.
    pub(crate) fn handshake_completed(&self) {
        self.restart_wait();
    }

    /// Records the protocol that the first bytes belong to. In HTTP/1 they are part of a head.
    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        if protocol == Protocol::Http2 {
            self.protocol.store(HTTP2, Relaxed);
            self.has_partial_head.store(false, Relaxed);
        }
    }

    /// Records that the connection was upgraded to another protocol.
    pub(crate) fn set_upgraded(&self) {
        self.protocol.store(UPGRADED, Relaxed);
        self.restart_wait();
    }

    pub(crate) fn is_upgraded(&self) -> bool {
        self.protocol.load(Relaxed) == UPGRADED
    }

    /// Records bytes from the client.
    pub(crate) fn record_read(&self, count: usize) {
        self.bytes_read.fetch_add(count as u64, Relaxed);
        self.upload_rate.record_bytes(count, || self.now());
        let begins_head = self.in_flight.load(Relaxed) == 0 && !self.has_partial_head.load(Relaxed);
        if begins_head && !self.is_http2() {
            self.has_partial_head.store(true, Relaxed);
            self.restart_wait();
        } else if self.is_upgraded() {
            self.restart_wait();
        }
    }

    /// Records that the request body is being read, and the client has sent no more of it.
    pub(crate) fn begin_upload_wait(&self) {
        self.upload_rate.begin_wait(|| self.now());
    }

    /// Records that the socket took bytes, or with `None` that the gateway waits for the client to read.
    pub(crate) fn record_write(&self, count: Option<usize>) {
        match count {
            Some(count) => self.response_rate.record_bytes(count, || self.now()),
            None => self.response_rate.begin_wait(|| self.now()),
        }
        if count.is_some() && self.is_upgraded() {
            self.restart_wait();
        }
    }

    /// Records a complete request head, which a body may follow.
    pub(crate) fn begin_request(self: &Arc<Self>, has_body: bool) -> InFlightRequest {
        self.in_flight.fetch_add(1, Relaxed);
        self.requests.store(self.requests.load(Relaxed).saturating_add(1), Relaxed);
        self.has_partial_head.store(false, Relaxed);
        self.has_unread_body.store(has_body, Relaxed);
        self.upload_rate.reset();
        InFlightRequest { activity: Arc::clone(self), is_tunnel: false }
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Relaxed)
    }

    /// Records that the body of the last request has been read to its end, possibly after the response.
    pub(crate) fn end_upload(&self) {
        self.has_unread_body.store(false, Relaxed);
        self.upload_rate.reset();
    }

    /// Records that the body of the last request is no longer read.
    pub(crate) fn stop_upload_wait(&self) {
        self.upload_rate.reset();
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Returns `true` if a request is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Returns `true` if the client may be sending bytes that the gateway will not read.
    pub(crate) fn may_be_sending(&self) -> bool {
        !self.is_http2() && (self.has_partial_head.load(Relaxed) || self.has_unread_body.load(Relaxed))
    }

    /// Records that the body of a stream waits for nothing but the client.
    pub(crate) fn begin_stream_wait(&self) {
        self.waiting_streams.fetch_add(1, Relaxed);
        self.waiting_since.store(self.now(), Relaxed);
    }

    /// Records the end of such a wait.
    pub(crate) fn end_stream_wait(&self) {
        self.waiting_streams.fetch_sub(1, Relaxed);
    }

    /// Records that an HTTP/2 tunnel was opened or moved bytes.
    pub(crate) fn record_tunnel_bytes(&self) {
        self.restart_wait();
    }

    /// Records the end of a response, complete or not.
    fn end_request(&self) {
        if self.in_flight.fetch_sub(1, Relaxed) == 1 {
            self.restart_wait();
        }
    }

    /// Records that a response was aborted. In HTTP/1 the connection must then be reset, so that the client does not
    /// take the response for complete.
    pub(crate) fn abort_response(&self) {
        self.is_response_aborted.store(true, Relaxed);
    }

    pub(crate) fn needs_reset(&self) -> bool {
        !self.is_http2() && self.is_response_aborted.load(Relaxed)
    }

    /// Returns what the timer must do now.
    pub(crate) fn check_timers(&self, limits: &ConnectionLimits) -> TimerAction {
        let now = self.now();
        // A shorter wait may begin at any time, so the next check is never further away than the shortest timeout.
        let mut check_at = now + millis(limits.shortest_timeout());
        match self.response_rate.check(now, limits.body) {
            Ok(at) => check_at = check_at.min(at.unwrap_or(check_at)),
            Err(TooSlow) => return TimerAction::Close(SLOW_READER),
        }
        match self.upload_rate.check(now, limits.body) {
            Ok(at) => check_at = check_at.min(at.unwrap_or(check_at)),
            Err(TooSlow) => return TimerAction::EndUpload,
        }
        if !self.is_busy() && !self.response_rate.is_waiting() {
            let (limit, at_deadline) = match self.is_reading_head() {
                true => (limits.header_timeout, TimerAction::Close(SLOW_HEAD)),
                false => (limits.idle_timeout, TimerAction::Finish),
            };
            let deadline = self.since.load(Relaxed).saturating_add(millis(limit));
            if deadline <= now {
                return at_deadline;
            }
            check_at = check_at.min(deadline);
        }
        TimerAction::Wait(self.instant(check_at))
    }

    /// Returns the current wait for the client. Returns `None` while the connection waits for anything else.
    pub(crate) fn client_wait(&self) -> Option<ClientWait> {
        let waiting_streams = self.waiting_streams.load(Relaxed);
        let tunnels = self.tunnels.load(Relaxed);
        let (reason, since) = if let Some(since) = self.response_rate.waiting_since() {
            (WaitReason::Response, since)
        } else if self.is_upgraded() {
            (WaitReason::Upgraded, self.since.load(Relaxed))
        } else if !self.is_busy() {
            (if self.is_reading_head() { WaitReason::Head } else { WaitReason::Request }, self.since.load(Relaxed))
        } else if let Some(since) = self.upload_rate.waiting_since() {
            (WaitReason::Upload, since)
        } else if tunnels > 0 && tunnels >= self.in_flight() {
            (WaitReason::Upgraded, self.since.load(Relaxed))
        } else if waiting_streams > 0 && waiting_streams + self.silent_tunnels() >= self.in_flight() {
            (WaitReason::Streams, self.waiting_since.load(Relaxed))
        } else {
            return None;
        };
        Some(ClientWait { reason, duration: Duration::from_millis(self.now().saturating_sub(since)) })
    }

    /// Returns the number of HTTP/2 tunnels if all have been silent for long enough to be evicted, or 0.
    fn silent_tunnels(&self) -> u32 {
        let are_silent =
            self.now() >= self.since.load(Relaxed).saturating_add(millis(WaitReason::Upgraded.min_wait_to_evict()));
        if are_silent { self.tunnels.load(Relaxed) } else { 0 }
    }

    /// Returns `true` if an HTTP/1 connection has had no request for a while and all of the last one was read. Its
    /// buffers can then be freed.
    pub(crate) fn is_idle(&self) -> bool {
        let had_requests = !self.is_http2() && self.requests() > 0;
        let has_no_request =
            had_requests && !self.is_busy() && !self.is_reading_head() && !self.has_unread_body.load(Relaxed);
        has_no_request
            && !self.response_rate.is_waiting()
            && self.now() >= self.since.load(Relaxed).saturating_add(millis(IDLE_DELAY))
    }

    fn is_reading_head(&self) -> bool {
        if self.is_http2() {
            self.bytes_read.load(Relaxed) < HTTP2_HANDSHAKE_BYTES
        } else {
            self.has_partial_head.load(Relaxed)
        }
    }

    fn is_http2(&self) -> bool {
        self.protocol.load(Relaxed) == HTTP2
    }

    fn restart_wait(&self) {
        self.since.store(self.now(), Relaxed);
    }

    /// Returns the time since `opened_at` in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        millis(poll_time().saturating_duration_since(self.opened_at))
    }

    /// Converts a time in milliseconds since `opened_at`.
    pub(crate) fn instant(&self, time: u64) -> Instant {
        self.opened_at + Duration::from_millis(time)
    }
}

impl InFlightRequest {
    /// Returns the activity record of the connection.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Records that the HTTP/2 stream has become a tunnel.
    pub(crate) fn set_tunnel(&mut self) {
        self.is_tunnel = true;
        self.activity.tunnels.fetch_add(1, Relaxed);
        self.activity.record_tunnel_bytes();
    }

    /// Records that the response was aborted.
    pub(crate) fn abort_response(&self) {
        self.activity.abort_response();
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if self.is_tunnel {
            self.activity.tunnels.fetch_sub(1, Relaxed);
        }
        self.activity.end_request();
    }
}

impl ClientWait {
    /// Returns `true` if no request has begun for this long.
    pub(crate) fn is_idle_for(self, time: Duration) -> bool {
        self.reason == WaitReason::Request && self.duration >= time
    }
}

impl WaitReason {
    /// Returns what closing the connection would lose. 0: nothing. 1: a session that the client can start again. 2: a
    /// response in flight.
    pub(crate) fn loss(self) -> u8 {
        match self {
            Self::Request | Self::Head => 0,
            Self::Upgraded => 1,
            Self::Upload | Self::Response | Self::Streams => 2,
        }
    }

    /// Returns how long a wait must last before the connection may be evicted. This gives requests time to arrive. If it
    /// were much longer, a flood of connections would leave no slots for other clients. Upgraded connections are often
    /// silent, but send pings more often than this.
    pub(crate) fn min_wait_to_evict(self) -> Duration {
        if self == Self::Upgraded { Duration::from_secs(60) } else { Duration::from_millis(250) }
    }

    /// Returns the label that counts connections evicted during this wait.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Request => "evicted_idle",
            Self::Head => "evicted_head",
            Self::Upload => "evicted_upload",
            Self::Response => "evicted_reader",
            Self::Streams => "evicted_streams",
            Self::Upgraded => "evicted_upgraded",
        }
    }
}

impl ConnectionLimits {
    pub(crate) fn shortest_timeout(&self) -> Duration {
        self.header_timeout.min(self.idle_timeout).min(self.body.timeout)
    }
}

#[cfg(test)]
mod tests;
