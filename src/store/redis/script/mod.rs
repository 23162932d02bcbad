//! The script, put together of the files in `lua/`, and how a Redis is asked to run it.
//!
//! Where Redis keeps functions (since version 7) it is a library with one function, whose own functions and tables are made once in the life of
//! the server, and not anew in every call, which is a third of what a small call costs. Elsewhere it is a script that Redis knows by
//! its digest. Redis is asked again only where its answer says that nothing ran.
//!
//! A library is named after the digest of its source, and so is its function: gateways of different versions side by side
//! each have their own. Those of old versions are left where they are: nobody can tell whether another gateway still calls
//! them, and they are some 70 kB each.

pub(super) mod batch;
pub(super) mod buckets;
pub(super) mod keys;
pub(super) mod reply;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, RedisError, RedisResult, Script as Digest, Value, cmd, pipe};

use crate::clock::Timestamp;
use crate::store::StoreError;

/// Decides requests, undoes what was decided, and has the operations of the library. There is one for all calls.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let algorithms: String = ALGORITHMS.iter().map(|file| format!("do\n{file}end\n")).collect();
    let made_once = [BEGIN, SHARED, &algorithms, ADMIT, OPERATIONS].join("\n");
    Script::new(&made_once, "return operations[ARGV[1]](ARGV)")
});

/// What algorithms put themselves into.
const BEGIN: &str = "local algorithms = {}";

/// Stands before all others.
const SHARED: &str = include_str!("../../../../lua/shared.lua");

/// One file for each algorithm, in a scope of its own: their order does not matter.
const ALGORITHMS: [&str; 6] = [
    include_str!("../../../../lua/token_bucket.lua"),
    include_str!("../../../../lua/gcra.lua"),
    include_str!("../../../../lua/leaky_bucket.lua"),
    include_str!("../../../../lua/sliding_window.lua"),
    include_str!("../../../../lua/fixed_window.lua"),
    include_str!("../../../../lua/redisson.lua"),
];

const ADMIT: &str = include_str!("../../../../lua/admit.lua");
const OPERATIONS: &str = include_str!("../../../../lua/operations.lua");

/// A script; and the same as a library.
#[derive(Debug)]
struct Script {
    source: String,
    digest: String,
    library: String,
    /// What the library and its function are called.
    function: String,
}

/// Runs the script on a connection, as its Redis likes it best.
#[derive(Clone)]
pub(super) struct Invoker {
    redis: MultiplexedConnection,
    /// Does this Redis keep functions for us, as far as is known?
    has_functions: Arc<AtomicBool>,
    /// Is every call about a slot that the node is just being given?
    is_asking: bool,
}

/// How Redis is asked to run the script. Each is tried once at most, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invocation {
    /// As a function, which costs it least.
    Function,
    /// As a function that it is sent before.
    NewFunction,
    /// By the digest under which it knows a script that has run.
    Digest,
    /// As a whole.
    Source,
}

// === impl Script ===

