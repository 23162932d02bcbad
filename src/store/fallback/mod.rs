//! Decides during an outage of the store: this gateway alone, by its share of each limit.
//!
//! With N gateways the share is 1 / N of the rate, at least one permit in an interval. What a gateway grants alone is
//! recorded as [debts], which are charged to the store when it is back, before it is asked anything.

pub(crate) mod debts;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use self::debts::{Debts, Payment};
use super::{Memory, StoreError};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::limit::{Charge, ClientId, Granted, Limiter, Outcome, Wait};

/// The most buckets: some 25 MB.
const MAX_BUCKETS: usize = 1 << 18;

/// The buckets of a gateway that decides alone.
#[derive(Debug)]
pub(crate) struct Fallback {
    buckets: Memory,
    clock: Arc<dyn Clock>,
    /// How many gateways shared the store before the outage.
    gateways: AtomicU32,
    /// The shares that were used so far, by the name of the limiter.
    shares: Mutex<HashMap<String, Share>>,
    debts: Mutex<Debts>,
    /// Changes whenever something was granted alone that the store does not know of.
    owing: watch::Sender<()>,
    /// Decisions that granted and that refused, and permits that the store was charged with afterwards.
    granted: AtomicU64,
    refused: AtomicU64,
    charged: AtomicU64,
    /// Held while debts are paid.
    paying: tokio::sync::Mutex<()>,
    /// This gateway's id in the store.
    id: String,
    /// False for a limiter of the library, which is no gateway.
    is_gateway: AtomicBool,
}

/// What a gateway has decided alone, since it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    /// Decisions.
    pub(crate) granted: u64,
    pub(crate) refused: u64,
    /// Permits of which the store was told.
    pub(crate) charged: u64,
    /// Permits of which it will not be.
    pub(crate) untold: u64,
}

/// Pays the debts. Only one exists at a time.
#[derive(Debug)]
pub(crate) struct Payer<'f> {
    fallback: &'f Fallback,
    /// The payments that cannot be told at present.
    postponed: Vec<u64>,
    _alone: tokio::sync::MutexGuard<'f, ()>,
}

#[derive(Debug)]
struct Share {
    whole: Arc<Limiter>,
    gateways: u32,
    part: Arc<Limiter>,
}

impl Fallback {
    pub(crate) fn new() -> Self {
        Self::by(Arc::new(SystemClock::new()))
    }

    fn by(clock: Arc<dyn Clock>) -> Self {
        Self {
            buckets: Memory::bounded(Arc::clone(&clock), None, MAX_BUCKETS),
            clock,
            gateways: AtomicU32::new(1),
            shares: Mutex::default(),
            debts: Mutex::default(),
            owing: watch::Sender::new(()),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            paying: tokio::sync::Mutex::default(),
            id: debts::random_id(),
            is_gateway: AtomicBool::new(false),
        }
    }

    /// Announces this gateway to the others from now on.
    pub(crate) fn be_gateway(&self) {
        self.is_gateway.store(true, Ordering::Relaxed);
    }

    /// The id of this gateway, if it is one.
    pub(crate) fn gateway(&self) -> Option<&str> {
        self.is_gateway.load(Ordering::Relaxed).then_some(&self.id)
    }

    /// Sets how many gateways share the store, this one included.
    pub(crate) fn set_gateways(&self, gateways: u32) {
        self.gateways.store(gateways.max(1), Ordering::Relaxed);
    }

    /// How many gateways share the store, as far as is known.
    pub(crate) fn gateways(&self) -> u32 {
        self.gateways.load(Ordering::Relaxed)
    }

    /// How many permits the store has not been charged with yet.
    #[cfg(feature = "gateway")]
    pub(crate) fn owed(&self) -> u64 {
        self.debts.lock().owed()
    }

    /// What it has decided so far.
    pub(crate) fn tally(&self) -> Tally {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (granted, refused, charged) = (count(&self.granted), count(&self.refused), count(&self.charged));
        Tally { granted, refused, charged, untold: self.debts.lock().untold }
    }

    /// Makes all charges or none, by this gateway's shares of the limits.
    ///
    /// # Errors
    /// An adopted limiter, whose rate only the store has.
    pub(crate) fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        let shares: Vec<Charge> = charges.iter().map(|charge| self.share_of(charge)).collect();
        let mut outcome = self.buckets.take(&shares)?;
        for (decision, charge) in outcome.decisions.iter_mut().zip(charges) {
            // More than the share is not more than the limit: the store may grant it when it is back.
            if decision.wait == Wait::Never && charge.permits <= charge.limiter.quota.capacity() {
                decision.wait = Wait::Millis(charge.limiter.quota.interval());
            }
        }
        let counter = if outcome.granted() { &self.granted } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        let made = outcome.granted_charges(charges.to_vec());
        if !made.is_empty() {
            self.debts.lock().add(&made, outcome.now);
            self.owing.send_replace(());
        }
        Ok(outcome)
    }

    /// Gives back what [`take`](Self::take) granted.
    pub(crate) fn give_back(&self, granted: &[Granted]) {
        let share = |one: &Granted| Granted { charge: self.share_of(&one.charge), ..one.clone() };
        let shares: Vec<Granted> = granted.iter().map(share).collect();
        self.buckets.give_back(&shares);
        self.debts.lock().take_out(granted);
    }

    /// Changes whenever there are new debts.
    pub(crate) fn new_debts(&self) -> watch::Receiver<()> {
        self.owing.subscribe()
    }

    /// Is anything owed to the store, as far as is known?
    pub(crate) fn is_owing(&self) -> bool {
        !self.debts.lock().is_empty()
    }

    /// Waits until no other task pays debts, then allows the caller to.
    pub(crate) async fn payer(&self) -> Payer<'_> {
        Payer { fallback: self, postponed: Vec::new(), _alone: self.paying.lock().await }
    }

    fn share_of(&self, charge: &Charge) -> Charge {
        let (whole, gateways) = (&charge.limiter, self.gateways.load(Ordering::Relaxed));
        let mut shares = self.shares.lock();
        let limiter = match shares.get(&whole.name) {
            Some(share) if share.gateways == gateways && Arc::ptr_eq(&share.whole, whole) => Arc::clone(&share.part),
            _ => {
                let quota = whole.quota.share(gateways);
                let part = Arc::new(Limiter::new(whole.name.clone(), whole.mode, quota));
                let share = Share { whole: Arc::clone(whole), gateways, part: Arc::clone(&part) };
                shares.insert(whole.name.clone(), share);
                part
            }
        };
        Charge { limiter, ..charge.clone() }
    }
}

