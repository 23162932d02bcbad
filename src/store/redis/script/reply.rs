//! The answers to the requests of a call, read from what the script returns (`lua/admit.lua`).

use super::buckets::RequestedCharge;
use crate::clock::Timestamp;
use crate::limit::{Decision, Outcome, Wait};

/// What a call comes back with.
#[derive(Debug)]
pub(crate) enum Reply {
    Decided(Outcomes),
    /// Nothing was decided and nothing ran: this is Redis's time, and a calendar was sent boundaries of another time.
    BoundariesNeeded(Timestamp),
}

/// The answers to all requests of a call.
#[derive(Debug)]
pub(crate) struct Outcomes {
    now: Timestamp,
    runs: Vec<OutcomeRun>,
}

/// So many requests in a run that were answered alike, but for what was left after each.
#[derive(Debug)]
struct OutcomeRun {
    count: u32,
    granted: bool,
    /// Where the kind of request begins among all that is asked.
    first: usize,
    /// As they were after the last of the run.
    decisions: Vec<Decision>,
}

// === impl Reply ===

impl Reply {
    /// Reads the answer about these request_runs of requests: how many of each, and what one asks for. Nothing if it is none.
    pub(crate) fn read<'k>(
        mut bytes: &[u8],
        request_runs: impl Iterator<Item = (u32, &'k [RequestedCharge])>,
    ) -> Option<Self> {
        let now = u64::try_from(i64::from_le_bytes(*split(&mut bytes)?)).ok().map(Timestamp::from_millis)?;
        let mut request_runs = request_runs.peekable();
        if bytes.is_empty() && request_runs.peek().is_some() {
            return Some(Self::BoundariesNeeded(now));
        }
        let (mut runs, mut first) = (Vec::with_capacity(request_runs.size_hint().0), 0);
        for (mut left, asked) in request_runs {
            while left > 0 {
                let run = OutcomeRun::read(&mut bytes, first, asked)?;
                left = left.checked_sub(run.count).filter(|_| run.count > 0)?;
                runs.push(run);
            }
            first += asked.len();
        }
        bytes.is_empty().then_some(Self::Decided(Outcomes { now, runs }))
    }
}

// === impl Outcomes ===

impl Outcomes {
    /// What was decided of each request, in their order; with what all of them ask for.
    pub(crate) fn iter(&self, limits: &[RequestedCharge]) -> impl Iterator<Item = Outcome> {
        let now = self.now;
        let outcome =
            move |run: &OutcomeRun, after: u32| Outcome::with_granted(now, run.decisions(limits, after), run.granted);
        self.runs.iter().flat_map(move |run| (0..run.count).rev().map(move |after| outcome(run, after)))
    }
}

// === impl OutcomeRun ===

impl OutcomeRun {
    fn read(bytes: &mut &[u8], first: usize, asked: &[RequestedCharge]) -> Option<Self> {
        let count = u32::from_le_bytes(*split(bytes)?);
        let mut decisions = Vec::with_capacity(asked.len());
        for _ in asked {
            decisions.push(decision(bytes)?);
        }
        let granted = asked.iter().zip(&decisions).all(|(asked, decision)| asked.shadow || decision.granted);
        Some(Self { count, granted, first, decisions })
    }

    /// Those of the request that so many of the run follow.
    fn decisions(&self, limits: &[RequestedCharge], after: u32) -> Vec<Decision> {
        let mut decisions = self.decisions.clone();
        if self.granted && after > 0 {
            let granted = decisions.iter_mut().zip(&limits[self.first..]).filter(|(one, _)| one.granted);
            granted.for_each(|(decision, asked)| decision.remaining += after * asked.permits);
        }
        decisions
    }
}

/// Takes so many bytes from the front.
fn split<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (front, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(front)
}

fn decision(bytes: &mut &[u8]) -> Option<Decision> {
    let [verdict] = *split(bytes)?;
    let remaining = u32::from_le_bytes(*split(bytes)?);
    let [a, b, c, d, e, f] = *split(bytes)?;
    let reset = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let mut millis = || Some(i64::from_le_bytes(*split(bytes)?));
    let (wait, delay) = match verdict {
        0 => match millis()? {
            -1 => (Wait::Never, 0),
            wait => (Wait::Millis(u64::try_from(wait).ok()?), 0),
        },
        1 => (Wait::Now, 0),
        _ => (Wait::Now, u64::try_from(millis()?).ok()?),
    };
    Some(Decision { delay, ..Decision::new(remaining, wait, reset) })
}
