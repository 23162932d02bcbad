//! Runs the benchmark. Slices of all scenarios alternate, so that changes of the machine's speed affect all of them.

use std::fs;
use std::thread::available_parallelism;

use deadpool_redis::redis::Connection;

use super::counters::Counters;
use super::drivers::Drivers;
use super::job::Job;
use super::measured::{Comparison, Measured, Subject};
use super::redis::{self, Redis};
use super::scenario::{Kind, Scenario};
use super::slice::Slice;
use super::window::{Window, windows};
use super::{DRIVER_FLAG, Result, redisson};

/// The extent of a run.
pub struct Plan {
    /// The levels of concurrency: tasks in each process.
    pub levels: Vec<u32>,
    pub rounds: usize,
    /// The length of a slice.
    pub millis: u64,
    /// Calls of `redis-benchmark` in its slice.
    pub calls: u64,
}

/// A running benchmark.
pub struct Run {
    pub plan: Plan,
    drivers: Drivers,
    connection: Connection,
    redis: Redis,
    /// The number of slices so far. It is part of the keys, so each slice has new buckets.
    runs: u64,
}

/// Tasks in each process for scenarios without a curve.
const USUAL_TASKS: u32 = 64;
/// The length of the warm-up slice in milliseconds, in which the processes connect and Redis loads the script.
const WARM_UP: u64 = 50;
/// Slices of bounded scenarios are longer by this factor, so that several intervals pass.
const BOUNDED_FACTOR: u64 = 3;

impl Plan {
    pub fn whole() -> Self {
        Self { levels: (0..=10).map(|power| 1 << power).collect(), rounds: 5, millis: 300, calls: 32_000 }
    }

    pub fn quick() -> Self {
        Self { levels: vec![1, 16, 256], rounds: 3, millis: 150, calls: 16_000 }
    }
}

// === impl Run ===

impl Run {
    /// Starts Redis and the drivers.
    pub async fn start(plan: Plan) -> Result<Self> {
        let redis = Redis::start(&[]).await?;
        let (drivers, connection) = (Drivers::start(DRIVER_FLAG, &redis.url())?, redis.connect()?);
        Ok(Self { plan, drivers, connection, redis, runs: 0 })
    }

    pub fn measure(&mut self) -> Result<Measured> {
        let mut measured = Measured::new(&self.plan.levels, USUAL_TASKS)?;
        for subject in [&measured.curves, &measured.algorithms, &measured.bounded].into_iter().flatten() {
            self.run_slice(&subject.scenario, 1, WARM_UP)?;
        }
        for _ in 0..self.plan.rounds {
            for level in 0..self.plan.levels.len() {
                for subject in &mut measured.curves {
                    self.add_slice(subject, level)?;
                }
                let comparisons = measured.comparisons.len();
                self.compare(&mut measured.comparisons[level % comparisons])?;
            }
            for subject in measured.algorithms.iter_mut().chain(&mut measured.bounded) {
                self.add_slice(subject, 0)?;
            }
        }
        Ok(measured)
    }

    /// Describes the machine and Redis.
    pub fn machine(&mut self) -> Result<String> {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let (cores, model) = (available_parallelism()?, model.map_or("unknown", |(_, model)| model));
        Ok(format!("Redis {}; {cores} cores, {model}", redis::version(&mut self.connection)?))
    }

    /// Measures one slice of the store and one of Redisson's script.
    fn compare(&mut self, comparison: &mut Comparison) -> Result<()> {
        self.add_slice(&mut comparison.subject, 0)?;
        let slice = redisson::take(&mut self.connection, self.redis.port, comparison.peer, self.plan.calls)?;
        comparison.redisson.push(slice);
        Ok(())
    }

    /// Measures one more slice of a row.
    fn add_slice(&mut self, subject: &mut Subject, row: usize) -> Result<()> {
        let factor = if subject.scenario.kind == Kind::Bounded { BOUNDED_FACTOR } else { 1 };
        let row = &mut subject.rows[row];
        let (slice, windows) = self.run_slice(&subject.scenario, row.tasks, factor * self.plan.millis)?;
        row.slices.push(slice);
        subject.add_windows(windows);
        Ok(())
    }

    /// Runs one job in all drivers, with new buckets.
    fn run_slice(&mut self, scenario: &Scenario, tasks: u32, millis: u64) -> Result<(Slice, Vec<Window>)> {
        self.runs += 1;
        let job = Job { scenario: scenario.name.to_owned(), run: self.runs, tasks, millis, seed: self.runs };
        let counters = Counters::start(&mut self.connection)?;
        let reports = self.drivers.run_job(&job)?;
        let usage = counters.usage(&mut self.connection)?;
        Ok((Slice::new(scenario, &reports, usage)?, windows(scenario, &reports)))
    }
}
