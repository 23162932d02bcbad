//! Moves local grants to the next gateway in a handover, as late charges: Redis makes each of them once, whichever
//! gateway sends it.

use super::{LateCharge, LocalGrants, MAX_BUCKETS};
use tidegate_limit::clock::Timestamp;

impl LocalGrants {
    /// Turns all local grants into late charges and returns them.
    pub(crate) fn turn_into_late_charges(&mut self, now: Timestamp) -> Vec<LateCharge> {
        self.form_late_charges(now, &|_, _| true);
        self.pending.iter().cloned().collect()
    }

    /// Removes late charges that another gateway sends.
    pub(crate) fn forget(&mut self, late_charges: &[u64]) {
        self.pending.retain(|late_charge| !late_charges.contains(&late_charge.id));
    }

    /// Takes over a late charge of another gateway. Without capacity for it, its permits are counted as `uncharged`.
    pub(crate) fn adopt(&mut self, late_charge: LateCharge) {
        if self.pending.iter().any(|present| present.id == late_charge.id) {
            return;
        }
        let pending_buckets: usize = self.pending.iter().map(|late_charge| late_charge.buckets.len()).sum();
        if pending_buckets + late_charge.buckets.len() > MAX_BUCKETS {
            self.uncharged += late_charge.permits();
        } else {
            self.pending.push_back(late_charge);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{BucketGrants, LocalGrant};
    use super::*;
    use tidegate_limit::{Algorithm, Mode, Quota};
    use tidegate_rules::charge::{ChargeKind, Limiter};

    #[test]
    fn adopted_late_charges_are_bounded() {
        let quota = Quota::new(10, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("a".into(), Mode::Overall, quota));
        let bucket = BucketGrants {
            limiter,
            client: None,
            kind: ChargeKind::Take,
            grants: vec![LocalGrant { at: Timestamp::from_millis(1), permits: 2 }],
        };
        let mut local_grants = LocalGrants::default();
        local_grants.adopt(LateCharge { id: 1, buckets: vec![bucket.clone(); MAX_BUCKETS - 1] });
        local_grants.adopt(LateCharge { id: 1, buckets: vec![bucket.clone()] });
        local_grants.adopt(LateCharge { id: 2, buckets: vec![bucket.clone()] });
        local_grants.adopt(LateCharge { id: 3, buckets: vec![bucket] });
        assert_eq!((local_grants.pending.len(), local_grants.uncharged), (2, 2));
        local_grants.forget(&[1]);
        assert_eq!(local_grants.pending.iter().map(|late_charge| late_charge.id).collect::<Vec<_>>(), [2]);
    }
}
