//! The post-paid limits that this process knows: a check makes a limit post-paid for all gateways, by a mark in Redis
//! (`redis/post_paid.rs`).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

/// How long a limit is post-paid after it was checked: longer than any response.
pub(crate) const LASTS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How often a mark is written again while its limit is checked. So the mark returns soon after the store has lost its data.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// How often the mark of a limit is read that is not known as post-paid, while permits are taken from it.
const READ_EVERY: Duration = Duration::from_secs(60);

/// How old the last reading of a mark may be when a limit refuses permits.
const FRESH: Duration = Duration::from_millis(100);

/// The number of limits from which on those without news are forgotten: the most limits of a domain, twice.
const MANY: usize = 100_000;

/// The limits that are post-paid, as far as this process knows: it has checked them, or has read their marks in the store. By
/// the names of their limiters.
#[derive(Debug, Default)]
pub(crate) struct PostPaidLimits(RwLock<HashMap<String, Known>>);

/// The knowledge of this process about a limit.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Until when it is post-paid.
    until: Option<Instant>,
    /// When its mark was last written.
    written: Option<Instant>,
    /// When its mark was last read.
    read: Option<Instant>,
    /// When its mark was last read, or a reading began that is not awaited.
    asked: Option<Instant>,
}

/// Whether a limit is post-paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostPaid {
    /// It is.
    Yes,
    /// This process does not know it as post-paid. Its mark is to be read if `is_old`.
    Unknown { is_old: bool },
}

impl PostPaidLimits {
    /// Returns whether a limit is post-paid.
    pub(crate) fn get(&self, name: &str, now: Instant) -> PostPaid {
        match self.0.read().get(name) {
            Some(known) if known.until.is_some_and(|until| now < until) => PostPaid::Yes,
            known => PostPaid::Unknown { is_old: is_old(known.and_then(|known| known.asked), READ_EVERY, now) },
        }
    }

    /// Records that a limit was checked. Returns `true` if its mark is to be written.
    pub(crate) fn checked(&self, name: &str, now: Instant) -> bool {
        let is_due = |known: &Known| is_old(known.written, WRITE_EVERY, now);
        if self.0.read().get(name).is_some_and(|known| known.until.is_some() && !is_due(known)) {
            return false;
        }
        self.change(name, now, |known| {
            known.until = Some(now + LASTS);
            is_due(known)
        })
    }

    /// Records that the mark of a limit was written.
    pub(crate) fn written(&self, name: &str, now: Instant) {
        self.change(name, now, |known| known.written = Some(now));
    }

    /// Records that a reading of a mark begins, so that no other one begins for the same reason.
    pub(crate) fn asked(&self, name: &str, now: Instant) {
        self.change(name, now, |known| known.asked = Some(now));
    }

    /// Returns `true` if the mark of a limit was read just now.
    pub(crate) fn is_fresh(&self, name: &str, now: Instant) -> bool {
        !is_old(self.0.read().get(name).and_then(|known| known.read), FRESH, now)
    }

    /// Records a reading that began at `asked`.
    pub(crate) fn read(&self, name: &str, is_marked: bool, asked: Instant) {
        self.change(name, asked, |known| {
            (known.read, known.asked) = (Some(asked), Some(asked));
            if is_marked {
                // The mark may end much earlier: it is read again after an hour.
                known.until = known.until.max(Some(asked + LASTS / (7 * 24)));
            }
        });
    }

    /// Returns the post-paid limits, and for how long each is.
    pub(crate) fn all(&self, now: Instant) -> Vec<(String, Duration)> {
        let remaining = |known: &Known| known.until?.checked_duration_since(now).filter(|left| !left.is_zero());
        self.0.read().iter().filter_map(|(name, known)| Some((name.clone(), remaining(known)?))).collect()
    }

    /// Adds a limit that another process knows as post-paid for at least this time.
    pub(crate) fn add(&self, name: &str, remaining: Duration, now: Instant) {
        if self.0.read().len() < MANY {
            self.change(name, now, |known| known.until = known.until.max(Some(now + remaining.min(LASTS))));
        }
    }

    fn change<R>(&self, name: &str, now: Instant, change: impl FnOnce(&mut Known) -> R) -> R {
        let mut limits = self.0.write();
        if limits.len() >= MANY && !limits.contains_key(name) {
            limits.retain(|_, known| known.until.is_some_and(|until| now < until));
        }
        change(limits.entry(name.to_owned()).or_default())
    }
}

fn is_old(at: Option<Instant>, after: Duration, now: Instant) -> bool {
    at.is_none_or(|at| now.saturating_duration_since(at) >= after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_post_paid_for_a_week_after_a_check() {
        let (limits, start) = (PostPaidLimits::default(), Instant::now());
        assert_eq!(limits.get("a", start), PostPaid::Unknown { is_old: true });
        assert!(limits.checked("a", start));
        assert_eq!(limits.get("a", start + LASTS - Duration::from_millis(1)), PostPaid::Yes);
        assert_eq!(limits.get("a", start + LASTS), PostPaid::Unknown { is_old: true });
        assert_eq!(limits.get("b", start), PostPaid::Unknown { is_old: true });
    }

    #[test]
    fn handed_over_limit_is_post_paid_for_the_rest_of_its_week() {
        let ([old, new], start) = (<[PostPaidLimits; 2]>::default(), Instant::now());
        old.checked("a", start);
        old.read("b", false, start);
        let later = start + LASTS / 2;
        for (name, remaining) in old.all(later) {
            new.add(&name, remaining, later);
        }
        assert_eq!(new.get("a", start + LASTS - Duration::from_millis(1)), PostPaid::Yes);
        assert_eq!(new.get("a", start + LASTS), PostPaid::Unknown { is_old: true });
        assert_eq!(new.all(later).len(), 1);
        assert!(new.checked("a", later), "its mark is written again");
    }

    #[test]
    fn mark_is_written_again_every_minute() {
        let (limits, start) = (PostPaidLimits::default(), Instant::now());
        assert!(limits.checked("a", start) && limits.checked("a", start), "not written yet");
        limits.written("a", start);
        assert!(!limits.checked("a", start + Duration::from_secs(59)));
        assert!(limits.checked("a", start + Duration::from_secs(60)));
    }

    #[test]
    fn mark_is_read_again_after_an_hour() {
        let (limits, start) = (PostPaidLimits::default(), Instant::now());
        limits.read("a", false, start);
        assert!(limits.is_fresh("a", start) && !limits.is_fresh("a", start + FRESH));
        assert_eq!(limits.get("a", start + Duration::from_secs(59)), PostPaid::Unknown { is_old: false });
        assert_eq!(limits.get("a", start + Duration::from_secs(60)), PostPaid::Unknown { is_old: true });
        limits.asked("a", start + Duration::from_secs(60));
        assert_eq!(limits.get("a", start + Duration::from_secs(61)), PostPaid::Unknown { is_old: false });
        limits.read("a", true, start);
        assert_eq!(limits.get("a", start + Duration::from_secs(3_599)), PostPaid::Yes);
        assert_eq!(limits.get("a", start + Duration::from_secs(3_600)), PostPaid::Unknown { is_old: true });
    }
}
