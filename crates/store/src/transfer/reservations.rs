//! Open reservations of budgets in an embedded store, and their settlements, as they are written for another gateway.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Line, MAX_STATE, SentState, StoreState};
use crate::memory::Memory;
use tidegate_limit::text::hex;
use tidegate_rules::charge::Limiter;

impl SentState {
    /// Adds the open reservations of an embedded store.
    pub(super) fn add_reservations(&mut self, memory: &Memory) {
        let mut left_out = 0;
        memory.hand_over_reservations(|limit, owner, number, permits| {
            let line = Line::Reservation { limit: limit.to_owned(), owner: hex::encode(&owner), number, permits };
            let is_written = line.write(&mut self.bytes, MAX_STATE);
            left_out += usize::from(!is_written);
            is_written
        });
        if left_out > 0 {
            tracing::warn!(reservations = left_out, "some reservations are not handed over: there are too many");
        }
    }

    /// Returns the settlements of reservations that were handed over; `None` without settlements.
    pub(super) fn of_settlements(memory: &Memory) -> Option<Self> {
        let settled = memory.settled_since_handover();
        let mut sent = Self::new(memory, None);
        for (number, cost) in &settled {
            _ = Line::Settlement { number: *number, cost: *cost }.write(&mut sent.bytes, MAX_STATE);
        }
        (!settled.is_empty()).then_some(sent)
    }
}

/// Adds a reservation of the predecessor to an embedded store. Returns `false` if the limit does not exist, or has changed.
pub(super) fn import(
    memory: &Memory,
    limiters: &HashMap<&str, &Arc<Limiter>>,
    (limit, owner): (&str, &str),
    number: u64,
    permits: u32,
) -> bool {
    let owner = hex::decode(owner).and_then(|owner| owner.try_into().ok());
    limiters.get(limit).zip(owner).is_some_and(|(limiter, owner)| memory.inherit(limiter, owner, number, permits))
}

/// Settles the reservations of the predecessor, which has ended. `last` is `None` if it was killed.
pub(super) fn settle(memory: &Memory, last: Option<&StoreState>) {
    let costs = last.into_iter().flat_map(StoreState::lines).filter_map(|line| match line {
        Some(Line::Settlement { number, cost }) => Some((number, cost)),
        _ => None,
    });
    memory.settle_inherited(costs);
}
