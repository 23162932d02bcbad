//! Moves debts to the next gateway in a handover, as payments: Redis charges each payment once, whichever gateway
//! sends it.

use super::{Debts, MAX_BUCKETS, Payment};
use tidegate_limit::clock::Timestamp;

impl Debts {
    /// Turns all debts into payments and returns them.
    pub(crate) fn turn_into_payments(&mut self, now: Timestamp) -> Vec<Payment> {
        self.begin_payments(now, &|_, _| true);
        self.unpaid.iter().cloned().collect()
    }

    /// Removes payments that another gateway sends.
    pub(crate) fn forget(&mut self, payments: &[u64]) {
        self.unpaid.retain(|payment| !payments.contains(&payment.id));
    }

    /// Takes over a payment of another gateway. Without capacity for it, its permits are counted as `uncharged`.
    pub(crate) fn adopt(&mut self, payment: Payment) {
        if self.unpaid.iter().any(|present| present.id == payment.id) {
            return;
        }
        let owed: usize = self.unpaid.iter().map(|payment| payment.debts.len()).sum();
        if owed + payment.debts.len() > MAX_BUCKETS {
            self.uncharged += payment.permits();
        } else {
            self.unpaid.push_back(payment);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Debt;
    use super::*;
    use tidegate_limit::{Algorithm, ChargeKind, Limiter, Mode, Quota};

    #[test]
    fn adopted_payments_are_bounded() {
        let quota = Quota::new(10, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("a".into(), Mode::Overall, quota));
        let debt = Debt { limiter, client: None, kind: ChargeKind::Take, grants: vec![(Timestamp::from_millis(1), 2)] };
        let mut debts = Debts::default();
        debts.adopt(Payment { id: 1, debts: vec![debt.clone(); MAX_BUCKETS - 1] });
        debts.adopt(Payment { id: 1, debts: vec![debt.clone()] });
        debts.adopt(Payment { id: 2, debts: vec![debt.clone()] });
        debts.adopt(Payment { id: 3, debts: vec![debt] });
        assert_eq!((debts.unpaid.len(), debts.uncharged), (2, 2));
        debts.forget(&[1]);
        assert_eq!(debts.unpaid.iter().map(|payment| payment.id).collect::<Vec<_>>(), [2]);
    }
}
