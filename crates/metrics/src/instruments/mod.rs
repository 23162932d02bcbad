//! Counters, gauges and histograms, and their series by name.

pub(crate) mod by_name;
pub(crate) mod count;
pub(crate) mod family;
pub(crate) mod gauge;
pub(crate) mod histogram;
pub(crate) mod sample;
pub(crate) mod used_share;
