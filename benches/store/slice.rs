//! The results of one slice, and statistics over several slices.

use super::Result;
use super::counters::RedisUsage;
use super::histogram::Histogram;
use super::job::Report;
use super::scenario::{Kind, Scenario};

/// The results of a slice.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Decisions per second.
    pub rate: f64,
    /// CPU time of Redis per decision, in microseconds.
    pub redis: f64,
    /// CPU time of the drivers per decision, in microseconds.
    pub driver: Option<f64>,
    /// Decisions per script call.
    pub batch: f64,
    pub latency: Histogram,
}

/// The minimum, the median and the maximum of several numbers.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl Slice {
    /// Creates the results from the reports of the drivers.
    ///
    /// # Errors
    /// Fails if the decisions differ from the expected outcome of the scenario.
    pub fn new(scenario: &Scenario, reports: &[Report], usage: RedisUsage) -> Result<Self> {
        let decisions: u64 = reports.iter().map(|report| report.decisions).sum();
        let granted: u64 = reports.iter().flat_map(|report| &report.grants).map(|grant| grant.2).sum();
        if scenario.kind == Kind::Granted && granted < decisions {
            return Err(format!("{}: {granted} of {decisions} were granted", scenario.name).into());
        }
        let mut latency = Histogram::default();
        reports.iter().for_each(|report| latency.add(&report.latency));
        let driver = reports.iter().map(|report| report.cpu).sum::<Option<f64>>();
        Ok(Self {
            rate: reports.iter().map(|report| report.decisions as f64 / report.seconds).sum(),
            redis: micros_each(usage.cpu, decisions),
            driver: driver.map(|seconds| micros_each(seconds, decisions)),
            batch: decisions as f64 / usage.scripts as f64,
            latency,
        })
    }

    /// Creates the results of Redisson's script from the rate that `redis-benchmark` reports and the usage of Redis.
    pub fn from_redisson(rate: f64, usage: RedisUsage) -> Self {
        let redis = micros_each(usage.cpu, usage.scripts);
        Self { rate, redis, driver: None, batch: 1.0, latency: Histogram::default() }
    }
}

fn micros_each(seconds: f64, decisions: u64) -> f64 {
    seconds * 1_000_000.0 / decisions as f64
}

impl Spread {
    /// Creates the statistics of some numbers. Returns `None` if there are no numbers.
    pub fn new(numbers: impl Iterator<Item = f64>) -> Option<Self> {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        let (least, most) = (*numbers.first()?, *numbers.last()?);
        Some(Self { least, median: numbers[numbers.len() / 2], most })
    }
}
