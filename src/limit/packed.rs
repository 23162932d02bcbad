//! What little there is to remember of a bucket that was used once.

use crate::clock::Timestamp;

/// In as few bytes as hold it for any algorithm. Each says by itself what it has packed, and what does not fit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packed {
    /// Nothing.
    Unused,
    /// A moment, and two numbers.
    Once { at: Timestamp, amount: u64, number: u32 },
}
