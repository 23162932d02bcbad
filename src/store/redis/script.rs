//! The scripts, put together of the files in `lua/`.

use std::sync::OnceLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, FromRedisValue, RedisResult};

use crate::limit::Algorithm;

/// Decides requests.
pub(super) static ADMIT: Scripts = Scripts::new(include_str!("../../../lua/admit.lua"));

/// Undoes a list of charges.
pub(super) static GIVE_BACK: Scripts = Scripts::new(include_str!("../../../lua/give_back.lua"));

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
pub(super) struct Scripts {
    last: &'static str,
    of: [OnceLock<Script>; 64],
}

/// A script and the digest under which Redis knows it once it has run.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    digest: String,
}

impl Scripts {
    const fn new(last: &'static str) -> Self {
        Self { last, of: [const { OnceLock::new() }; 64] }
    }

    /// The script for these algorithms.
    pub(super) fn for_all(&'static self, algorithms: impl Iterator<Item = Algorithm>) -> &'static Script {
        let set = algorithms.fold(0, |set, algorithm| set | bit(algorithm));
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
