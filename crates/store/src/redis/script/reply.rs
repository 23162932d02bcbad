//! Parses the reply of the script to a batch (`lua/admit.lua`).

use super::buckets::RequestedCharge;
use tidegate_limit::Wait;
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Decision, Outcome};

/// The reply to a call.
#[derive(Debug)]
pub(crate) enum Reply {
    Decided(Outcomes),
    /// Nothing ran, since a calendar limit needs the boundaries around this time of Redis's clock.
    BoundariesNeeded(Timestamp),
}

/// The outcomes of all requests of a call.
#[derive(Debug)]
pub(crate) struct Outcomes {
    now: Timestamp,
    runs: Vec<OutcomeRun>,
}

/// Consecutive requests with equal decisions, except for the remaining permits.
#[derive(Debug)]
struct OutcomeRun {
    count: u32,
    granted: bool,
    /// The position of the first charge among the charges of all runs.
    first: usize,
    /// The decisions of the last request of the run.
    decisions: Vec<Decision>,
}

// === impl Reply ===

impl Reply {
    /// Parses the reply about these runs of requests. Returns `None` if it is malformed.
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
        for (mut remaining, charges) in request_runs {
            while remaining > 0 {
                let run = OutcomeRun::read(&mut bytes, first, charges)?;
                remaining = remaining.checked_sub(run.count).filter(|_| run.count > 0)?;
                runs.push(run);
            }
            first += charges.len();
        }
        bytes.is_empty().then_some(Self::Decided(Outcomes { now, runs }))
    }
}

// === impl Outcomes ===

impl Outcomes {
    /// Returns the outcome of each request, in order. `limits` are the charges of all runs.
    pub(crate) fn iter(&self, limits: &[RequestedCharge]) -> impl Iterator<Item = Outcome> {
        let now = self.now;
        let outcome =
            move |run: &OutcomeRun, after: u32| Outcome::with_granted(now, run.decisions(limits, after), run.granted);
        self.runs.iter().flat_map(move |run| (0..run.count).rev().map(move |after| outcome(run, after)))
    }
}

// === impl OutcomeRun ===

impl OutcomeRun {
    fn read(bytes: &mut &[u8], first: usize, charges: &[RequestedCharge]) -> Option<Self> {
        let count = u32::from_le_bytes(*split(bytes)?);
        let mut decisions = Vec::with_capacity(charges.len());
        for _ in charges {
            decisions.push(decision(bytes)?);
        }
        let granted = charges.iter().zip(&decisions).all(|(charges, decision)| charges.shadow || decision.granted);
        Some(Self { count, granted, first, decisions })
    }

    /// Returns the decisions of the request that is followed by `after` requests of the run.
    fn decisions(&self, limits: &[RequestedCharge], after: u32) -> Vec<Decision> {
        let mut decisions = self.decisions.clone();
        if self.granted && after > 0 {
            let granted = decisions.iter_mut().zip(&limits[self.first..]).filter(|(decision, _)| decision.granted);
            granted.for_each(|(decision, charges)| decision.remaining += after * charges.taken());
        }
        decisions
    }
}

/// Takes `N` bytes from the front.
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
