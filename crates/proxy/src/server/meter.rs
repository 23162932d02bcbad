//! The meter of a protocol, for the bytes on its connection.

use std::fmt;
use std::time::Duration;

/// A protocol's meter of the bytes on its connection.
pub(crate) trait Meter: fmt::Debug + Send + Sync {
    /// Returns `true` if more bytes may be read now.
    fn can_read(&self) -> bool;

    /// Records bytes that the client has sent.
    fn on_received(&mut self, bytes: &[u8]);

    /// Records bytes that the socket took.
    fn on_sent(&mut self, bytes: &[u8]);

    /// Records whether the socket took all bytes of the last write or flush.
    fn set_blocked(&mut self, is_blocked: bool);

    /// Returns how long, and for how many bytes, the client is read after the end. Returns `None` to close at once.
    fn linger_limits(&self) -> Option<(Duration, usize)>;
}
