//! The memory of a client: a million clients fit in 100 MB.

use std::sync::Arc;

use super::charge;
use crate::memory::Memory;
use tidegate_limit::clock::{ManualClock, Timestamp};

/// Regression test: a client took about 300 bytes.
#[test]
fn client_with_one_request_takes_at_most_100_bytes() {
    let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
    let memory = Memory::new(Arc::new(clock), None);
    let mut largest = 0;
    // With these numbers nearly all tables have just doubled their size and are as empty as possible.
    for clients in [15_000, 30_000, 60_000, 120_000] {
        for client in u32::try_from(memory.len()).expect("a number")..clients {
            memory.take(&[charge(client)]).expect("a decision");
        }
        largest = largest.max(memory.occupied() / memory.len());
    }
    assert!((80..=100).contains(&largest), "{largest} bytes");
}
