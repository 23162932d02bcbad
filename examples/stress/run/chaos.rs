//! What happens to gateways and Redis while they decide. Nothing of it may free a permit.

use std::time::Duration;

use deadpool_redis::redis::{Client, cmd};
use tokio::time::{Instant, sleep_until};

use super::Failed;
use super::fleet::Fleet;

/// Things that happen, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Redis forgets the scripts, and gateways learn it from an answer.
    FlushScripts,
    /// A gateway starts anew while the old process drains.
    Restart,
    /// The same, with the other rules; the other gateways keep theirs.
    SwitchRules,
    /// All connections to Redis break, with calls under way.
    KillConnections,
}

const EVENTS: [Event; 4] = [Event::FlushScripts, Event::SwitchRules, Event::KillConnections, Event::Restart];

/// Lets one thing happen after each pause, until the time is over; returns how many did.
pub async fn rage(fleet: &mut Fleet, redis: &str, pause: Duration, end: Instant) -> Result<usize, Failed> {
    for turn in 0.. {
        let next = Instant::now() + pause;
        if next >= end {
            return Ok(turn);
        }
        sleep_until(next).await;
        // Each round of events strikes the next gateway, and after all of them the next but one.
        let (round, gateways) = (turn / EVENTS.len(), fleet.len());
        match EVENTS[turn % EVENTS.len()] {
            Event::FlushScripts => tell(redis, &["SCRIPT", "FLUSH"])?,
            Event::SwitchRules => fleet.restart(round % gateways, true).await?,
            Event::KillConnections => tell(redis, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?,
            Event::Restart => fleet.restart((round + gateways / 2) % gateways, false).await?,
        }
    }
    Ok(0)
}

fn tell(redis: &str, words: &[&str]) -> Result<(), Failed> {
    let mut connection = Client::open(redis)?.get_connection_with_timeout(Duration::from_secs(1))?;
    let (name, arguments) = words.split_first().ok_or("no command")?;
    Ok(cmd(name).arg(arguments).exec(&mut connection)?)
}
