//! What the benchmark and its drivers say to each other: a job, and what came of it. Each is one line of JSON.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;

/// To be done by a driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The name of what to ask for.
    pub scenario: String,
    /// The number of the run, the same for all drivers.
    pub run: u64,
    /// How many ask at the same time.
    pub tasks: u32,
    pub millis: u64,
    /// Where the drawing of clients starts, another for each driver.
    pub seed: u64,
}

/// What a driver has done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub decisions: u64,
    pub seconds: f64,
    /// Seconds of the processor that it has taken; unknown where there is no `/proc`.
    pub cpu: Option<f64>,
    pub latency: Histogram,
    pub grants: Vec<Grant>,
}

/// Permits that one client was granted in one millisecond of the store's clock: who, when, how many.
pub type Grant = (u32, u64, u64);
