//! The scripts, put together of the files in `lua/`.

use std::sync::OnceLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, FromRedisValue, RedisResult};

use super::library::Library;
use crate::limit::Algorithm;

/// Decides requests.
pub(super) static ADMIT: Scripts = Scripts::new(&DECIDING, include_str!("../../../lua/admit.lua"));

/// Undoes a list of charges.
pub(super) static GIVE_BACK: Scripts = Scripts::new(&[], include_str!("../../../lua/give_back.lua"));

/// The files of the algorithms, each behind those that it stands on, and who needs it.
const PARTS: [Part; 7] = [
    (include_str!("../../../lua/token_bucket.lua"), TOKEN_BUCKET),
    (include_str!("../../../lua/gcra.lua"), GCRA | LEAKY_BUCKET),
    (include_str!("../../../lua/leaky_bucket.lua"), LEAKY_BUCKET),
    (include_str!("../../../lua/redisson.lua"), FOREIGN),
    (include_str!("../../../lua/counters.lua"), SLIDING_WINDOW | FIXED_WINDOW),
    (include_str!("../../../lua/sliding_window.lua"), SLIDING_WINDOW),
    (include_str!("../../../lua/fixed_window.lua"), FIXED_WINDOW),
];

/// What `admit` stands on besides.
const DECIDING: [Part; 2] =
    [(include_str!("../../../lua/row.lua"), TOKEN_BUCKET), (include_str!("../../../lua/decide.lua"), u8::MAX)];

/// A file and who needs it.
type Part = (&'static str, u8);

/// What everybody needs.
const TEXT: &str = include_str!("../../../lua/text.lua");
const ALGORITHMS: &str = include_str!("../../../lua/algorithms.lua");

/// Algorithms that are left out of a script are known to it all the same, as nothing.
const NAMES: &str = "local token_bucket, gcra, leaky_bucket, redisson, sliding_window, fixed_window\n";

const TOKEN_BUCKET: u8 = 1;
const GCRA: u8 = 2;
const LEAKY_BUCKET: u8 = 4;
pub(super) const FOREIGN: u8 = 8;
const SLIDING_WINDOW: u8 = 16;
const FIXED_WINDOW: u8 = 32;

/// One script for each set of algorithms. Redis makes all functions of a script anew in every call, which costs more than
/// most decisions do; so a call brings those of its own algorithms only.
pub(super) struct Scripts {
    own: &'static [Part],
    last: &'static str,
    of: [OnceLock<Script>; 64],
}

/// A script; and the same as a library.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    digest: String,
    library: Library,
}

impl Scripts {
    const fn new(own: &'static [Part], last: &'static str) -> Self {
        Self { own, last, of: [const { OnceLock::new() }; 64] }
    }

    /// The script for these algorithms.
    pub(super) fn for_all(&'static self, algorithms: impl Iterator<Item = Algorithm>) -> &'static Script {
        let set = algorithms.fold(0, |set, algorithm| set | bit(algorithm));
        self.of[usize::from(set)].get_or_init(|| Script::of(set, self.own, self.last))
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
        Self::of(set, &[], last)
    }

    fn of(set: u8, own: &[Part], last: &str) -> Self {
        let needed = |parts: &[Part]| parts.iter().filter(|part| part.1 & set != 0).map(|part| part.0).collect();
        let parts: [Vec<&str>; 4] = [vec![NAMES, TEXT], needed(&PARTS), vec![ALGORITHMS], needed(own)];
        let before_last = parts.concat().join("\n");
        // What a function is given is not global; so it is local everywhere, which is faster besides.
        let source = format!("local KEYS, ARGV = KEYS, ARGV\n{before_last}\n{last}");
        let digest = deadpool_redis::redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest, library: Library::new(&before_last, last) }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Under which a Redis knows it once it has run.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// The same as a function that Redis keeps.
    pub(super) fn library(&self) -> &Library {
        &self.library
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
