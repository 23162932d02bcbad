//! The compact form of a bucket that was used once.

use crate::clock::Timestamp;

/// Each algorithm packs its own state, and says if the state does not fit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packed {
    /// Nothing.
    Unused,
    /// A moment, and two numbers.
    Once { at: Timestamp, amount: u64, number: u32 },
}
