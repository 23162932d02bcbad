//! What a client occupies: a million of them fit in 100 MB.

use std::sync::Arc;

use super::charge;
use crate::clock::{ManualClock, Timestamp};
use crate::store::memory::Memory;

/// Some 300 bytes, it was.
#[test]
fn a_client_that_has_asked_once_takes_100_bytes_at_most() {
    let memory = Memory::new(Arc::new(ManualClock::default()), None);
    let now = Timestamp::from_millis(1_700_000_000_000);
    let mut most = 0;
    // With these numbers nearly all tables have just doubled, and are as empty as they ever are.
    for clients in [15_000, 30_000, 60_000, 120_000] {
        for client in u32::try_from(memory.len()).expect("a number")..clients {
            memory.take_at(&[charge(client)], now).expect("a decision");
        }
        most = most.max(memory.occupied() / memory.len());
    }
    assert!((80..=100).contains(&most), "{most} bytes");
}
