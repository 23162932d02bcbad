//! A request in flight.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Activity;

/// A request in flight. It ends on drop.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    activity: Arc<Activity>,
    is_tunnel: bool,
}

impl InFlightRequest {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        Self { activity, is_tunnel: false }
    }

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
