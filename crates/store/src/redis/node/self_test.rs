//! Tests whether a node runs all commands that a gateway uses, on reserved keys. A node can accept connections and
//! refuse every decision: its user lacks a permission, a command is renamed, or its memory is full.

use deadpool_redis::redis::{Cmd, RedisError, from_redis_value};

use super::super::script::refused_calls::{cut, is_refusal, text_of};
use super::super::script::{Invoker, store_error};
use crate::StoreError;

/// The commands without which a node cannot decide. Some features need the others.
const DECISIVE: [&str; 8] = ["TIME", "SET", "GET", "SETRANGE", "GETRANGE", "STRLEN", "PTTL", "PEXPIRE"];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum SelfTestResult {
    /// The node can decide. Contains the names of the commands that it refuses nevertheless, with its first error.
    Passed(Option<String>),
    /// The node refuses decisions, with the commands and its error.
    Refused(String),
    /// The connection cannot be used, with the cause.
    Failed(String),
}

/// Runs the self-test with the keys of this hash tag.
pub(super) async fn run(script: &mut Invoker, tag: &str) -> SelfTestResult {
    let add = |call: &mut Cmd| {
        call.arg(3);
        ["@string", "@set", "@hash"].iter().for_each(|name| _ = call.arg(format!("{{{tag}}}:{name}")));
        call.arg("self_test");
    };
    match script.try_run(add).await.map(from_redis_value::<Vec<String>>) {
        Ok(Ok(failures)) => evaluate(&failures),
        Ok(Err(_)) => SelfTestResult::Failed(StoreError::UnexpectedReply.to_string()),
        Err(error) => of_error(&error),
    }
}

fn of_error(error: &RedisError) -> SelfTestResult {
    let store_error = store_error(error);
    match store_error {
        // The hash slot has moved, which this test need not follow.
        _ if store_error.is_redirected() || store_error == StoreError::Unreachable => SelfTestResult::Passed(None),
        // The client library cannot parse this error if it repeats the binary arguments of a decision.
        _ if error.detail().is_some_and(|detail| detail.starts_with("unknown command")) => {
            SelfTestResult::Failed(text_of(error))
        }
        _ if is_refusal(&store_error) => SelfTestResult::Refused(text_of(error)),
        _ => SelfTestResult::Failed(if error.code().is_some() { text_of(error) } else { error.to_string() }),
    }
}

/// Evaluates the names of the failed commands, each followed by its error.
fn evaluate(failures: &[String]) -> SelfTestResult {
    let (decisive, others): (Vec<_>, Vec<_>) =
        failures.chunks_exact(2).partition(|failure| DECISIVE.contains(&failure[0].as_str()));
    let text = |failures: &[&[String]]| {
        let error = cut(&failures.first()?[1]);
        let names: Vec<&str> = failures.iter().map(|failure| failure[0].as_str()).collect();
        Some(format!("{}: {error}", names.join(", ")))
    };
    text(&decisive).map_or_else(|| SelfTestResult::Passed(text(&others)), SelfTestResult::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_test_names_the_commands_that_decisions_need() {
        let failures = |names: &[&str]| {
            names.iter().flat_map(|name| [(*name).to_owned(), format!("no {name}")]).collect::<Vec<_>>()
        };
        let refused = |text: &str| SelfTestResult::Refused(text.to_owned());
        assert_eq!(evaluate(&failures(&["SET", "ZADD", "GET"])), refused("SET, GET: no SET"));
        let passed = |text: Option<&str>| SelfTestResult::Passed(text.map(str::to_owned));
        assert_eq!(evaluate(&failures(&["ZADD", "HSET"])), passed(Some("ZADD, HSET: no ZADD")));
        assert_eq!(evaluate(&[]), passed(None));
    }
}
