//! The waits of a connection for its client, and the loss if it is closed then.

use std::time::Duration;

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
