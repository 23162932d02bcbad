//! The script, built from the files in `lua/`, and how to run it.
//!
//! Since version 7, Redis runs it as a library with one function. The tables and inner functions of the library are
//! created once in the life of the server and not in every call, which saves a third of the cost of a small call.
//! Earlier versions run it as a script by its digest. A call is repeated only after an error that means that nothing
//! ran.
//!
//! The library and its function are named after the digest of the source, so that gateways of different versions can
//! use one Redis. Old libraries are not deleted, since another gateway may still call them; each takes about 70 kB.

pub(super) mod algorithms;
pub(super) mod batch;
pub(super) mod buckets;
pub(super) mod keys;
pub(super) mod receipt;
pub(super) mod refused_calls;
pub(super) mod reply;
pub(super) mod slots;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, RedisError, RedisResult, Script as Digest, Value, cmd, pipe};

use self::refused_calls::RefusedCalls;
use crate::{Redirection, StoreError};
use tidegate_limit::clock::Timestamp;

/// The script for decisions, refunds and the operations of the library.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    // Each file has its own scope: their order does not matter.
    let algorithms: String = algorithms::lua_files().map(|file| format!("do\n{file}end\n")).collect();
    let budgets = format!("do\n{BUDGETS}end\n");
    let in_flight = format!("do\n{IN_FLIGHT}end\n");
    let receipts = format!("do\n{RECEIPTS}end\n");
    let self_test = format!("do\n{SELF_TEST}end\n");
    let made_once =
        [BEGIN, SHARED, &algorithms, WAITING, ADMIT, OPERATIONS, &budgets, &in_flight, &receipts, &self_test]
            .join("\n");
    Script::new(&made_once, "return operations[ARGV[1]](ARGV)")
});

/// The table of the algorithms.
const BEGIN: &str = "local algorithms = {}";

/// Precedes all other files.
const SHARED: &str = include_str!("../../../lua/shared.lua");

/// Precedes the decisions.
const WAITING: &str = include_str!("../../../lua/waiting.lua");

const ADMIT: &str = include_str!("../../../lua/admit.lua");
const OPERATIONS: &str = include_str!("../../../lua/operations.lua");

/// These add operations.
const BUDGETS: &str = include_str!("../../../lua/budgets.lua");
const IN_FLIGHT: &str = include_str!("../../../lua/in_flight.lua");
const RECEIPTS: &str = include_str!("../../../lua/receipts.lua");
const SELF_TEST: &str = include_str!("../../../lua/self_test.lua");

/// The script, and the same code as a library.
#[derive(Debug)]
struct Script {
    source: String,
    digest: String,
    library: String,
    /// The name of the library and of its function.
    function: String,
}

/// Runs the script on a connection, in the fastest way that its Redis supports.
#[derive(Clone)]
pub(super) struct Invoker {
    redis: MultiplexedConnection,
    /// Whether this Redis supports functions for this user, as last known.
    has_functions: Arc<AtomicBool>,
    /// Records the calls that Redis refuses.
    refused_calls: Arc<RefusedCalls>,
    /// Whether every call is preceded by ASKING.
    is_asking: bool,
}

/// A way to run the script. Each is tried at most once, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invocation {
    /// As a function, which is the fastest.
    Function,
    /// As a function, after loading the library.
    NewFunction,
    /// By the digest of a script that has run before.
    Digest,
    /// By its source.
    Source,
}

// === impl Script ===

impl Script {
    /// Builds a script that runs `each_call` on top of `made_once`. In a library, the first call runs `made_once`,
    /// since Redis provides no functions while a library is loaded.
    fn new(made_once: &str, each_call: &str) -> Self {
        // The arguments of a function are not global, so they are local in both forms, which is also faster.
        let source = format!("local KEYS, ARGV = KEYS, ARGV\n{made_once}\n{each_call}");
        let body = format!(
            "local run\nlocal function make()\nlocal KEYS, ARGV\n{made_once}\nreturn function(keys, arguments)\n\
             KEYS, ARGV = keys, arguments\n{each_call}\nend\nend\n"
        );
        let function = format!("tidegate_{}", Digest::new(&body).get_hash());
        let call = "function(keys, arguments)\nrun = run or make()\nreturn run(keys, arguments)\nend";
        let library = format!("#!lua name={function}\n{body}redis.register_function('{function}', {call})\n");
        Self { digest: Digest::new(&source).get_hash().to_owned(), source, library, function }
    }
}

// === impl Invoker ===

impl Invoker {
    /// Calls a missing function first, to detect support for functions. A Redis that does not know FCALL repeats the
    /// arguments in its error, and the client library cannot parse binary arguments there.
    ///
    /// # Errors
    /// The connection does not work.
    pub(super) async fn new(mut redis: MultiplexedConnection, refused_calls: Arc<RefusedCalls>) -> RedisResult<Self> {
        let has_functions = match cmd("FCALL").arg("tidegate").arg(0).exec_async(&mut redis).await {
            Err(error) if error.code().is_none() => return Err(error),
            answer => answer.is_err_and(|error| is_unknown(&error)),
        };
        Ok(Self { redis, has_functions: Arc::new(AtomicBool::new(has_functions)), refused_calls, is_asking: false })
    }

    /// Returns an invoker that precedes every call with ASKING.
    pub(super) fn asking(&self) -> Self {
        Self { is_asking: true, ..self.clone() }
    }

