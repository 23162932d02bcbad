//! One series of requests, and what an embedded store says to each of them.

use std::error::Error;
use std::sync::Arc;

use tidegate::clock::{Clock, ManualClock, Timestamp};
use tidegate::limit::{Charge, Decision, Limiter, Mode, Quota};
use tidegate::store::Memory;

/// How long it is watched, in milliseconds.
pub const LENGTH: u32 = 240_000;

/// How often it is asked what is left.
const TICK: usize = 500;

/// When the series begins: at a whole minute, and as late as Redis's TIME is today.
const START: u64 = 1_700_000_040_000;

/// A request and what was said to it.
pub struct Request {
    pub at: u32,
    pub decision: Decision,
}

/// What happened, times in milliseconds since the start.
#[derive(Default)]
pub struct Life {
    pub requests: Vec<Request>,
    /// What was left, and since when.
    pub left: Vec<(u32, u32)>,
}

/// A burst, another one after a short pause, a stream at the rate itself, and a last burst.
fn arrivals() -> Vec<u32> {
    let first = (42_000..58_000).step_by(2_000);
    let second = (63_000..75_000).step_by(2_000);
    let stream = (95_000..=165_000).step_by(10_000);
    let last = (186_000..198_000).step_by(2_000);
    first.chain(second).chain(stream).chain(last).collect()
}

/// Asks a store on a clock of its own for one permit at each arrival, and all the time what is left.
pub fn live(quota: Quota) -> Result<Life, Box<dyn Error>> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
    let limiter = Arc::new(Limiter::new("picture".into(), Mode::Overall, quota));
    let ask = |permits, at: u32| -> Result<Decision, Box<dyn Error>> {
        clock.set(Timestamp::from_millis(START + u64::from(at)));
        let charge = Charge { limiter: Arc::clone(&limiter), client: None, permits, shadow: false };
        Ok(*memory.take(&[charge])?.decisions.first().ok_or("no decision")?)
    };
    let (arrivals, mut life) = (arrivals(), Life::default());
    for at in (0..LENGTH).step_by(TICK) {
        life.note(at, ask(0, at)?.remaining);
        if arrivals.contains(&at) {
            let decision = ask(1, at)?;
            life.note(at, decision.remaining);
            life.requests.push(Request { at, decision });
        }
    }
    Ok(life)
}

impl Life {
    fn note(&mut self, at: u32, left: u32) {
        if self.left.last().is_none_or(|(_, before)| *before != left) {
            self.left.push((at, left));
        }
    }

    /// How many were granted.
    pub fn granted(&self) -> usize {
        self.requests.iter().filter(|request| request.decision.granted).count()
    }
}
