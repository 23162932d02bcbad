//! The scripts that decide, put together of the files in `lua/`, and their calls.

use std::sync::OnceLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, FromRedisValue, RedisResult, cmd};

use super::keys::keys;
use crate::clock::Timestamp;
use crate::limit::foreign::Sharing;
use crate::limit::{Algorithm, Charge, Decision, Granted, Mode, Outcome, Wait};
use crate::store::StoreError;
use crate::store::settings::KeySecret;

/// Decides a list of charges.
static ADMIT: Scripts = Scripts::new(include_str!("../../../lua/admit.lua"));

/// Undoes a list of charges.
static GIVE_BACK: Scripts = Scripts::new(include_str!("../../../lua/give_back.lua"));

/// The files of the algorithms, each behind those that it stands on, and who needs it.
const PARTS: [(&str, u8); 7] = [
    (include_str!("../../../lua/token_bucket.lua"), TOKEN_BUCKET | FOREIGN),
    (include_str!("../../../lua/gcra.lua"), GCRA | LEAKY_BUCKET),
    (include_str!("../../../lua/leaky_bucket.lua"), LEAKY_BUCKET),
    (include_str!("../../../lua/foreign.lua"), FOREIGN),
    (include_str!("../../../lua/counters.lua"), SLIDING_WINDOW | FIXED_WINDOW),
    (include_str!("../../../lua/sliding_window.lua"), SLIDING_WINDOW),
    (include_str!("../../../lua/fixed_window.lua"), FIXED_WINDOW),
];

const ALGORITHMS: &str = include_str!("../../../lua/algorithms.lua");

/// Algorithms that are left out of a script are known to it all the same, as nothing.
const NAMES: &str = "local token_bucket, gcra, leaky_bucket, foreign, sliding_window, fixed_window\n";

const TOKEN_BUCKET: u8 = 1;
const GCRA: u8 = 2;
const LEAKY_BUCKET: u8 = 4;
pub(super) const FOREIGN: u8 = 8;
const SLIDING_WINDOW: u8 = 16;
const FIXED_WINDOW: u8 = 32;

/// One script for each set of algorithms. Redis makes all functions of a script anew in every call, which costs more than
/// most decisions do; so a call brings those of its own algorithms only.
struct Scripts {
    last: &'static str,
    of: [OnceLock<Script>; 64],
}

/// A script and the digest under which Redis knows it once it has run.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
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

// === impl Scripts ===

impl Scripts {
    const fn new(last: &'static str) -> Self {
        Self { last, of: [const { OnceLock::new() }; 64] }
    }

    /// The script for these charges.
    fn for_all(&'static self, charges: &[&Charge]) -> &'static Script {
        let set = charges.iter().fold(0, |set, charge| set | bit(charge.limiter.quota.algorithm()));
        self.of[usize::from(set)].get_or_init(|| Script::new(set, self.last))
    }
}

fn bit(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::TokenBucket => TOKEN_BUCKET,
        Algorithm::Gcra { .. } => GCRA,
        Algorithm::LeakyBucket(_) => LEAKY_BUCKET,
        Algorithm::Foreign(_) => FOREIGN,
        Algorithm::SlidingWindow { .. } => SLIDING_WINDOW,
        Algorithm::FixedWindow(_) => FIXED_WINDOW,
    }
}

// === impl Script ===

impl Script {
    /// A script that ends with `last` and knows a set of algorithms.
    pub(super) fn new(set: u8, last: &str) -> Self {
        let parts = PARTS.iter().filter(|(_, needed_by)| needed_by & set != 0).map(|(part, _)| *part);
        let source: Vec<&str> = [NAMES].into_iter().chain(parts).chain([ALGORITHMS, last]).collect();
        let source = source.join("\n");
        let digest = deadpool_redis::redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest }
    }

    /// Runs the script. A Redis that does not know it has run nothing, so that it may be sent once more, whole.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        command: impl Fn(&str, &str) -> Cmd,
    ) -> RedisResult<T> {
        match command("EVALSHA", &self.digest).query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                command("EVAL", &self.source).query_async(connection).await
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
        scripts: &'static Scripts,
        charges: Vec<&'c Charge>,
        secret: &KeySecret,
        now: Option<Timestamp>,
        more: Vec<u8>,
    ) -> Self {
        let keys = charges.iter().map(|charge| keys(charge, secret)).collect();
        let script = scripts.for_all(&charges);
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
