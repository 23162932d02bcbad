//! Rates, and the bounds of the rule file.

use std::time::Duration;

use super::law::{Law, rate};
use crate::draft::{Algorithm, Limit};

#[test]
fn rates_are_whole_thousandths() {
    for (text, millis) in
        [("10r/s", Some(10_000)), ("1r/m", Some(16)), ("59r/m", Some(983)), ("0r/s", None), ("10", None)]
    {
        assert_eq!(rate(text), millis, "{text}");
    }
    assert_eq!(rate("99999999999999999999r/s"), None);
    assert_eq!(rate("9999999999r/s"), None);
}

#[test]
fn bounds_of_the_rule_file_make_limits_stricter() {
    let mut limit = Limit::default();
    let bounded = Law { rate: 1, burst: 1_000_000, delay: 0 }.apply(&mut limit, 1);
    assert_eq!(bounded.len(), 2);
    assert_eq!((limit.queue, limit.max_wait), (Some(100_000), Some(Duration::from_secs(3_600))));
    assert_eq!(limit.algorithm, Some(Algorithm::LeakyBucket));
    let bounded = Law { rate: 1, burst: u64::MAX, delay: u64::MAX }.apply(&mut limit, u32::MAX);
    assert_eq!(
        bounded,
        ["the rate exceeds the bound of the rule file", "the burst exceeds the bound of the rule file"]
    );
}
