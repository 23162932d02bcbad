//! Drives one bucket through its phases: fills it over one interval, takes single permits at an even pace, waits until
//! all permits have expired, and fills it again.

use super::Result;
use super::server::{ScriptCost, Server};
use super::subject::Subject;

/// A bucket, its position in time, and the measurements of it.
pub struct MeasuredBucket {
    pub subject: Subject,
    interval: u64,
    /// The start of the current series of requests, and the permits taken since.
    series_start: u64,
    taken: u64,
    pub rounds: Vec<ScriptCost>,
    /// Microseconds of the calls that requested all permits while most were in use.
    pub refusals: Vec<u64>,
    /// Microseconds of the first calls after all permits had expired together.
    pub expiries: Vec<u64>,
    pub bytes: u64,
}

/// The simulated start time, a whole minute.
const START: u64 = 1_800_000_000_000;
/// The number of decisions in a round.
const CALLS: u64 = 1_000;

impl MeasuredBucket {
    pub fn new(subject: Subject, interval: u64) -> Self {
        let (rounds, refusals, expiries) = (Vec::new(), Vec::new(), Vec::new());
        Self { subject, interval, series_start: START, taken: 0, rounds, refusals, expiries, bytes: 0 }
    }

    /// Takes the permits of one interval. If grants would share log entries, takes the permits of each entry at once,
    /// so that filling a rate of a million does not need a million calls.
    pub async fn fill(&mut self) -> Result<()> {
        let steps = self.permits_per_interval().min(self.subject.max_entries());
        let mut requests = Vec::new();
        for step in 0..steps {
            let (before, after) =
                (self.permits_per_interval() * step / steps, self.permits_per_interval() * (step + 1) / steps);
            requests.push((self.now(), u32::try_from(after - before)?));
            self.taken += after - before;
        }
        self.subject.take(&requests).await
    }

    /// Takes permits one by one, and records the cost.
    pub async fn run_round(&mut self, server: &mut Server) -> Result<()> {
        let requests: Vec<(u64, u32)> =
            (self.taken..self.taken + CALLS).map(|taken| (self.time_of_permit(taken), 1)).collect();
        server.start_counting()?;
        self.subject.take(&requests).await?;
        self.taken += CALLS;
        self.rounds.push(server.cost_of(CALLS)?);
        Ok(())
    }

    pub fn clear_rounds(&mut self) {
        self.rounds.clear();
    }

    /// Records the cost of a call that requests more permits than are left.
    pub async fn request_all(&mut self, server: &mut Server) -> Result<()> {
        server.start_counting()?;
        self.subject.request_all(self.now()).await?;
        self.refusals.push(server.cost_of(1)?.longest);
        Ok(())
    }

    /// Lets all permits expire, and records the cost of the next call.
    pub async fn expire(&mut self, server: &mut Server) -> Result<()> {
        self.series_start = (self.now() + 3 * self.interval).next_multiple_of(self.interval);
        self.taken = 1;
        server.start_counting()?;
        self.subject.take(&[(self.series_start, 1)]).await?;
        self.expiries.push(server.cost_of(1)?.longest);
        // The next series starts after the interval of this call.
        self.series_start += 2 * self.interval;
        self.taken = 0;
        Ok(())
    }

    /// Records the memory of the bucket if it is the largest so far. Measures right after a grant: a bucket that drains
    /// permit by permit is deleted when it is empty.
    pub async fn record_memory(&mut self, server: &mut Server) -> Result<()> {
        self.subject.take(&[(self.now(), 1)]).await?;
        self.taken += 1;
        self.bytes = self.bytes.max(server.memory_of(&self.subject.key())?);
        Ok(())
    }

    /// Returns the permits taken per interval: slightly fewer than the rate, because some become available one slot or
    /// segment later.
    fn permits_per_interval(&self) -> u64 {
        self.subject.rate - self.subject.rate / 32
    }

    fn now(&self) -> u64 {
        self.time_of_permit(self.taken)
    }

    fn time_of_permit(&self, taken: u64) -> u64 {
        self.series_start + taken * self.interval / self.permits_per_interval()
    }
}
