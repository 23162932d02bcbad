//! What was measured in a moment's asking, and what several such moments say together.

use super::Result;
use super::counters::Spent;
use super::histogram::Histogram;
use super::job::Report;
use super::scenario::{Kind, Scenario};

/// A moment's asking.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Decisions a second.
    pub rate: f64,
    /// Microseconds of Redis's processor for a decision.
    pub redis: f64,
    /// Microseconds of the drivers' processors for a decision.
    pub driver: Option<f64>,
    /// Decisions for each call of a script.
    pub batch: f64,
    pub latency: Histogram,
}

/// The smallest, the middle and the largest of several numbers.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl Slice {
    /// What the drivers report.
    ///
    /// # Errors
    /// It is not what the scenario is there for.
    pub fn new(scenario: &Scenario, reports: &[Report], spent: Spent) -> Result<Self> {
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
            redis: micros_each(spent.cpu, decisions),
            driver: driver.map(|seconds| micros_each(seconds, decisions)),
            batch: decisions as f64 / spent.scripts as f64,
            latency,
        })
    }

    /// What `redis-benchmark` says, and Redis.
    pub fn of_redisson(rate: f64, spent: Spent) -> Self {
        let redis = micros_each(spent.cpu, spent.scripts);
        Self { rate, redis, driver: None, batch: 1.0, latency: Histogram::default() }
    }
}

fn micros_each(seconds: f64, decisions: u64) -> f64 {
    seconds * 1_000_000.0 / decisions as f64
}

impl Spread {
    /// Of these; nothing of none.
    pub fn of(numbers: impl Iterator<Item = f64>) -> Option<Self> {
        let mut numbers: Vec<f64> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        let (least, most) = (*numbers.first()?, *numbers.last()?);
        Some(Self { least, median: numbers[numbers.len() / 2], most })
    }
}
