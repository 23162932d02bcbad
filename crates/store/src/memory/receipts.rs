//! The receipts of decisions that are made once for an id, in this process.

use std::collections::{HashMap, VecDeque};

use super::Memory;
use crate::StoreError;
use crate::receipts::{OnceId, RECEIPT_TTL_MILLIS, ReturnedOnce, TakenOnce};
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, ClientId, Decision, Granted};

/// The highest number of receipts and their charges together, in about 100 MB.
const MAX_ENTRIES: usize = 500_000;

/// All receipts.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    by_id: HashMap<u128, Receipt>,
    /// When each receipt expires, in the order of the times.
    expiries: VecDeque<(Timestamp, u128)>,
    /// The number of receipts and their charges.
    entries: usize,
}

/// A receipt of a granted request.
#[derive(Debug)]
pub(crate) struct Receipt {
    /// The keyed hash of the request.
    pub(crate) request: u128,
    /// The decision about each charge, with the number from the caller.
    pub(crate) decisions: Vec<(u8, Decision)>,
    /// The permits that were taken.
    pub(crate) granted: Vec<Granted>,
    /// Whether they were given back.
    pub(crate) is_returned: bool,
}

impl Memory {
    /// See [`Store::take_once`](crate::Store::take_once).
    pub(crate) fn take_once(&self, charges: &[Charge], numbers: &[u8], id: &OnceId) -> Result<TakenOnce, StoreError> {
        let (key, request) = (self.receipt_key(&id.id), self.key_of(&id.hashed_request()));
        // Locked until the receipt is written, so that a second request with the id finds it.
        let mut receipts = self.receipts.lock();
        receipts.remove_expired(self.now());
        if let Some(receipt) = receipts.by_id.get(&key) {
            return Ok(receipt.repeat(request));
        }
        if receipts.entries + 1 + charges.len() > MAX_ENTRIES {
            return Ok(TakenOnce::NoCapacity);
        }
        let outcome = self.take(charges)?;
        if outcome.granted() {
            let decisions = numbers.iter().copied().zip(outcome.decisions.iter().copied()).collect();
            let granted = outcome.granted_charges(charges).into_iter().map(|granted| self.compact(granted)).collect();
            let receipt = Receipt { request, decisions, granted, is_returned: false };
            receipts.add(key, receipt, outcome.now.plus_millis(RECEIPT_TTL_MILLIS));
        }
        Ok(TakenOnce::Decided(outcome))
    }

    /// See [`Store::find_receipt`](crate::Store::find_receipt).
    pub(crate) fn find_receipt(&self, id: &OnceId) -> Option<TakenOnce> {
        let (key, request) = (self.receipt_key(&id.id), self.key_of(&id.hashed_request()));
        let mut receipts = self.receipts.lock();
        receipts.remove_expired(self.now());
        Some(receipts.by_id.get(&key)?.repeat(request))
    }

    /// See [`Store::return_once`](crate::Store::return_once).
    pub(crate) fn return_once(&self, id: &[u8]) -> ReturnedOnce {
        let key = self.receipt_key(id);
        let mut receipts = self.receipts.lock();
        receipts.remove_expired(self.now());
        match receipts.by_id.get_mut(&key) {
            None => ReturnedOnce::Unknown,
            Some(receipt) if receipt.is_returned => ReturnedOnce::Before,
            Some(receipt) => {
                receipt.is_returned = true;
                self.give_back(&receipt.granted);
                ReturnedOnce::Now
            }
        }
    }

    /// Passes each receipt to `each`, with the keyed hash of its id and the time at which it expires, the newest first. Locks them
    /// for one at a time.
    pub(crate) fn each_receipt(&self, mut each: impl FnMut(u128, Timestamp, &Receipt)) {
        let expiries: Vec<_> = {
            let mut receipts = self.receipts.lock();
            receipts.remove_expired(self.now());
            receipts.expiries.iter().rev().copied().collect()
        };
        for (expires_at, key) in expiries {
            let receipts = self.receipts.lock();
            if let Some(receipt) = receipts.by_id.get(&key) {
                each(key, expires_at, receipt);
            }
        }
    }

