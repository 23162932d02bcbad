//! When failing targets are ejected.

use std::time::Duration;

use serde::Serialize;

use crate::json;
use tidegate_limit::text::words::words;

/// When failing targets receive no requests, and for how long: `eject:` of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Eject {
    /// The consecutive failures after which a target is ejected.
    pub after: u32,
    /// The time of the first ejection. Each ejection in a row is longer by this time.
    #[serde(rename = "for_ms", serialize_with = "json::millis")]
    pub time: Duration,
    /// The highest share of the targets that are ejected, in percent.
    #[serde(rename = "most")]
    pub max_percent: u8,
}

words! {
    /// Whether failing targets are ejected.
    pub enum EjectMode {
        /// All targets are used until checks or operators exclude them.
        Off = "off",
    }
}

impl Default for Eject {
    /// Returns the defaults of the rule file.
    fn default() -> Self {
        Self { after: 5, time: Duration::from_secs(30), max_percent: 50 }
    }
}
