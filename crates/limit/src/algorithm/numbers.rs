//! A bucket as a list of numbers: the form in which a handover transfers it to another process.
//!
//! Times are milliseconds relative to the sender's present, so that the clocks of two processes need not agree.
//! Calendar windows are the exception: they end at the same moment in every process, so their ends are sent as they
//! are.

use super::entries::Entries;
use crate::MAX_DEBT;
use crate::clock::Timestamp;

/// The maximum length of the list of a bucket. The longest log has two numbers for each of about 512 grants.
pub(super) const MAX_NUMBERS: usize = 2_048;

/// The upper bound of amounts. No bucket contains a larger one.
const MAX_AMOUNT: u64 = 1 << 52;

/// Numbers that are read one after the other.
pub(crate) struct Numbers<'n> {
    remaining: std::slice::Iter<'n, i64>,
    now: Timestamp,
}

impl<'n> Numbers<'n> {
    pub(crate) fn new(numbers: &'n [i64], now: Timestamp) -> Self {
        Self { remaining: numbers.iter(), now }
    }

    /// Returns these numbers with times relative to `now`.
    pub(super) fn relative_to(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }

    /// Returns the next number as an amount, or `None` at the end.
    pub(crate) fn amount(&mut self) -> Option<u64> {
        u64::try_from(*self.remaining.next()?).ok().filter(|amount| *amount <= MAX_AMOUNT)
    }

    /// Returns the next number as a time.
    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        let relative = *self.remaining.next()?;
        Some(Timestamp::from_millis(self.now.as_millis().saturating_add_signed(relative)))
    }

    /// Removes the debt at the end, after entries of two numbers each. Returns 0 without a debt, or `None` if the debt is
    /// invalid.
    pub(super) fn take_debt(&mut self) -> Option<u64> {
        let remaining = self.remaining.as_slice();
        let (Some(debt), 1) = (remaining.last(), remaining.len() % 2) else { return Some(0) };
        self.remaining = remaining[..remaining.len() - 1].iter();
        u64::try_from(*debt).ok().filter(|debt| (1..=MAX_DEBT).contains(debt) && !self.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remaining.as_slice().is_empty()
    }

    /// Returns the rest as entries, each with a time and an amount above 0. Returns `None` unless their times ascend.
    pub(super) fn entries<T>(mut self, entry: impl Fn(Timestamp, u64) -> T) -> Option<Entries<T>> {
        let (mut entries, mut last) = (Entries::default(), Timestamp::default());
        while !self.is_empty() {
            let (at, amount) = (self.time()?, self.amount()?);
            if at < last || amount == 0 {
                return None;
            }
            entries.push_back(entry(at, amount));
            last = at;
        }
        Some(entries)
    }
}

/// Converts an amount to a number.
pub(crate) fn amount(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Converts a debt to a number, if there is one.
pub(crate) fn debt(debt: u64) -> Option<i64> {
    (debt > 0).then(|| amount(debt))
}

/// Converts a time to a number.
pub(crate) fn time(at: Timestamp, now: Timestamp) -> i64 {
    at.signed_millis_since(now)
}

/// The moment to which times of calendar windows are relative.
pub(super) const CALENDAR: Timestamp = Timestamp::from_millis(0);
