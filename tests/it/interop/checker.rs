//! Counts grants by the clock of those who asked, and knows nothing of how they are kept.

use std::time::{SystemTime, UNIX_EPOCH};

/// The microseconds between which a permit was granted.
pub type Grant = (u64, u64);

/// The most grants that certainly lie in one window of so many microseconds: those that begin and end in it.
pub fn fullest_window(mut grants: Vec<Grant>, length: u64) -> usize {
    grants.sort_unstable();
    let certain = |first: usize| {
        let end = grants[first].0 + length;
        let begun = grants[first..].iter().take_while(|grant| grant.0 < end);
        begun.filter(|grant| grant.1 < end).count()
    };
    (0..grants.len()).map(certain).max().unwrap_or(0)
}

/// Now, as all programs of this machine see it.
#[expect(clippy::disallowed_methods, reason = "other programs write by the same clock")]
pub fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 580000")
}

#[test]
fn only_what_begins_and_ends_in_a_window_counts() {
    assert_eq!(fullest_window(vec![(0, 5), (3, 9), (4, 12), (11, 13)], 10), 2);
    assert_eq!(fullest_window(vec![(0, 5), (3, 9), (4, 12), (11, 13)], 11), 3);
    assert_eq!(fullest_window(Vec::new(), 11), 0);
}
