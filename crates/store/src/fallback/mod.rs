//! Decides during an outage of the store, by this gateway's share of each limit.
//!
//! With N gateways the share is 1 / N of the rate, but at least one permit in an interval. Local grants are recorded as
//! [local_grants]. When the store has recovered, the gateway charges them to it before its first decision.

pub(crate) mod local_grants;
mod reset;
mod share;
mod transfer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use self::local_grants::{LateCharge, LocalGrants};
pub(crate) use self::reset::ResetGrants;
use self::share::Shares;
pub(crate) use self::transfer::LocalState;
use super::{Memory, StoreError};
use tidegate_limit::Wait;
use tidegate_limit::clock::{Clock, SystemClock, Timestamp};
use tidegate_limit::random::random;
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Decision, Granted, Limiter, Outcome, Turn};

/// The maximum number of buckets; they take about 25 MB.
const MAX_BUCKETS: usize = 1 << 18;

/// The local buckets of a gateway, and the grants that are not charged to the store yet.
#[derive(Debug)]
pub struct Fallback {
    buckets: Memory,
    clock: Arc<dyn Clock>,
    shares: Mutex<Shares>,
    /// The number of gateways that the store has reported; `None` before the first report.
    counted: watch::Sender<Option<u32>>,
    local_grants: Mutex<LocalGrants>,
    /// Changes whenever there are new local grants.
    new_grants_sender: watch::Sender<()>,
    /// The number of local decisions that granted and refused, and of permits that were charged to the store
    /// afterwards.
    granted: AtomicU64,
    refused: AtomicU64,
    charged: AtomicU64,
    /// Held while local grants are charged to the store.
    late_charger_lock: tokio::sync::Mutex<()>,
    /// The id of this gateway in the store. Generated at first use, or taken over from the predecessor.
    id: OnceLock<String>,
    /// Whether this is a gateway. A limiter of the library is not.
    is_gateway: AtomicBool,
}

/// Counts of local decisions since the start.
#[derive(Clone, Copy, Debug)]
pub struct LocalCounts {
    /// Decisions.
    pub granted: u64,
    pub refused: u64,
    /// Permits that were charged to the store.
    pub charged: u64,
    /// Permits that will never be charged to the store.
    pub uncharged: u64,
}

/// Charges local grants to the store. Only one exists at a time.
#[derive(Debug)]
pub struct LateCharger<'f> {
    fallback: &'f Fallback,
    /// The ids of the charges that cannot be sent at present.
    postponed: Vec<u64>,
    _lock: tokio::sync::MutexGuard<'f, ()>,
}

/// The wait, in milliseconds, for a request that exceeds the remaining share while this gateway drains. The successor
/// will decide then.
const RETRY_AT_SUCCESSOR_MILLIS: u64 = 1_000;

impl Fallback {
    /// Creates a fallback whose share of a limit is at most one part in `min_gateways`.
    pub fn new(min_gateways: u32) -> Self {
        Self::with_clock(Arc::new(SystemClock::new()), min_gateways)
    }

    fn with_clock(clock: Arc<dyn Clock>, min_gateways: u32) -> Self {
        Self {
            buckets: Memory::bounded(Arc::clone(&clock), None, MAX_BUCKETS),
            clock,
            shares: Mutex::new(Shares::new(min_gateways)),
            counted: watch::Sender::new(None),
            local_grants: Mutex::default(),
            new_grants_sender: watch::Sender::new(()),
            granted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            late_charger_lock: tokio::sync::Mutex::default(),
            id: OnceLock::new(),
            is_gateway: AtomicBool::new(false),
        }
    }

    /// Starts to announce this gateway to other gateways.
    pub fn announce_as_gateway(&self) {
        self.is_gateway.store(true, Ordering::Relaxed);
    }

    /// Returns the id of this gateway, if it is one.
    pub fn gateway(&self) -> Option<&str> {
        self.is_gateway.load(Ordering::Relaxed).then(|| self.id.get_or_init(random_id).as_str())
    }

