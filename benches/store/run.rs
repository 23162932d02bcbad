//! The course of a benchmark: what is asked when, in turns, so that nothing has the quiet moments of the machine alone.

use std::fs;
use std::thread::available_parallelism;

use deadpool_redis::redis::Connection;

use super::counters::Counters;
use super::drivers::Drivers;
use super::job::Job;
use super::law::{Window, windows};
use super::measured::{Contest, Measured, Subject};
use super::redis::{self, Redis};
use super::scenario::{Kind, Scenario};
use super::slice::Slice;
use super::{DRIVE, Result, redisson};

/// How much is asked.
pub struct Plan {
    /// Tasks in each process.
    pub levels: Vec<u32>,
    pub rounds: usize,
    /// Of a slice.
    pub millis: u64,
    /// Calls that `redis-benchmark` makes in its slice.
    pub calls: u64,
}

/// A benchmark that runs.
pub struct Run {
    pub plan: Plan,
    drivers: Drivers,
    connection: Connection,
    redis: Redis,
    /// Slices so far: the number of the next one's buckets.
    runs: u64,
}

/// Tasks in each process where concurrency is not what is looked at.
const USUAL: u32 = 64;
/// Milliseconds in which everybody connects and Redis learns a script.
const FIRST: u64 = 50;
/// How many slices as long as others those are in which intervals pass.
const BOUNDED: u64 = 3;

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
    /// Starts Redis and those who ask it.
    pub async fn start(plan: Plan) -> Result<Self> {
        let redis = Redis::start(&[]).await?;
        let (drivers, connection) = (Drivers::start(DRIVE, &redis.url())?, redis.connect()?);
        Ok(Self { plan, drivers, connection, redis, runs: 0 })
    }

    pub fn measure(&mut self) -> Result<Measured> {
        let mut measured = Measured::new(&self.plan.levels, USUAL)?;
        for subject in [&measured.curves, &measured.algorithms, &measured.bounded].into_iter().flatten() {
            self.ask(&subject.scenario, 1, FIRST)?;
        }
        for _ in 0..self.plan.rounds {
            for level in 0..self.plan.levels.len() {
                for subject in &mut measured.curves {
                    self.add(subject, level)?;
                }
                let contests = measured.contests.len();
                self.contest(&mut measured.contests[level % contests])?;
            }
            for subject in measured.algorithms.iter_mut().chain(&mut measured.bounded) {
                self.add(subject, 0)?;
            }
        }
        Ok(measured)
    }

    /// Where this is.
    pub fn machine(&mut self) -> Result<String> {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let (cores, model) = (available_parallelism()?, model.map_or("unknown", |(_, model)| model));
        Ok(format!("Redis {}; {cores} cores, {model}", redis::version(&mut self.connection)?))
    }

    /// Measures one slice of each.
    fn contest(&mut self, contest: &mut Contest) -> Result<()> {
        self.add(&mut contest.subject, 0)?;
        let theirs = redisson::take(&mut self.connection, self.redis.port, contest.peer, self.plan.calls)?;
        contest.theirs.push(theirs);
        Ok(())
    }

    /// Measures one more slice of a row.
    fn add(&mut self, subject: &mut Subject, row: usize) -> Result<()> {
        let times = if subject.scenario.kind == Kind::Bounded { BOUNDED } else { 1 };
        let row = &mut subject.rows[row];
        let (slice, windows) = self.ask(&subject.scenario, row.tasks, times * self.plan.millis)?;
        row.slices.push(slice);
        subject.saw(windows);
        Ok(())
    }

    /// Has all drivers ask for a while, in buckets that nobody has asked before.
    fn ask(&mut self, scenario: &Scenario, tasks: u32, millis: u64) -> Result<(Slice, Vec<Window>)> {
        self.runs += 1;
        let job = Job { scenario: scenario.name.to_owned(), run: self.runs, tasks, millis, seed: self.runs };
        let counters = Counters::start(&mut self.connection)?;
        let reports = self.drivers.work(&job)?;
        let spent = counters.spent(&mut self.connection)?;
        Ok((Slice::new(scenario, &reports, spent)?, windows(scenario, &reports)))
    }
}
