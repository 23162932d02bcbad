//! Disturbs gateways and Redis during the load. None of the disturbances may free a permit.

use std::time::Duration;

use deadpool_redis::redis::{Client, cmd};
use tokio::time::{Instant, sleep_until};

use super::RunError;
use super::fleet::Fleet;

/// A disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// Removes the scripts from Redis. The gateways notice by an error reply.
    FlushScripts,
    /// Restarts a gateway. The new process starts while the old one drains.
    Restart,
    /// Restarts a gateway with the other version of the rules. The other gateways keep theirs.
    SwitchRules,
    /// Kills all connections to Redis, with calls in flight.
    KillConnections,
}

const DISTURBANCES: [Disturbance; 4] =
    [Disturbance::FlushScripts, Disturbance::SwitchRules, Disturbance::KillConnections, Disturbance::Restart];

/// Runs one disturbance after each pause, until `end`. Returns the number of disturbances.
pub async fn disturb(fleet: &mut Fleet, redis: &str, pause: Duration, end: Instant) -> Result<usize, RunError> {
    for number in 0.. {
        let next = Instant::now() + pause;
        if next >= end {
            return Ok(number);
        }
        sleep_until(next).await;
        // Each round of disturbances selects the next gateway for new rules, and another one for a restart.
        let (round, gateways) = (number / DISTURBANCES.len(), fleet.len());
        match DISTURBANCES[number % DISTURBANCES.len()] {
            Disturbance::FlushScripts => send_command(redis, &["SCRIPT", "FLUSH"])?,
            Disturbance::SwitchRules => fleet.restart(round % gateways, true).await?,
            Disturbance::KillConnections => {
                send_command(redis, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
            }
            Disturbance::Restart => fleet.restart((round + gateways / 2) % gateways, false).await?,
        }
    }
    Ok(0)
}

fn send_command(redis: &str, arguments: &[&str]) -> Result<(), RunError> {
    let mut connection = Client::open(redis)?.get_connection_with_timeout(Duration::from_secs(1))?;
    let (name, rest) = arguments.split_first().ok_or("no command")?;
    Ok(cmd(name).arg(rest).exec(&mut connection)?)
}
