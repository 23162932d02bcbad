//! Records what a connection waits for, and checks its timeouts.
//!
//! A connection waits for its first byte, for the rest of a head, for the next request, or for nothing while a request
//! is in flight. Reads and requests record changes. The connection has one timer, which checks the record when it
//! fires. A request therefore costs two stores and no timer operation.

mod in_flight_request;
mod timers;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::in_flight_request::InFlightRequest;
pub(crate) use self::timers::{IDLE_DELAY, SLOW_HEAD, SLOW_READER, SLOW_UPLOAD, TimerAction};
pub(crate) use self::wait::{ClientWait, WaitReason};
use super::protocol::Protocol;
use super::transfer_rate::{TransferRate, millis};
use tidegate_limit::clock::poll_time;

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
        InFlightRequest::new(Arc::clone(self))
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

#[cfg(test)]
mod tests;