// === impl Tally, Payer ===

impl Tally {
    /// What has come to it since then.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            granted: self.granted - before.granted,
            refused: self.refused - before.refused,
            charged: self.charged - before.charged,
            untold: self.untold - before.untold,
        }
    }
}

impl Payer<'_> {
    /// The next payment to those who have such buckets, and the time by the clock that dated its grants.
    pub(crate) fn next(&self, has: impl Fn(&Limiter, Option<&ClientId>) -> bool) -> Option<(Payment, Timestamp)> {
        let now = self.fallback.clock.now();
        self.fallback.debts.lock().next_payment(now, has, &self.postponed).map(|payment| (payment, now))
    }

    /// Leaves a payment to another payer.
    pub(crate) fn postpone(&mut self, payment: &Payment) {
        self.postponed.push(payment.id);
    }

    /// Was any payment left to another payer?
    pub(crate) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// How many rounds of payments have begun: all debts there are make a round, and debts that come later the next.
    pub(crate) fn rounds(&self) -> u64 {
        self.fallback.debts.lock().rounds
    }

    /// Notes what the store was charged with, and says how many permits these are.
    pub(crate) fn charged(&self, payment: &Payment) -> u64 {
        let permits = payment.permits();
        self.fallback.charged.fetch_add(permits, Ordering::Relaxed);
        permits
    }

    /// Removes a payment that the store has charged.
    pub(crate) fn paid(&self, payment: &Payment) {
        self.fallback.debts.lock().paid(payment.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::limit::{Algorithm, Mode, Quota};

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    fn charge(rate: u64, permits: u32) -> Charge {
        let quota = Quota::new(rate, 10_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("{tidegate:a}:b".into(), Mode::Overall, quota));
        Charge { limiter, client: None, permits, shadow: false }
    }

    fn alone() -> (Fallback, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(START));
        (Fallback::by(Arc::clone(&clock) as Arc<dyn Clock>), clock)
    }

    fn granted(fallback: &Fallback, charge: &Charge, times: usize) -> usize {
        let ask = |_: &usize| fallback.take(std::slice::from_ref(charge)).expect("a decision").granted();
        (0..times).filter(ask).count()
    }

    #[test]
    fn a_gateway_has_its_share_of_the_rate_and_one_permit_at_least() {
        for (rate, gateways, share) in [(10, 1, 10), (10, 3, 3), (2, 5, 1)] {
            let (fallback, clock) = alone();
            fallback.set_gateways(gateways);
            let charge = charge(rate, 1);
            assert_eq!(granted(&fallback, &charge, 20), share);
            clock.advance_millis(10_000);
            assert_eq!(granted(&fallback, &charge, 20), share);
        }
    }

    #[test]
    fn a_cost_above_the_share_is_refused_for_an_interval_and_not_for_good() {
        let (fallback, _) = alone();
        fallback.set_gateways(4);
        let told = |charge: Charge| fallback.take(&[charge]).expect("a decision").decisions[0].wait;
        assert_eq!(told(charge(8, 3)), Wait::Millis(10_000));
        assert_eq!(told(charge(8, 9)), Wait::Never);
    }

    #[test]
    fn when_gateways_come_or_go_what_is_in_use_stays_in_use() {
        let (fallback, _) = alone();
        let charge = charge(10, 1);
        assert_eq!(granted(&fallback, &charge, 4), 4);
        fallback.set_gateways(2);
        assert_eq!(granted(&fallback, &charge, 10), 1);
        fallback.set_gateways(1);
        assert_eq!(granted(&fallback, &charge, 10), 5);
    }

    /// Before, a connection was not used as long as others granted faster than their debts could be paid.
    #[tokio::test]
    async fn debts_that_come_while_others_are_paid_are_of_another_round() {
        let (fallback, _) = alone();
        let charge = charge(10, 1);
        assert_eq!(granted(&fallback, &charge, 2), 2);
        let (payer, all) = (fallback.payer().await, |_: &Limiter, _: Option<&ClientId>| true);
        for round in 1..=3 {
            let (payment, _) = payer.next(all).expect("a payment");
            assert_eq!((payer.rounds(), payment.permits()), (round, if round == 1 { 2 } else { 1 }));
            assert_eq!(granted(&fallback, &charge, 1), 1);
            let (again, _) = payer.next(all).expect("a payment");
            assert_eq!((payer.rounds(), again.id), (round, payment.id));
            payer.paid(&payment);
        }
    }

    #[test]
    fn what_is_given_back_is_free_again_and_not_owed() {
        let (fallback, _) = alone();
        let charge = charge(1, 1);
        let outcome = fallback.take(std::slice::from_ref(&charge)).expect("a decision");
        fallback.give_back(&outcome.granted_charges(vec![charge.clone()]));
        assert!(fallback.debts.lock().is_empty());
        assert_eq!(granted(&fallback, &charge, 5), 1);
    }
}
