//! Receive windows: how many bytes a client may send ahead.
//!
//! An upload that nothing reads, for example while its request waits for permits, fills the window of its stream. The
//! window of the connection has room for many such uploads, so they do not block another one. `h2` has one window size
//! for all streams. The window only ever grows: clients that use `h2` can stall when it shrinks, and httpx sends empty
//! frames without end once a window is negative. The first window is therefore not smaller than the 65,535 bytes that
//! a client may send before it has read the SETTINGS.

use h2::server::Connection;

use super::send_queue::QueuedData;
use super::shared_counters::SharedCounters;
use crate::server::metered_socket::MeteredSocket;

/// The window of a connection, which bounds the memory for its uploads.
pub(super) const CONNECTION: u32 = 2 * 1024 * 1024;
/// The first window of each stream.
pub(super) const STREAM: u32 = 64 * 1024;
/// Windows grow only on connections that never had more open uploads than this.
const FEW_UPLOADS: u32 = 4;

/// The window of long bodies, which need more bytes for each round trip.
const LONG_BODIES: u32 = 96 * 1024;

/// The window of the streams of one connection.
#[derive(Debug, Default)]
pub(super) struct Windows {
    has_grown: bool,
    /// The connection had many open uploads at a time. Its windows stay as they are.
    is_crowded: bool,
}

impl Windows {
    /// Sends the larger window if the connection has had a long body and never had many uploads, once the client has
    /// acknowledged the previous SETTINGS.
    pub(super) fn adapt(&mut self, connection: &mut Connection<MeteredSocket, QueuedData>, counters: &SharedCounters) {
        self.is_crowded |= counters.uploads() > FEW_UPLOADS;
        if !self.has_grown && !self.is_crowded && counters.has_long_bodies() {
            self.has_grown = connection.set_initial_window_size(LONG_BODIES).is_ok();
        }
    }
}
