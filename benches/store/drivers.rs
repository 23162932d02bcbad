//! The processes that ask, as the benchmark sees them: the same program, started with the address of Redis.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::Result;
use super::job::{Job, Report};

/// Processes that work at the same time; ended with their owner.
pub struct Drivers(Vec<Driver>);

struct Driver {
    child: Child,
    jobs: ChildStdin,
    reports: BufReader<ChildStdout>,
}

/// How many: two gateways share a bucket.
pub const DRIVERS: u32 = 2;

impl Drivers {
    /// Starts them on the Redis at this address; `word` is the argument by which the program knows that it is one.
    pub fn start(word: &str, url: &str) -> Result<Self> {
        Ok(Self((0..DRIVERS).map(|_| Driver::start(word, url)).collect::<Result<_>>()?))
    }

    /// Has all of them do the job, each with clients drawn otherwise.
    pub fn work(&mut self, job: &Job) -> Result<Vec<Report>> {
        for (driver, number) in self.0.iter_mut().zip(1..) {
            driver.send(&Job { seed: job.seed.wrapping_add(number << 32), ..job.clone() })?;
        }
        self.0.iter_mut().map(Driver::report).collect()
    }
}

// === impl Driver ===

impl Driver {
    fn start(word: &str, url: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut child = command.args([word, url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (jobs, reports) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        Ok(Self { child, jobs, reports: BufReader::new(reports) })
    }

    fn send(&mut self, job: &Job) -> Result<()> {
        let line = serde_json::to_string(job)? + "\n";
        Ok(self.jobs.write_all(line.as_bytes())?)
    }

    fn report(&mut self) -> Result<Report> {
        let mut line = String::new();
        match self.reports.read_line(&mut line)? {
            0 => Err("a driver ended".into()),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
