//! The messages between the benchmark and its drivers: jobs and reports. Each is one line of JSON.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;

/// A job of a driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The name of the scenario.
    pub scenario: String,
    /// The number of the run, the same for all drivers.
    pub run: u64,
    /// The number of concurrent tasks.
    pub tasks: u32,
    pub millis: u64,
    /// The seed of the random clients, different for each driver.
    pub seed: u64,
}

/// The result of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub decisions: u64,
    pub seconds: f64,
    /// The CPU time in seconds. `None` if there is no `/proc`.
    pub cpu: Option<f64>,
    pub latency: Histogram,
    pub grants: Vec<Grant>,
}

/// A client, a time of the store's clock in milliseconds, and the permits granted to the client in this millisecond.
pub type Grant = (u32, u64, u64);
