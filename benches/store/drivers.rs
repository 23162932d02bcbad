//! Starts the processes that send the decisions, and sends jobs to them.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::Result;
use super::job::{Job, Report};

/// Processes that run the same job in parallel. Dropping it stops them.
pub struct Drivers(Vec<Driver>);

struct Driver {
    child: Child,
    jobs: ChildStdin,
    reports: BufReader<ChildStdout>,
}

/// The number of processes: as with two gateways, they share buckets.
pub const DRIVERS: u32 = 2;

impl Drivers {
    /// Starts the processes with the Redis at `url`. The argument `flag` selects this role of the program.
    pub fn start(flag: &str, url: &str) -> Result<Self> {
        Ok(Self((0..DRIVERS).map(|_| Driver::start(flag, url)).collect::<Result<_>>()?))
    }

    /// Runs the job in all processes, each with another seed.
    pub fn run_job(&mut self, job: &Job) -> Result<Vec<Report>> {
        for (driver, number) in self.0.iter_mut().zip(1..) {
            driver.send(&Job { seed: job.seed.wrapping_add(number << 32), ..job.clone() })?;
        }
        self.0.iter_mut().map(Driver::report).collect()
    }
}

// === impl Driver ===

impl Driver {
    fn start(flag: &str, url: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut child = command.args([flag, url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
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
            0 => Err("a driver has exited".into()),
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