    /// Sets the number of gateways that the store reports, including this one.
    pub fn set_gateways(&self, gateways: u32) {
        self.shares.lock().set_gateway_count(gateways);
        let counted = Some(gateways.max(1));
        self.counted.send_if_modified(|before| std::mem::replace(before, counted) != counted);
    }

    /// Returns the number of gateways that share the store, as last known.
    pub fn known_gateways(&self) -> u32 {
        self.shares.lock().gateway_count()
    }

    /// Returns the number of parts into which limits are divided.
    pub fn gateways(&self) -> u32 {
        self.shares.lock().gateways()
    }

    /// Returns this gateway's share of a bound on requests in flight.
    pub fn share_of_bound(&self, bound: u32) -> u32 {
        self.shares.lock().of_bound(bound)
    }

    /// Returns the number of permits that are not charged to the store yet.
    pub fn owed_permits(&self) -> u64 {
        self.local_grants.lock().owed_permits()
    }

    /// Returns the counts of local decisions.
    pub fn local_counts(&self) -> LocalCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (granted, refused, charged) = (count(&self.granted), count(&self.refused), count(&self.charged));
        LocalCounts { granted, refused, charged, uncharged: self.local_grants.lock().uncharged }
    }

    /// Makes all charges or none, by this gateway's shares of the limits.
    ///
    /// # Errors
    /// A limiter is adopted, so only the store has its rate.
    pub fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        let has_reservation = charges.iter().any(|charge| charge.kind.reservation().is_some());
        let taken: Vec<Charge> = if has_reservation { charges.iter().map(taken_whole).collect() } else { Vec::new() };
        let charges = if has_reservation { &taken[..] } else { charges };
        let Some(shares) = self.shares_of(charges) else { return Ok(self.refuse(charges)) };
        let mut outcome = self.buckets.take(&shares)?;
        outcome.change_each(charges, |charge, decision| {
            // More than the share may still be less than the limit: the store may grant it after the outage.
            if decision.wait == Wait::Never && charge.permits <= charge.limiter.quota.capacity() {
                decision.wait = Wait::Millis(charge.limiter.quota.interval());
            }
        });
        let counter = if outcome.granted() { &self.granted } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        self.record_local_grants(&outcome.granted_charges(charges), outcome.now);
        Ok(outcome)
    }

    /// Charges this gateway's share with permits in any case, and records them as local grants, which are charged to
    /// the store later. Does nothing for adopted limiters, whose rates are unknown.
    pub fn charge_later(&self, charge: &Charge) {
        if charge.limiter.quota.is_adopted() {
            return;
        }
        let charge = Charge { kind: ChargeKind::Unconditional, turn: Turn::Any, ..charge.clone() };
        if let Some(share) = self.shares_of(std::slice::from_ref(&charge)) {
            _ = self.buckets.take(&share);
        }
        let at = self.clock.now();
        self.record_local_grants(&[Granted { charge, at, overflow: false }], at);
    }

    fn record_local_grants(&self, granted: &[Granted], now: Timestamp) {
        if !granted.is_empty() {
            self.local_grants.lock().add(granted, now);
            self.new_grants_sender.send_replace(());
        }
    }

    /// Gives back permits that [`take`](Self::take) granted. Permits that were charged to the store in the meantime stay
    /// charged there.
    pub fn give_back(&self, granted: &[Granted]) {
        let taken = |grant: &Granted| Granted { charge: taken_whole(&grant.charge), ..grant.clone() };
        let taken: Vec<Granted> = granted.iter().map(taken).collect();
        let limiter = |grant: &Granted| self.shares.lock().limiter(&grant.charge.limiter);
        let share = |grant: &Granted| Granted {
            charge: Charge { limiter: limiter(grant), ..grant.charge.clone() },
            ..grant.clone()
        };
        let shares: Vec<Granted> = taken.iter().map(share).collect();
        self.buckets.give_back(&shares);
        self.local_grants.lock().remove_refunded(&taken);
    }

    /// Returns a receiver that changes whenever there are new local grants.
    pub fn new_grants(&self) -> watch::Receiver<()> {
        self.new_grants_sender.subscribe()
    }

    /// Returns `true` if permits were granted locally that are not charged to the store yet.
    pub fn has_uncharged_grants(&self) -> bool {
        !self.local_grants.lock().is_empty()
    }

    /// Waits until no other task charges local grants.
    pub async fn late_charger(&self) -> LateCharger<'_> {
        LateCharger { fallback: self, postponed: Vec::new(), _lock: self.late_charger_lock.lock().await }
    }

    /// Returns the charges on this gateway's shares; `None` if a share is less than a permit.
    fn shares_of(&self, charges: &[Charge]) -> Option<Vec<Charge>> {
        let mut shares = self.shares.lock();
        charges.iter().map(|charge| shares.share_of(charge)).collect()
    }

    /// Refuses a request for lack of a share.
    fn refuse(&self, charges: &[Charge]) -> Outcome {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let decisions = vec![Decision::new(0, Wait::Millis(RETRY_AT_SUCCESSOR_MILLIS), 0); charges.len()];
        Outcome::with_granted(self.clock.now(), decisions, false)
    }
}

