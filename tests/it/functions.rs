//! Redis keeps our scripts as functions, as far as it can and lets us; whatever it knows of them, decisions are the same.

use deadpool_redis::redis::{Connection, cmd};
use tidegate::internals::StoreInternals;
use tidegate::internals::limit::Charge;
use tidegate::{Store, Timestamp};

use crate::support::overall;
use crate::support::redis::RedisServer;

const NOW: u64 = 1_700_000_000_000;

/// Asks three times for one permit of two; is it two that are granted?
async fn decides(store: &Store, name: &str) -> bool {
    let charges: [Charge; 1] = [overall(name, 2, 1_000, 1)];
    let mut granted = 0;
    for _ in 0..3 {
        let outcome = store.take_at(&charges, Timestamp::from_millis(NOW)).await.expect("a decision");
        granted += u32::from(outcome.granted());
    }
    granted == 2
}

/// How often a command was called, and how often Redis would not hear of it.
fn calls(redis: &mut Connection, name: &str) -> (u64, u64) {
    let stats: String = cmd("INFO").arg("commandstats").query(redis).expect("statistics");
    let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap_or_default();
    let number = |key: &str| {
        let (_, rest) = line.split_once(key)?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    (number("calls=").unwrap_or(0), number("rejected_calls=").unwrap_or(0))
}

fn reset(redis: &mut Connection) {
    cmd("CONFIG").arg("RESETSTAT").exec(redis).expect("reset");
}

/// Does this Redis have functions at all?
fn has_functions(redis: &mut Connection) -> bool {
    cmd("FUNCTION").arg("LIST").exec(redis).is_ok()
}

fn forbid(redis: &mut Connection, rule: &str) {
    cmd("ACL").arg(&["SETUSER", "default", rule]).exec(redis).expect("a rule");
}

#[tokio::test]
async fn a_decision_is_a_call_of_a_function_that_is_loaded_once() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    if !has_functions(&mut redis) {
        return;
    }
    reset(&mut redis);
    for name in ["first", "second"] {
        // Each store has connections of its own, as each gateway has.
        assert!(decides(&server.store(), name).await);
    }
    assert_eq!(calls(&mut redis, "function|load"), (1, 0));
    assert_eq!((calls(&mut redis, "evalsha").0, calls(&mut redis, "eval").0), (0, 0));
}

#[tokio::test]
async fn a_redis_that_forgot_the_functions_is_given_them_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    assert!(decides(&store, "before").await);
    if has_functions(&mut redis) {
        cmd("FUNCTION").arg("FLUSH").exec(&mut redis).expect("flushed");
        reset(&mut redis);
        assert!(decides(&store, "after").await);
        assert_eq!((calls(&mut redis, "function|load"), calls(&mut redis, "evalsha").0), ((1, 0), 0));
    }
}

#[tokio::test]
async fn where_functions_are_forbidden_scripts_decide_and_nobody_asks_again() {
    // One is how a connection finds out; where only loading is forbidden, it takes a call before and one after the attempt.
    for (rule, tries) in [("-fcall", 1), ("-function", 3)] {
        let Some(server) = RedisServer::start() else { return };
        let mut redis = server.connection();
        if !has_functions(&mut redis) {
            return;
        }
        forbid(&mut redis, rule);
        reset(&mut redis);
        let store = server.store();
        assert!(decides(&store, "first").await && decides(&store, "second").await, "{rule}");
        let (asked, refused) = calls(&mut redis, "fcall");
        assert_eq!(asked + refused, tries, "{rule}: {asked} and {refused}");
        assert_eq!((calls(&mut redis, "evalsha").0, calls(&mut redis, "eval").0), (6, 1), "{rule}");
    }
}

#[tokio::test]
async fn where_functions_are_forbidden_a_redis_that_forgot_the_script_is_given_it_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    if has_functions(&mut redis) {
        forbid(&mut redis, "-fcall");
    }
    assert!(decides(&store, "before").await);
    cmd("SCRIPT").arg("FLUSH").exec(&mut redis).expect("flushed");
    assert!(decides(&store, "after").await);
}

/// Its error repeats the arguments of a command that it does not know, and those of ours that are not text: the shorter the
/// names, the more of them.
#[tokio::test]
async fn a_redis_without_functions_decides_by_scripts_on_the_first_connection() {
    let Some(server) = RedisServer::start_without_functions() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    for name in
        ["l", "a name that is longer than what Redis repeats of the arguments of a command, which is 128 bytes of them"]
    {
        assert!(decides(&store, name).await, "{name}");
    }
    assert_eq!((calls(&mut redis, "evalsha").0, calls(&mut redis, "eval").0), (6, 1));
}