impl Script {
    /// A script that runs `each_call`, which stands on what is `made_once`. While a library is loaded Lua has no functions of
    /// its own; so that is made by the first call.
    fn new(made_once: &str, each_call: &str) -> Self {
        // What a function is given is not global; so it is local everywhere, which is faster besides.
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
    /// Asks for a function that nobody has, before any is called: a Redis that does not know the command puts its arguments
    /// into the error, and a client cannot read those of ours that are not text.
    ///
    /// # Errors
    /// The connection does not work.
    pub(super) async fn new(mut redis: MultiplexedConnection) -> RedisResult<Self> {
        let has_functions = match cmd("FCALL").arg("tidegate").arg(0).exec_async(&mut redis).await {
            Err(error) if error.code().is_none() => return Err(error),
            answer => answer.is_err_and(|error| is_unknown(&error)),
        };
        Ok(Self { redis, has_functions: Arc::new(AtomicBool::new(has_functions)), is_asking: false })
    }

    /// The same for calls about a slot that the node is just being given.
    pub(super) fn asking(&self) -> Self {
        Self { is_asking: true, ..self.clone() }
    }

    /// Runs the script with the keys and arguments that `add` adds to a command.
    ///
    /// # Errors
    /// What went wrong the last time it was asked. It is never asked again after it may have run.
    pub(super) async fn run(&mut self, add: impl Fn(&mut Cmd) + Sync) -> Result<Value, StoreError> {
        let has_functions = self.has_functions.load(Ordering::Relaxed);
        let mut how = if has_functions { Invocation::Function } else { Invocation::Digest };
        loop {
            match self.ask(how, &add).await {
                Ok(value) => return Ok(value),
                Err(error) => how = self.fallback_after(how, &error).ok_or_else(|| store_error(&error))?,
            }
        }
    }

    /// What Redis's clock shows.
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

    /// Sends a command, and before it that it is about a slot that the node is just being given, if it is.
    pub(super) async fn send(&mut self, command: Cmd) -> RedisResult<Value> {
        if self.is_asking {
            // Nothing of others comes between the two.
            let mut both = pipe();
            both.cmd("ASKING").add_command(command);
            let answers = self.redis.send_packed_commands(&both, 0, 2).await?;
            return answers.into_iter().next_back().unwrap_or(Value::Nil).extract_error();
        }
        self.redis.send_packed_command(&command).await?.extract_error()
    }

    /// Another gateway may have loaded it just now, or nobody may: whether it is there is for the call to say.
    async fn load(&mut self) -> RedisResult<()> {
        match cmd("FUNCTION").arg("LOAD").arg(&SCRIPT.library).exec_async(&mut self.redis).await {
            Err(error) if error.code().is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// How else to ask after an error that says that nothing ran.
    fn fallback_after(&self, how: Invocation, error: &RedisError) -> Option<Invocation> {
        match how {
            Invocation::Function if is_unknown(error) => Some(Invocation::NewFunction),
            Invocation::Function | Invocation::NewFunction if is_unknown(error) || is_forbidden(error) => {
                self.has_functions.store(false, Ordering::Relaxed);
                Some(Invocation::Digest)
            }
            // A Redis without memory runs no function that could write; a script it runs until that writes. So who is
            // refused is told so.
            Invocation::Function | Invocation::NewFunction if error.code() == Some("OOM") => Some(Invocation::Digest),
            Invocation::Digest if error.code() == Some("NOSCRIPT") => Some(Invocation::Source),
            _ => None,
        }
    }
}

/// Nothing ran, since Redis does not know the function.
fn is_unknown(error: &RedisError) -> bool {
    error.detail() == Some("Function not found")
}

/// Nothing ran, since we may not call functions any more. What goes wrong in a function is not meant: it has run.
fn is_forbidden(error: &RedisError) -> bool {
    error.code() == Some("NOPERM") && error.detail().is_some_and(|detail| detail.contains("'fcall'"))
}

/// What an error means. Up to version 6, what went wrong within a script is told at the end of another:
/// `ERR Error running script (call to f_…): @user_script:12: @user_script: 12: -READONLY You can't write …`.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    if let Some((address, slot)) = error.redirect_node() {
        let is_ask = error.code() == Some("ASK");
        return StoreError::Redirected { slot, address: address.to_owned(), is_ask };
    }
    let Some(word) = error.code() else {
        let is_broken = error.is_io_error() || error.is_unrecoverable_error();
        return if is_broken { StoreError::Broken } else { StoreError::UnexpectedReply };
    };
    let within = error.detail().and_then(|detail| detail.strip_prefix("Error running script"));
    let within = within.and_then(|rest| rest.split_once(": -"));
    match within.map_or(word, |(_, error)| error.split(' ').next().unwrap_or(word)) {
        "NOTINITIALISED" => StoreError::NotInitialised,
        "MODEDIFFERS" => StoreError::ModeDiffers,
        // That nobody has a slot says nothing about the others of the node.
        "CLUSTERDOWN" if error.detail().is_some_and(|detail| detail.contains("not served")) => StoreError::Unreachable,
        word => StoreError::ErrorReply(word.to_owned()),
    }
}
