//! The script that decides: `lua/admit.lua`, put together with the algorithms, and its call.

use std::sync::LazyLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, RedisResult, Script, cmd};

use super::keys::BucketKeys;
use crate::clock::Timestamp;
use crate::limit::{Algorithm, Charge, Decision, Mode, Outcome, Wait};
use crate::store::StoreError;
use crate::store::settings::KeySecret;

const SOURCE: &str =
    concat!(include_str!("../../../lua/token_bucket.lua"), "\n", include_str!("../../../lua/admit.lua"));

/// The digest under which Redis knows the script once it has run.
static DIGEST: LazyLock<String> = LazyLock::new(|| Script::new(SOURCE).get_hash().to_owned());

/// One call of the script.
#[derive(Debug)]
pub(super) struct Call<'c> {
    pub(super) charges: &'c [Charge],
    pub(super) keys: Vec<BucketKeys>,
    /// The moment to decide at; Redis's own if none is given.
    pub(super) now: Option<Timestamp>,
    /// Tells this call's log entries from all others: 8 bytes.
    pub(super) random: [u8; 8],
}

impl<'c> Call<'c> {
    pub(super) fn new(charges: &'c [Charge], secret: &KeySecret, now: Option<Timestamp>, random: u64) -> Self {
        let keys = charges.iter().map(|charge| BucketKeys::of(charge, secret)).collect();
        Self { charges, keys, now, random: random.to_be_bytes() }
    }

    /// Runs the script. A Redis that does not know it has run nothing, so that it may be sent once more, whole.
    pub(super) async fn run(&self, connection: &mut MultiplexedConnection) -> RedisResult<Vec<i64>> {
        match self.command("EVALSHA", &DIGEST).query_async(connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.command("EVAL", SOURCE).query_async(connection).await
            }
            answer => answer,
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut call = cmd(name);
        call.arg(script).arg(3 * self.keys.len());
        for keys in &self.keys {
            call.arg(&keys.hash).arg(&keys.value).arg(&keys.permits);
        }
        match self.now {
            Some(now) => call.arg(now.as_millis()),
            None => call.arg(""),
        };
        call.arg(&self.random);
        for charge in self.charges {
            let quota = &charge.limiter.quota;
            match quota.algorithm() {
                Algorithm::TokenBucket => call.arg("token_bucket"),
            };
            let kind = match charge.limiter.mode {
                Mode::Overall => 0,
                Mode::PerClient => 1,
            };
            call.arg(kind).arg(charge.permits).arg(quota.rate()).arg(quota.interval());
        }
        call
    }
}

/// Reads what the script returns: the time, then four numbers for each limit.
pub(super) fn outcome(answer: &[i64], charges: usize) -> Result<Outcome, StoreError> {
    let (now, decisions) = answer.split_first().ok_or(StoreError::Shape)?;
    if decisions.len() != 4 * charges {
        return Err(StoreError::Shape);
    }
    let decisions = decisions.chunks_exact(4).map(decision).collect::<Option<_>>().ok_or(StoreError::Shape)?;
    let now = u64::try_from(*now).map_err(|_| StoreError::Shape)?;
    Ok(Outcome { now: Timestamp::from_millis(now), decisions })
}

fn decision(numbers: &[i64]) -> Option<Decision> {
    let [granted, remaining, wait, reset] = *numbers else { return None };
    let wait = match (granted, wait) {
        (1, _) => Wait::Now,
        (_, -1) => Wait::Never,
        (_, wait) => Wait::Millis(u64::try_from(wait).ok()?),
    };
    let remaining = u32::try_from(remaining).ok()?;
    Some(Decision { granted: granted == 1, remaining, wait, reset: u64::try_from(reset).ok()? })
}
