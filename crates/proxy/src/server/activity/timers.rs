//! Checks the timeouts of a connection.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::Activity;
use super::wait::{ClientWait, WaitReason};
use crate::server::ConnectionLimits;
use crate::server::transfer_rate::{TooSlow, millis};

/// The bytes of a complete HTTP/2 handshake: the preface and an empty SETTINGS frame.
const HTTP2_HANDSHAKE_BYTES: u64 = 24 + 9;

/// How long a connection without requests keeps its buffers. Most clients send their next request within this time.
pub(crate) const IDLE_DELAY: Duration = Duration::from_secs(1);

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

/// The labels by which timeouts are counted.
pub(crate) const SLOW_HEAD: &str = "slow_head";
pub(crate) const SLOW_UPLOAD: &str = "slow_upload";
pub(crate) const SLOW_READER: &str = "slow_reader";

impl Activity {
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
}

impl ConnectionLimits {
    pub(crate) fn shortest_timeout(&self) -> Duration {
        self.header_timeout.min(self.idle_timeout).min(self.body.timeout)
    }
}
