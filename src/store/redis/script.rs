//! The scripts that decide, put together of the files in `lua/`, and their calls.

use std::sync::LazyLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, FromRedisValue, RedisResult, cmd};

use super::keys::keys;
use crate::clock::Timestamp;
use crate::limit::foreign::Sharing;
use crate::limit::{Algorithm, Charge, Decision, Granted, Mode, Outcome, Wait};
use crate::store::StoreError;
use crate::store::settings::KeySecret;

/// The algorithms, which every script is put together with.
macro_rules! with_algorithms {
    ($script:literal) => {
        concat!(
            include_str!("../../../lua/token_bucket.lua"),
            "\n",
            include_str!("../../../lua/gcra.lua"),
            "\n",
            include_str!("../../../lua/leaky_bucket.lua"),
            "\n",
            include_str!("../../../lua/foreign.lua"),
            "\n",
            include_str!("../../../lua/counters.lua"),
            "\n",
            include_str!("../../../lua/sliding_window.lua"),
            "\n",
            include_str!("../../../lua/fixed_window.lua"),
            "\n",
            include_str!("../../../lua/algorithms.lua"),
            "\n",
            include_str!(concat!("../../../lua/", $script)),
        )
    };
}
pub(super) use with_algorithms;

/// Decides a list of charges.
pub(super) static ADMIT: LazyLock<Script> = LazyLock::new(|| Script::new(with_algorithms!("admit.lua")));

/// Undoes a list of charges.
pub(super) static GIVE_BACK: LazyLock<Script> = LazyLock::new(|| Script::new(with_algorithms!("give_back.lua")));

/// A script and the digest under which Redis knows it once it has run.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    digest: String,
}

/// What a call that decides comes back with.
#[derive(Debug)]
pub(super) enum Answer {
    Decided(Outcome),
    /// Nothing was decided and nothing ran: this is the present, and a calendar was sent boundaries of another time.
    BoundariesNeeded(Timestamp),
}

/// One call of a script about a list of charges.
#[derive(Debug)]
pub(super) struct Call<'c> {
    script: &'static Script,
    charges: Vec<&'c Charge>,
    keys: Vec<Vec<String>>,
    /// The moment to decide at; Redis's own if none is given.
    now: Option<Timestamp>,
    /// The moment around which limits by the calendar are sent their boundaries.
    near: Timestamp,
    /// What the script takes beside the charges.
    more: Vec<u8>,
}

impl Script {
    pub(super) fn new(source: &'static str) -> Self {
        Self { source, digest: deadpool_redis::redis::Script::new(source).get_hash().to_owned() }
    }

    /// Runs the script. A Redis that does not know it has run nothing, so that it may be sent once more, whole.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        command: impl Fn(&str, &str) -> Cmd,
    ) -> RedisResult<T> {
        match command("EVALSHA", &self.digest).query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                command("EVAL", self.source).query_async(connection).await
            }
            answer => answer,
        }
    }
}

impl<'c> Call<'c> {
    /// A decision, probably somewhere `near`; `random` tells its log entries from all others.
    pub(super) fn admit(
        charges: &'c [Charge],
        secret: &KeySecret,
        now: Option<Timestamp>,
        near: Timestamp,
        random: u64,
    ) -> Self {
        let more = random.to_be_bytes().to_vec();
        Self { near, ..Self::new(&ADMIT, charges.iter().collect(), secret, now, more) }
    }

    /// The undoing of a decision.
    pub(super) fn give_back(granted: &'c [Granted], secret: &KeySecret, now: Option<Timestamp>) -> Self {
        let times: Vec<String> = granted.iter().map(|one| one.at.as_millis().to_string()).collect();
        let charges = granted.iter().map(|one| &one.charge).collect();
        // Slots lie after the decision, windows do not.
        let near = granted.iter().map(|one| one.at).min().unwrap_or_default();
        Self { near, ..Self::new(&GIVE_BACK, charges, secret, now, times.join(" ").into_bytes()) }
    }

    fn new(
        script: &'static Script,
        charges: Vec<&'c Charge>,
        secret: &KeySecret,
        now: Option<Timestamp>,
        more: Vec<u8>,
    ) -> Self {
        let keys = charges.iter().map(|charge| keys(charge, secret)).collect();
        Self { script, charges, keys, now, near: now.unwrap_or_default(), more }
    }