    /// Adds a receipt of another process. Returns `false` if there is one with this id, or no capacity.
    pub(crate) fn import_receipt(&self, key: u128, receipt: Receipt, expires_at: Timestamp) -> bool {
        let mut receipts = self.receipts.lock();
        let is_new = !receipts.by_id.contains_key(&key) && receipts.entries + receipt.entries() <= MAX_ENTRIES;
        if is_new {
            receipts.add(key, receipt, expires_at);
        }
        is_new
    }

    fn receipt_key(&self, id: &[u8]) -> u128 {
        self.key_of(&OnceId::hashed_id(id))
    }

    /// Returns a granted charge whose client has a bounded length.
    fn compact(&self, granted: Granted) -> Granted {
        let Some(ClientId::Value(value)) = &granted.charge.client else { return granted };
        let client = Some(ClientId::Hash(self.key_of(value)));
        Granted { charge: Charge { client, ..granted.charge.clone() }, ..granted }
    }
}

impl Receipts {
    fn add(&mut self, key: u128, receipt: Receipt, expires_at: Timestamp) {
        self.entries += receipt.entries();
        // Other processes send the newest ones first.
        let position = self.expiries.partition_point(|(other, _)| *other <= expires_at);
        self.expiries.insert(position, (expires_at, key));
        self.by_id.insert(key, receipt);
    }

    fn remove_expired(&mut self, now: Timestamp) {
        while let Some((_, key)) = self.expiries.front().copied().filter(|(expires_at, _)| *expires_at <= now) {
            self.expiries.pop_front();
            if let Some(receipt) = self.by_id.remove(&key) {
                self.entries -= receipt.entries();
            }
        }
    }
}

impl Receipt {
    fn entries(&self) -> usize {
        1 + self.decisions.len()
    }

    /// Returns the result of another request with the id.
    fn repeat(&self, request: u128) -> TakenOnce {
        match (self.request == request, self.is_returned) {
            (false, _) => TakenOnce::OtherRequest,
            (true, true) => TakenOnce::Returned,
            (true, false) => TakenOnce::Repeated(self.decisions.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;
    use std::sync::Arc;

    use super::*;
    use tidegate_limit::clock::ManualClock;
    use tidegate_limit::{Algorithm, Mode, Quota};
    use tidegate_rules::charge::Limiter;

    #[test]
    fn receipt_expires_after_ten_minutes() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        let memory = Memory::new(Arc::clone(&clock) as Arc<dyn tidegate_limit::clock::Clock>, None);
        let quota = Quota::new(3, 3_600_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("l".to_owned(), Mode::PerClient, quota));
        let charge = Charge::new(limiter, Some(ClientId::Value(b"a".as_slice().into())), 1);
        let id = OnceId { id: b"1".as_slice().into(), request: b"x".as_slice().into() };
        let take = || memory.take_once(from_ref(&charge), &[0], &id).expect("a decision");
        let remaining = |taken| match taken {
            TakenOnce::Decided(outcome) => (true, outcome.decisions[0].remaining),
            TakenOnce::Repeated(decisions) => (false, decisions[0].1.remaining),
            other => panic!("{other:?}"),
        };
        assert_eq!(remaining(take()), (true, 2));
        clock.advance_millis(RECEIPT_TTL_MILLIS - 1);
        assert_eq!(remaining(take()), (false, 2));
        clock.advance_millis(1);
        assert_eq!(memory.find_receipt(&id), None);
        assert_eq!(remaining(take()), (true, 1));
        assert_eq!(memory.receipts.lock().entries, 2);
        assert_eq!(memory.return_once(b"1"), ReturnedOnce::Now);
        assert_eq!((memory.return_once(b"1"), memory.return_once(b"2")), (ReturnedOnce::Before, ReturnedOnce::Unknown));
        assert_eq!(take(), TakenOnce::Returned);
        let other = OnceId { request: b"y".as_slice().into(), ..id.clone() };
        assert_eq!(memory.find_receipt(&other), Some(TakenOnce::OtherRequest));
    }

    #[test]
    fn full_store_grants_nothing_that_it_cannot_repeat() {
        let memory = Memory::new(Arc::new(tidegate_limit::clock::SystemClock::new()), None);
        memory.receipts.lock().entries = MAX_ENTRIES;
        let id = OnceId { id: b"1".as_slice().into(), request: b"x".as_slice().into() };
        assert_eq!(memory.take_once(&[], &[], &id), Ok(TakenOnce::NoCapacity));
    }
}