    /// Runs the script with the keys and arguments that `add` adds to a command.
    ///
    /// # Errors
    /// The last error. The call is never repeated after it may have run.
    pub(super) async fn run(&mut self, add: impl Fn(&mut Cmd) + Sync) -> Result<Value, StoreError> {
        self.try_run(add).await.map_err(|error| self.refused_calls.record(&error))
    }

    /// Does the same as [`run`](Self::run), and does not record a refused call.
    ///
    /// # Errors
    /// See [`run`](Self::run).
    pub(super) async fn try_run(&mut self, add: impl Fn(&mut Cmd) + Sync) -> RedisResult<Value> {
        let has_functions = self.has_functions.load(Ordering::Relaxed);
        let mut how = if has_functions { Invocation::Function } else { Invocation::Digest };
        loop {
            match self.ask(how, &add).await {
                Ok(value) => return Ok(value),
                Err(error) => match self.fallback_after(how, &error) {
                    Some(next) => how = next,
                    None => return Err(error),
                },
            }
        }
    }

    /// Returns the time of Redis's clock.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(super) async fn time(&mut self) -> Result<Timestamp, StoreError> {
        let answer: RedisResult<(u64, u64)> = cmd("TIME").query_async(&mut self.redis).await;
        let (seconds, micros) = answer.map_err(|error| store_error(&error))?;
        Ok(Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000)))
    }

    async fn ask(&mut self, how: Invocation, add: &(impl Fn(&mut Cmd) + Sync)) -> RedisResult<Value> {
        let (command, script) = match how {
            Invocation::Function | Invocation::NewFunction => ("FCALL", &SCRIPT.function),
            Invocation::Digest => ("EVALSHA", &SCRIPT.digest),
            Invocation::Source => ("EVAL", &SCRIPT.source),
        };
        if how == Invocation::NewFunction {
            self.load().await?;
        }
        let mut command = cmd(command);
        add(command.arg(script));
        self.send(command).await
    }

    /// Sends a command, preceded by ASKING if the hash slot is migrating to this node.
    pub(super) async fn send(&mut self, command: Cmd) -> RedisResult<Value> {
        if self.is_asking {
            // Sent together, so that no other command comes in between.
            let mut both = pipe();
            both.cmd("ASKING").add_command(command);
            let answers = self.redis.send_packed_commands(&both, 0, 2).await?;
            return answers.into_iter().next_back().unwrap_or(Value::Nil).extract_error();
        }
        self.redis.send_packed_command(&command).await?.extract_error()
    }

    /// Ignores error replies: another gateway may have loaded the library at the same time, and the call will show if
    /// it exists.
    async fn load(&mut self) -> RedisResult<()> {
        match cmd("FUNCTION").arg("LOAD").arg(&SCRIPT.library).exec_async(&mut self.redis).await {
            Err(error) if error.code().is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the next way to run the script after an error that means that nothing ran.
    fn fallback_after(&self, how: Invocation, error: &RedisError) -> Option<Invocation> {
        match how {
            Invocation::Function if is_unknown(error) => Some(Invocation::NewFunction),
            Invocation::Function | Invocation::NewFunction if is_unknown(error) || is_forbidden(error) => {
                self.has_functions.store(false, Ordering::Relaxed);
                Some(Invocation::Digest)
            }
            // A Redis without memory rejects functions that may write, but runs a script until it writes. So requests
            // that are refused still get their decision.
            Invocation::Function | Invocation::NewFunction if error.code() == Some("OOM") => Some(Invocation::Digest),
            Invocation::Digest if error.code() == Some("NOSCRIPT") => Some(Invocation::Source),
            _ => None,
        }
    }
}

/// Returns `true` if nothing ran, since Redis does not know the function.
fn is_unknown(error: &RedisError) -> bool {
    error.detail() == Some("Function not found")
}

/// Returns `true` if nothing ran, since this user may not call functions any more. Errors within a function do not
/// count, since it has run.
fn is_forbidden(error: &RedisError) -> bool {
    error.code() == Some("NOPERM") && error.detail().is_some_and(|detail| detail.contains("'fcall'"))
}

/// Converts an error. Up to version 6, an error within a script is at the end of another error:
/// `ERR Error running script (call to f_…): @user_script:12: @user_script: 12: -READONLY You can't write …`.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    if let Some((address, hash_slot)) = error.redirect_node() {
        let is_ask = error.code() == Some("ASK");
        return StoreError::Redirected(Redirection { hash_slot, address: address.to_owned(), is_ask });
    }
    let Some(word) = error.code() else {
        let is_broken = error.is_io_error() || error.is_unrecoverable_error();
        return if is_broken { StoreError::Broken } else { StoreError::UnexpectedReply };
    };
    let detail = error.detail().and_then(|detail| detail.strip_prefix("Error running script"));
    let detail = detail.and_then(|rest| rest.split_once(": -"));
    match detail.map_or(word, |(_, error)| error.split(' ').next().unwrap_or(word)) {
        "NOTINITIALISED" => StoreError::NotInitialised,
        "MODEDIFFERS" => StoreError::ModeDiffers,
        "ERR" if error.detail().is_some_and(is_denied_in_script) => StoreError::ErrorReply("NOPERM".to_owned()),
        // A hash slot without a node does not concern other hash slots of the connection's node.
        "CLUSTERDOWN" if error.detail().is_some_and(|detail| detail.contains("not served")) => StoreError::Unreachable,
        word => StoreError::ErrorReply(word.to_owned()),
    }
}

/// Returns `true` if the user may not run a command of the script, or may not use a key. The second text is that of
/// versions up to 6.
fn is_denied_in_script(detail: &str) -> bool {
    detail.starts_with("ACL failure in script") || detail.contains("The user executing the script can't")
}
