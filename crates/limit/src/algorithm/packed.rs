//! The packed form of a bucket that was used once.

use crate::clock::Timestamp;

/// A packed state. Each algorithm packs its own state, unless it does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packed {
    /// An unused bucket.
    Unused,
    /// A bucket with one grant: its time, and two numbers that depend on the algorithm.
    Once { at: Timestamp, amount: u64, number: u32 },
}
