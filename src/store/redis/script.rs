//! The script, put together of the files in `lua/`.

use std::sync::LazyLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, FromRedisValue, RedisResult};

use super::library::Library;

/// Decides requests, undoes what was decided, and has the operations of the library. There is one for all calls.
pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let algorithms: String = ALGORITHMS.iter().map(|file| format!("do\n{file}end\n")).collect();
    let made_once = [BEGIN, SHARED, &algorithms, ADMIT, GIVE_BACK, OPERATE].join("\n");
    Script::new(&made_once, "return operations[ARGV[1]](ARGV)")
});

/// What algorithms put themselves into.
const BEGIN: &str = "local algorithms = {}";

/// Stands before all others.
const SHARED: &str = include_str!("../../../lua/shared.lua");

/// One file for each algorithm, in a scope of its own: their order does not matter.
const ALGORITHMS: [&str; 6] = [
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/gcra.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/redisson.lua"),
];

const ADMIT: &str = include_str!("../../../lua/admit.lua");
const GIVE_BACK: &str = include_str!("../../../lua/give_back.lua");
const OPERATE: &str = include_str!("../../../lua/operate.lua");

/// A script; and the same as a library.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    digest: String,
    library: Library,
}

impl Script {
    /// A script that runs `each_call`, which stands on what is `made_once`.
    fn new(made_once: &str, each_call: &str) -> Self {
        // What a function is given is not global; so it is local everywhere, which is faster besides.
        let source = format!("local KEYS, ARGV = KEYS, ARGV\n{made_once}\n{each_call}");
        let digest = deadpool_redis::redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest, library: Library::new(made_once, each_call) }
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
