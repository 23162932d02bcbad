//! Sends a fixed series of requests to an embedded store and records the decisions.

use std::error::Error;
use std::sync::Arc;

use tidegate::redisson::Mode;
use tidegate::{Clock, ManualClock, Timestamp};
use tidegate_limit::Quota;
use tidegate_rules::charge::{Charge, Decision, Limiter};
use tidegate_store::Memory;

/// The length of the timeline in milliseconds.
pub const LENGTH: u32 = 240_000;

/// The interval in milliseconds at which the remaining permits are read.
const TICK: usize = 500;

/// The time of the start: a whole minute, of a realistic size.
const START: u64 = 1_700_000_040_000;

/// A request and the decision about it.
pub struct Request {
    pub at: u32,
    pub decision: Decision,
}

/// The requests and the remaining permits. Times are in milliseconds since the start.
#[derive(Default)]
pub struct Timeline {
    pub requests: Vec<Request>,
    /// The changes of the remaining permits: the time and the number.
    pub remaining: Vec<(u32, u32)>,
}

/// Returns the times of the requests: two bursts with a short pause between them, a stream at the rate, and a last
/// burst.
fn arrivals() -> Vec<u32> {
    let first = (42_000..58_000).step_by(2_000);
    let second = (63_000..75_000).step_by(2_000);
    let stream = (95_000..=165_000).step_by(10_000);
    let last = (186_000..198_000).step_by(2_000);
    first.chain(second).chain(stream).chain(last).collect()
}

/// Takes one permit at each arrival, and reads the remaining permits at every tick.
pub fn run(quota: Quota) -> Result<Timeline, Box<dyn Error>> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(START)));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>, None);
    let limiter = Arc::new(Limiter::new("picture".into(), Mode::Overall, quota));
    let take = |permits, at: u32| -> Result<Decision, Box<dyn Error>> {
        clock.set(Timestamp::from_millis(START + u64::from(at)));
        let charge = Charge::new(Arc::clone(&limiter), None, permits);
        Ok(*memory.take(&[charge])?.decisions.first().ok_or("no decision")?)
    };
    let (arrivals, mut timeline) = (arrivals(), Timeline::default());
    for at in (0..LENGTH).step_by(TICK) {
        timeline.record(at, take(0, at)?.remaining);
        if arrivals.contains(&at) {
            let decision = take(1, at)?;
            timeline.record(at, decision.remaining);
            timeline.requests.push(Request { at, decision });
        }
    }
    Ok(timeline)
}

impl Timeline {
    fn record(&mut self, at: u32, remaining: u32) {
        if self.remaining.last().is_none_or(|(_, before)| *before != remaining) {
            self.remaining.push((at, remaining));
        }
    }

    /// Returns the number of granted requests.
    pub fn granted(&self) -> usize {
        self.requests.iter().filter(|request| request.decision.granted).count()
    }
}