// === impl LocalCounts, LateCharger ===

impl LocalCounts {
    /// Returns the difference to earlier counts.
    pub fn since(self, before: Self) -> Self {
        Self {
            granted: self.granted - before.granted,
            refused: self.refused - before.refused,
            charged: self.charged - before.charged,
            uncharged: self.uncharged - before.uncharged,
        }
    }
}

impl LateCharger<'_> {
    /// Returns the next late charge of buckets that match `owns`, and the time of the clock that dated its grants.
    pub fn next(&self, owns: impl Fn(&Limiter, Option<&ClientId>) -> bool) -> Option<(LateCharge, Timestamp)> {
        let now = self.fallback.clock.now();
        self.fallback
            .local_grants
            .lock()
            .next_late_charge(now, owns, &self.postponed)
            .map(|late_charge| (late_charge, now))
    }

    /// Leaves a late charge to another charger.
    pub fn postpone(&mut self, late_charge: &LateCharge) {
        self.postponed.push(late_charge.id);
    }

    /// Returns `true` if a late charge was left to another charger.
    pub fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Returns the number of passes so far. A pass consists of all grants at its start; later grants belong to the next
    /// pass.
    pub fn passes(&self) -> u64 {
        self.fallback.local_grants.lock().passes
    }

    /// Counts the permits of a late charge that was made, and returns their number.
    pub fn charged(&self, late_charge: &LateCharge) -> u64 {
        let permits = late_charge.permits();
        self.fallback.charged.fetch_add(permits, Ordering::Relaxed);
        permits
    }

    /// Removes a late charge that is not sent again: it was made, or cannot be charged.
    pub fn finish(&self, late_charge: &LateCharge) {
        self.fallback.local_grants.lock().remove_late_charge(late_charge.id);
    }
}

/// Returns a random id for a gateway.
fn random_id() -> String {
    format!("{:016x}", u64::from_le_bytes(random()))
}

