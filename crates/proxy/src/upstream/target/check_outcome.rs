//! When a target has failed its checks, and when it has passed enough of them again. A pure state machine.

/// The checks of a target in a row. A new target is assumed to be usable.
#[derive(Debug, Default)]
pub(super) struct CheckOutcome {
    has_failed: bool,
    /// How many of the last checks in a row speak against the current outcome.
    streak: u32,
}

/// A change of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Change {
    /// The target has failed `fall` checks in a row.
    Failed,
    /// The target has passed `rise` checks in a row.
    Recovered,
}

impl CheckOutcome {
    /// Records a check. Returns the change of the outcome, if there is one.
    pub(super) fn record(&mut self, has_passed: bool, rise: u32, fall: u32) -> Option<Change> {
        if has_passed != self.has_failed {
            self.streak = 0;
            return None;
        }
        self.streak = self.streak.saturating_add(1);
        let (needed, change) = if self.has_failed { (rise, Change::Recovered) } else { (fall, Change::Failed) };
        if self.streak < needed {
            return None;
        }
        *self = Self { has_failed: !self.has_failed, streak: 0 };
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn target_fails_after_fall_and_recovers_after_rise() {
        let mut outcome = CheckOutcome::default();
        let mut after = |checks: &[bool]| checks.iter().fold(None, |_, passed| outcome.record(*passed, 2, 3));
        assert_eq!(after(&[true, false, false]), None);
        assert_eq!(after(&[true, false, false]), None, "a passed check starts again");
        assert_eq!(after(&[false]), Some(Change::Failed));
        assert_eq!(after(&[false, false, true, false, true]), None);
        assert_eq!(after(&[true]), Some(Change::Recovered));
        assert_eq!(after(&[false, false]), None);
        assert_eq!(after(&[false]), Some(Change::Failed));
    }

    proptest! {
        /// The outcome changes exactly when the last checks, as many as needed, all speak against it.
        #[test]
        fn outcome_changes_after_a_full_streak(
            checks in prop::collection::vec(any::<bool>(), 0..60), rise in 1_u32..5, fall in 1_u32..5,
        ) {
            let (mut outcome, mut has_failed, mut since) = (CheckOutcome::default(), false, 0);
            for (position, passed) in checks.iter().enumerate() {
                let change = outcome.record(*passed, rise, fall);
                let needed = if has_failed { rise } else { fall } as usize;
                let recent = &checks[since..=position];
                let is_full = recent.len() >= needed
                    && recent[recent.len() - needed..].iter().all(|passed| *passed == has_failed);
                let expected = if has_failed { Change::Recovered } else { Change::Failed };
                prop_assert_eq!(change, is_full.then_some(expected));
                if change.is_some() {
                    (has_failed, since) = (!has_failed, position + 1);
                }
            }
        }
    }
}
