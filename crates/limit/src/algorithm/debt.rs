//! Debt: permits that a bucket lacked when they were charged, since an event of the past cannot be refused.
//!
//! Permits that return pay the debt before any request can take them. So an owed permit counts as granted at the first
//! moment at which the bucket could have granted it, and a bucket with debt grants nothing. Over any time, a bucket is
//! charged with at most the permits that its algorithm can grant in that time, plus the debt at the end.
//!
//! This file pays the debt of logs. In `gcra` and `leaky_bucket`, more permits than the capacity are in use instead.

use super::entries::Entries;
use crate::clock::Timestamp;
use crate::{MAX_WAIT, Quota};

/// Permits of a log with one date.
pub(crate) trait Dated {
    fn new(date: Timestamp, permits: u64) -> Self;
    fn date(&self) -> Timestamp;
    fn permits(&self) -> u64;
}

/// Permits that were granted at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) at: Timestamp,
    pub(crate) permits: u64,
}

impl Dated for Grant {
    fn new(date: Timestamp, permits: u64) -> Self {
        Self { at: date, permits }
    }

    fn date(&self) -> Timestamp {
        self.at
    }

    fn permits(&self) -> u64 {
        self.permits
    }
}

/// How permits of a log return and pay debt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    rate: u64,
    /// A permit returns this long after its date.
    interval: u64,
    /// The length of the segments, if dates are ends of segments.
    segment: Option<u64>,
}

impl Cycle {
    pub(crate) fn new(quota: &Quota, segment: Option<u64>) -> Self {
        Self { rate: quota.rate().into(), interval: quota.interval(), segment }
    }

    /// Pays with the permits that return until `until`. Returns the time of the last payment, if there was one.
    pub(super) fn pay<E: Dated>(&self, log: &mut Entries<E>, debt: &mut u64, until: Timestamp) -> Option<Timestamp> {
        let (mut used, mut last) = (log.iter().map(Dated::permits).sum::<u64>(), None);
        // Permits that a raised rate has added pay at the date of the newest permits.
        let mut newest = log.back().map_or_else(|| self.date_of(until), Dated::date);
        let (mut time, mut old_entries) = (newest, log.iter().count());
        loop {
            let paid = (*debt).min(self.rate.saturating_sub(used));
            if paid > 0 {
                add(log, newest, paid);
                (used, last) = (used + paid, Some(time));
                *debt -= paid;
            }
            if *debt == 0 {
                return last;
            }
            if old_entries == 0 {
                // From here on, all entries return and pay together in each period.
                self.skip_periods(log, debt, until);
                newest = log.back().map_or(newest, Dated::date);
                old_entries = usize::MAX;
            }
            let oldest = log.front().map(|oldest| (oldest.date().plus_millis(self.interval), oldest.permits()));
            let Some((returns, permits)) = oldest.filter(|(returns, _)| *returns <= until) else { return last };
            log.pop_front();
            (used, time, newest) = (used - permits, returns, self.date_of(returns).max(newest));
            old_entries -= 1;
        }
    }

    /// Returns the milliseconds until `debt` is paid, at most [`MAX_WAIT`].
    pub(super) fn millis_until_paid<E: Dated>(&self, mut log: Entries<E>, mut debt: u64, now: Timestamp) -> u64 {
        let paid_at = self.pay(&mut log, &mut debt, now.plus_millis(MAX_WAIT));
        paid_at.filter(|_| debt == 0).map_or(MAX_WAIT, |paid_at| paid_at.millis_since(now))
    }

    /// Returns an upper bound of the time from the newest date until the debt is paid.
    pub(super) fn longest_millis(&self, debt: u64) -> u64 {
        longest_millis(debt, self.rate, self.period())
    }

    /// Skips all whole periods but those that pay the rest of the debt.
    fn skip_periods<E: Dated>(&self, log: &mut Entries<E>, debt: &mut u64, until: Timestamp) {
        let returns = log.back().map(|newest| newest.date().plus_millis(self.interval));
        let Some(returns) = returns.filter(|returns| *returns <= until) else { return };
        let ended = until.millis_since(returns) / self.period() + 1;
        let periods = ended.min((*debt - 1) / self.rate);
        *debt -= periods * self.rate;
        for position in 0..log.iter().count() {
            if let Some(entry) = log.get_mut(position) {
                *entry = E::new(entry.date().plus_millis(periods * self.period()), entry.permits());
            }
        }
    }

    /// Returns the date of permits that are granted at `at`.
    fn date_of(&self, at: Timestamp) -> Timestamp {
        self.segment.map_or(at, |length| Timestamp::from_millis(at.as_millis() / length * length).plus_millis(length))
    }

    /// Returns the time from the date of a permit to the date of the permit that it pays.
    fn period(&self) -> u64 {
        self.segment.map_or(self.interval, |length| self.interval - self.interval % length + length)
    }
}

/// Returns an upper bound of the time until a debt is paid by `rate` permits in each period.
pub(super) fn longest_millis(debt: u64, rate: u64, period: u64) -> u64 {
    if debt == 0 { 0 } else { (debt.div_ceil(rate) + 1).saturating_mul(period).min(MAX_WAIT) }
}

fn add<E: Dated>(log: &mut Entries<E>, date: Timestamp, permits: u64) {
    match log.back_mut() {
        Some(newest) if newest.date() == date => *newest = E::new(date, newest.permits() + permits),
        _ => log.push_back(E::new(date, permits)),
    }
}