/// Returns the charge that a share makes instead of a reservation: all that the request can cost. The settlement gives back the
/// difference to the cost. Reservations need the store.
fn taken_whole(charge: &Charge) -> Charge {
    match charge.kind {
        ChargeKind::Reserve(_) => Charge { kind: ChargeKind::Take, ..charge.clone() },
        _ => charge.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_limit::clock::ManualClock;
    use tidegate_limit::{Algorithm, Mode, Quota};

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    fn charge(rate: u64, permits: u32) -> Charge {
        let quota = Quota::new(rate, 10_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("{tidegate:a}:b".into(), Mode::Overall, quota));
        Charge::new(limiter, None, permits)
    }

    fn fallback_with_clock() -> (Fallback, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(START));
        (Fallback::with_clock(Arc::clone(&clock) as Arc<dyn Clock>, 1), clock)
    }

    #[test]
    fn share_counts_at_least_min_gateways() {
        let fallback = Fallback::new(5);
        assert_eq!(granted(&fallback, &charge(10, 1), 20), 2);
        fallback.set_gateways(2); // fewer than the rules say
        assert_eq!((fallback.known_gateways(), granted(&fallback, &charge(10, 1), 20)), (2, 0));
        fallback.set_gateways(10);
        assert_eq!(granted(&fallback, &charge(30, 1), 20), 1);
    }

    fn granted(fallback: &Fallback, charge: &Charge, times: usize) -> usize {
        let ask = |_: &usize| fallback.take(std::slice::from_ref(charge)).expect("a decision").granted();
        (0..times).filter(ask).count()
    }

    #[test]
    fn share_is_at_least_one_permit() {
        for (rate, gateways, share) in [(10, 1, 10), (10, 3, 3), (2, 5, 1)] {
            let (fallback, clock) = fallback_with_clock();
            fallback.set_gateways(gateways);
            let charge = charge(rate, 1);
            assert_eq!(granted(&fallback, &charge, 20), share);
            clock.advance_millis(10_000);
            assert_eq!(granted(&fallback, &charge, 20), share);
        }
    }

    #[test]
    fn cost_above_the_share_waits_for_an_interval() {
        let (fallback, _) = fallback_with_clock();
        fallback.set_gateways(4);
        let wait_of = |charge: Charge| fallback.take(&[charge]).expect("a decision").decisions[0].wait;
        assert_eq!(wait_of(charge(8, 3)), Wait::Millis(10_000));
        assert_eq!(wait_of(charge(8, 9)), Wait::Never);
    }

    #[test]
    fn permits_stay_in_use_when_the_share_changes() {
        let (fallback, _) = fallback_with_clock();
        let charge = charge(10, 1);
        assert_eq!(granted(&fallback, &charge, 4), 4);
        fallback.set_gateways(2);
        assert_eq!(granted(&fallback, &charge, 10), 1);
        fallback.set_gateways(1);
        assert_eq!(granted(&fallback, &charge, 10), 5);
    }

    /// The requests have been forwarded, so the late charge includes what the share lacks.
    #[tokio::test]
    async fn permits_beyond_the_share_are_charged_later() {
        let (fallback, _) = fallback_with_clock();
        fallback.set_gateways(2);
        fallback.charge_later(&charge(10, 4));
        fallback.charge_later(&charge(10, 3));
        let (late_charge, _) = fallback.late_charger().await.next(|_, _| true).expect("a late charge");
        assert_eq!(late_charge.permits(), 7);
        assert_eq!(granted(&fallback, &charge(10, 1), 5), 0);
    }

    /// Regression test: a connection was not used while others granted faster than their grants could be charged.
    #[tokio::test]
    async fn later_grants_belong_to_the_next_pass() {
        let (fallback, _) = fallback_with_clock();
        let charge = charge(10, 1);
        assert_eq!(granted(&fallback, &charge, 2), 2);
        let (late_charger, all) = (fallback.late_charger().await, |_: &Limiter, _: Option<&ClientId>| true);
        for pass in 1..=3 {
            let (late_charge, _) = late_charger.next(all).expect("a late charge");
            assert_eq!((late_charger.passes(), late_charge.permits()), (pass, if pass == 1 { 2 } else { 1 }));
            assert_eq!(granted(&fallback, &charge, 1), 1);
            let (again, _) = late_charger.next(all).expect("a late charge");
            assert_eq!((late_charger.passes(), again.id), (pass, late_charge.id));
            late_charger.finish(&late_charge);
        }
    }

    #[test]
    fn refund_frees_permits_and_removes_the_local_grant() {
        let (fallback, _) = fallback_with_clock();
        let charge = charge(1, 1);
        let outcome = fallback.take(std::slice::from_ref(&charge)).expect("a decision");
        fallback.give_back(&outcome.granted_charges(std::slice::from_ref(&charge)));
        assert!(fallback.local_grants.lock().is_empty());
        assert_eq!(granted(&fallback, &charge, 5), 1);
    }
}