    pub(super) async fn run(&self, connection: &mut MultiplexedConnection) -> RedisResult<Vec<i64>> {
        self.script.run(connection, |name, script| self.command(name, script)).await
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut call = cmd(name);
        call.arg(script).arg(self.keys.iter().map(Vec::len).sum::<usize>());
        for key in self.keys.iter().flatten() {
            call.arg(key);
        }
        match self.now {
            Some(now) => call.arg(now.as_millis()),
            None => call.arg(""),
        };
        call.arg(&self.more);
        for charge in &self.charges {
            arguments(charge, self.near, &mut call);
        }
        call
    }
}

/// What the scripts take of a charge: whether it is a shadow, the algorithm's name, and what its file says.
fn arguments(charge: &Charge, near: Timestamp, call: &mut Cmd) {
    let quota = &charge.limiter.quota;
    if charge.shadow {
        call.arg("shadow");
    }
    call.arg(quota.algorithm().name());
    match quota.algorithm() {
        Algorithm::TokenBucket => {
            call.arg(kind(charge.limiter.mode)).arg(charge.permits).arg(quota.rate()).arg(quota.interval());
        }
        Algorithm::Gcra { burst } => {
            call.arg(charge.permits).arg(quota.rate()).arg(quota.interval()).arg(burst);
        }
        Algorithm::LeakyBucket(queue) => {
            call.arg(charge.permits).arg(quota.rate()).arg(quota.interval()).arg(queue.length).arg(queue.max_wait);
        }
        Algorithm::SlidingWindow { segments } => {
            call.arg(charge.permits).arg(quota.rate()).arg(quota.interval()).arg(segments);
        }
        Algorithm::FixedWindow(calendar) => {
            call.arg(charge.permits).arg(quota.rate());
            for boundary in calendar.span(near).0 {
                call.arg(boundary.as_millis());
            }
        }
        Algorithm::Foreign(sharing) => foreign(sharing, charge, call),
    }
}

fn foreign(sharing: Sharing, charge: &Charge, call: &mut Cmd) {
    let quota = &charge.limiter.quota;
    match sharing {
        Sharing::Configure => {
            call.arg("configure").arg(kind(charge.limiter.mode)).arg(charge.permits);
            call.arg(quota.rate()).arg(quota.interval());
        }
        Sharing::Adopt(mode) => {
            let kind = mode.map_or("", kind);
            call.arg("adopt").arg(kind).arg(charge.permits).arg("").arg("");
        }
        Sharing::Library => {
            call.arg("library").arg("").arg(charge.permits).arg("").arg("");
        }
    }
}

/// Redisson's number of a mode.
pub(super) fn kind(mode: Mode) -> &'static str {
    match mode {
        Mode::Overall => "0",
        Mode::PerClient => "1",
    }
}

/// Reads what the script returns: an outcome, or the time alone.
pub(super) fn answer(numbers: &[i64], charges: &[Charge]) -> Result<Answer, StoreError> {
    match numbers {
        [now] if !charges.is_empty() => Ok(Answer::BoundariesNeeded(moment(*now)?)),
        numbers => outcome(numbers, charges).map(Answer::Decided),
    }
}

/// Reads the time, then five numbers for each limit.
fn outcome(answer: &[i64], charges: &[Charge]) -> Result<Outcome, StoreError> {
    let (now, decisions) = answer.split_first().ok_or(StoreError::Shape)?;
    if decisions.len() != 5 * charges.len() {
        return Err(StoreError::Shape);
    }
    let decisions = decisions.chunks_exact(5).map(decision).collect::<Option<_>>().ok_or(StoreError::Shape)?;
    Ok(Outcome::new(moment(*now)?, decisions, charges))
}

fn moment(millis: i64) -> Result<Timestamp, StoreError> {
    u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| StoreError::Shape)
}

fn decision(numbers: &[i64]) -> Option<Decision> {
    let [granted, remaining, wait, reset, delay] = *numbers else { return None };
    let wait = match (granted, wait) {
        (1, _) => Wait::Now,
        (_, -1) => Wait::Never,
        (_, wait) => Wait::Millis(u64::try_from(wait).ok()?),
    };
    let remaining = u32::try_from(remaining).ok()?;
    let (reset, delay) = (u64::try_from(reset).ok()?, u64::try_from(delay).ok()?);
    Some(Decision { granted: granted == 1, remaining, wait, reset, delay })
}
