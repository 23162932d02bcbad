//! Counts grants on the clock of the clients, without knowledge of the stored data.

use std::time::{SystemTime, UNIX_EPOCH};

/// The start and the end of the call that granted a permit, in microseconds.
pub type Grant = (u64, u64);

/// Returns the largest number of grants that begin and end within one window of `length` microseconds.
pub fn fullest_window(mut grants: Vec<Grant>, length: u64) -> usize {
    grants.sort_unstable();
    let certain = |first: usize| {
        let end = grants[first].0 + length;
        let begun = grants[first..].iter().take_while(|grant| grant.0 < end);
        begun.filter(|grant| grant.1 < end).count()
    };
    (0..grants.len()).map(certain).max().unwrap_or(0)
}

/// Returns the time that all programs of this machine share.
#[expect(clippy::disallowed_methods, reason = "the Java services use the same clock")]
pub fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 580000")
}

#[test]
fn only_grants_within_a_window_count() {
    assert_eq!(fullest_window(vec![(0, 5), (3, 9), (4, 12), (11, 13)], 10), 2);
    assert_eq!(fullest_window(vec![(0, 5), (3, 9), (4, 12), (11, 13)], 11), 3);
    assert_eq!(fullest_window(Vec::new(), 11), 0);
}
