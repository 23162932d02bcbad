//! Slow start: a target that has just become usable gets a growing share of the requests.

use std::time::Duration;

/// The share of a target that is not in its slow start, in thousandths.
pub(in crate::upstream) const FULL_SHARE: u32 = 1000;

/// The share at the start.
const FIRST_SHARE: u32 = 100;

/// Returns the share of a target that has been usable for `age`: linear from 10 % to all of its weight.
pub(in crate::upstream) fn share(age: Duration, slow_start: Duration) -> u32 {
    if age >= slow_start {
        return FULL_SHARE;
    }
    let grown = u128::from(FULL_SHARE - FIRST_SHARE) * age.as_millis() / slow_start.as_millis().max(1);
    FULL_SHARE.min(FIRST_SHARE + u32::try_from(grown).unwrap_or(FULL_SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_grows_from_a_tenth() {
        let slow_start = Duration::from_secs(30);
        let shares = [0, 10, 15, 30, 31].map(|seconds| share(Duration::from_secs(seconds), slow_start));
        assert_eq!(shares, [100, 400, 550, 1000, 1000]);
        assert_eq!(share(Duration::ZERO, Duration::ZERO), 1000);
    }
}
