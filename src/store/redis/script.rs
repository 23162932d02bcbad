//! The scripts that decide, put together of the files in `lua/`, and their calls.

use std::sync::LazyLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, FromRedisValue, RedisResult, cmd};

use super::keys::keys;
use crate::clock::Timestamp;
use crate::limit::foreign::Sharing;
use crate::limit::{Algorithm, Charge, Decision, Mode, Outcome, Wait};
use crate::store::StoreError;
use crate::store::settings::KeySecret;

/// The algorithms, which every script is put together with.
macro_rules! with_algorithms {
    ($script:literal) => {
        concat!(
            include_str!("../../../lua/token_bucket.lua"),
            "\n",
            include_str!("../../../lua/foreign.lua"),
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

/// One call of a script about a list of charges.
#[derive(Debug)]
pub(super) struct Call<'c> {
    script: &'static Script,
    charges: &'c [Charge],
    keys: Vec<Vec<String>>,
    /// The moment to decide at; Redis's own if none is given.
    now: Option<Timestamp>,
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
    /// A decision; `random` tells its log entries from all others.
    pub(super) fn admit(charges: &'c [Charge], secret: &KeySecret, now: Option<Timestamp>, random: u64) -> Self {
        Self::new(&ADMIT, charges, secret, now, random.to_be_bytes().to_vec())
    }

    /// The undoing of a decision.
    pub(super) fn give_back(
        charges: &'c [Charge],
        secret: &KeySecret,
        now: Option<Timestamp>,
        granted_at: Timestamp,
    ) -> Self {
        Self::new(&GIVE_BACK, charges, secret, now, granted_at.as_millis().to_string().into_bytes())
    }

    fn new(
        script: &'static Script,
        charges: &'c [Charge],
        secret: &KeySecret,
        now: Option<Timestamp>,
        more: Vec<u8>,
    ) -> Self {
        let keys = charges.iter().map(|charge| keys(charge, secret)).collect();
        Self { script, charges, keys, now, more }
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
        for charge in self.charges {
            arguments(charge, &mut call);
        }
        call
    }
}

/// What the scripts take of a charge: the algorithm's name, and what its file says.
fn arguments(charge: &Charge, call: &mut Cmd) {
    let quota = &charge.limiter.quota;
    call.arg(quota.algorithm().name());
    match quota.algorithm() {
        Algorithm::TokenBucket => {
            call.arg(kind(charge.limiter.mode)).arg(charge.permits).arg(quota.rate()).arg(quota.interval());
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

/// Reads what the script returns: the time, then five numbers for each limit.
pub(super) fn outcome(answer: &[i64], charges: usize) -> Result<Outcome, StoreError> {
    let (now, decisions) = answer.split_first().ok_or(StoreError::Shape)?;
    if decisions.len() != 5 * charges {
        return Err(StoreError::Shape);
    }
    let decisions = decisions.chunks_exact(5).map(decision).collect::<Option<_>>().ok_or(StoreError::Shape)?;
    let now = u64::try_from(*now).map_err(|_| StoreError::Shape)?;
    Ok(Outcome { now: Timestamp::from_millis(now), decisions })
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
