//! The life of a bucket: filled over one interval, asked for single permits at an even pace, left alone until all has
//! expired, and filled again.

use super::Result;
use super::server::{Server, Spent};
use super::subject::Subject;

/// A bucket, where it is in its time, and what was measured of it.
pub struct Life {
    pub subject: Subject,
    interval: u64,
    /// When its present demand began, and how many permits it has taken since.
    since: u64,
    taken: u64,
    pub rounds: Vec<Spent>,
    /// Calls that asked for all permits while most were in use.
    pub refusals: Vec<u64>,
    /// First calls after everything has expired together.
    pub expiries: Vec<u64>,
    pub bytes: u64,
}

/// When time begins: at the first moment of a minute.
const START: u64 = 1_800_000_000_000;
/// Decisions in a round.
const CALLS: u64 = 1_000;

impl Life {
    pub fn new(subject: Subject, interval: u64) -> Self {
        let (rounds, refusals, expiries) = (Vec::new(), Vec::new(), Vec::new());
        Self { subject, interval, since: START, taken: 0, rounds, refusals, expiries, bytes: 0 }
    }

    /// Takes for one interval as many permits as are demanded in it. Where grants would share entries, those that do are
    /// taken at once, so that filling a million takes no million of calls.
    pub async fn fill(&mut self) -> Result<()> {
        let steps = self.demand().min(self.subject.most_entries());
        let mut takings = Vec::new();
        for step in 0..steps {
            let (before, after) = (self.demand() * step / steps, self.demand() * (step + 1) / steps);
            takings.push((self.now(), u32::try_from(after - before)?));
            self.taken += after - before;
        }
        self.subject.take(&takings).await
    }

    /// Takes permits one by one, and notes what that cost.
    pub async fn round(&mut self, server: &mut Server) -> Result<()> {
        let takings: Vec<(u64, u32)> = (self.taken..self.taken + CALLS).map(|taken| (self.at(taken), 1)).collect();
        server.start_counting()?;
        self.subject.take(&takings).await?;
        self.taken += CALLS;
        self.rounds.push(server.spent(CALLS)?);
        Ok(())
    }

    pub fn forget_rounds(&mut self) {
        self.rounds.clear();
    }

    /// Notes what a call costs that asks for more than there is.
    pub async fn ask_for_all(&mut self, server: &mut Server) -> Result<()> {
        server.start_counting()?;
        self.subject.ask_for_all(self.now()).await?;
        self.refusals.push(server.spent(1)?.longest);
        Ok(())
    }

    /// Lets everything expire, and notes what the next call costs.
    pub async fn expire(&mut self, server: &mut Server) -> Result<()> {
        self.since = (self.now() + 3 * self.interval).next_multiple_of(self.interval);
        self.taken = 1;
        server.start_counting()?;
        self.subject.take(&[(self.since, 1)]).await?;
        self.expiries.push(server.spent(1)?.longest);
        // What comes next has an interval of its own.
        self.since += 2 * self.interval;
        self.taken = 0;
        Ok(())
    }

    /// Notes what it keeps, if that is the most so far; at once after a grant, since a bucket that drains one by one is
    /// gone when it is empty.
    pub async fn weigh(&mut self, server: &mut Server) -> Result<()> {
        self.subject.take(&[(self.now(), 1)]).await?;
        self.taken += 1;
        self.bytes = self.bytes.max(server.weigh(&self.subject.key())?);
        Ok(())
    }

    /// Permits in an interval: a little fewer than there are, since some return late by a slot or a segment.
    fn demand(&self) -> u64 {
        self.subject.rate - self.subject.rate / 32
    }

    fn now(&self) -> u64 {
        self.at(self.taken)
    }

    fn at(&self, taken: u64) -> u64 {
        self.since + taken * self.interval / self.demand()
    }
}
