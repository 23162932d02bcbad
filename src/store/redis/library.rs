//! A script that Redis keeps: a library with one function (`FUNCTION LOAD`, since Redis 7). Its own functions and tables are
//! made once in the life of the server, and not anew in every call, which is a third of what a small call costs.
//!
//! A library is named after the digest of its source, and so is its function: gateways of different versions side by side
//! each have their own. Those of old versions are left where they are: nobody can tell whether another gateway still calls
//! them, and they are a few ten thousand bytes each.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Script, cmd};

use super::resp::Command;

#[derive(Debug)]
pub(super) struct Library {
    name: String,
    source: String,
}

impl Library {
    /// A library whose function runs `each_call`, which stands on what is `made_once`. While a library is loaded Lua has
    /// no functions of its own; so that is made by the first call.
    pub(super) fn new(made_once: &str, each_call: &str) -> Self {
        let body = format!(
            "local run\nlocal function make()\nlocal KEYS, ARGV\n{made_once}\nreturn function(keys, arguments)\n\
             KEYS, ARGV = keys, arguments\n{each_call}\nend\nend\n"
        );
        let name = format!("tidegate_{}", Script::new(&body).get_hash());
        let call = "function(keys, arguments)\nrun = run or make()\nreturn run(keys, arguments)\nend";
        let source = format!("#!lua name={name}\n{body}redis.register_function('{name}', {call})\n");
        Self { name, source }
    }

    /// What the library and its function are called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the command that loads it.
    pub(super) fn write_load(&self, unsent: &mut Vec<u8>) {
        Command::begin(unsent, 3).arg(b"FUNCTION").arg(b"LOAD").arg(self.source.as_bytes());
    }
}

/// Does this Redis keep functions, and let us call them? It is asked for one that nobody has, before any is called: a
/// Redis that does not know the command puts its arguments into the error, and ours are not all text.
pub(super) async fn are_kept(connection: &mut MultiplexedConnection) -> bool {
    let answer = cmd("FCALL").arg("tidegate").arg(0).exec_async(connection).await;
    answer.is_err_and(|error| error.detail().is_some_and(is_unknown))
}

/// Nothing ran, since Redis does not know the function.
pub(super) fn is_unknown(error: &str) -> bool {
    error == "Function not found"
}

/// Nothing ran, since we may not call functions any more. What goes wrong in a function is not meant: it has run.
pub(super) fn is_forbidden(word: &str, error: &str) -> bool {
    word == "NOPERM" && error.contains("'fcall'")
}
