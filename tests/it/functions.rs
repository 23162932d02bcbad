//! Redis functions: the store uses them if Redis has and permits them, and scripts otherwise, with the same decisions.

use deadpool_redis::redis::{Connection, cmd};
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate_rules::charge::Charge;

use crate::support::overall;
use crate::support::redis::RedisServer;

const NOW: u64 = 1_700_000_000_000;

/// Requests three permits of two. Returns `true` if two are granted.
async fn decides(store: &ReplayStore, name: &str) -> bool {
    let charges: [Charge; 1] = [overall(name, 2, 1_000, 1)];
    let mut granted = 0;
    for _ in 0..3 {
        let outcome = store.take_at(&charges, Timestamp::from_millis(NOW)).await.expect("a decision");
        granted += u32::from(outcome.granted());
    }
    granted == 2
}

/// Returns how often a command was called, and how often Redis rejected it.
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

/// Returns `true` if this Redis has functions.
fn has_functions(redis: &mut Connection) -> bool {
    cmd("FUNCTION").arg("LIST").exec(redis).is_ok()
}

fn forbid(redis: &mut Connection, rule: &str) {
    cmd("ACL").arg(&["SETUSER", "default", rule]).exec(redis).expect("a rule");
}

#[tokio::test]
async fn stores_load_the_function_library_once() {
    let Some(server) = RedisServer::start() else { return };
    let mut redis = server.connection();
    if !has_functions(&mut redis) {
        return;
    }
    reset(&mut redis);
    for name in ["first", "second"] {
        // Each store has separate connections, like a gateway.
        assert!(decides(&server.replay_store(), name).await);
    }
    assert_eq!(calls(&mut redis, "function|load"), (1, 0));
    assert_eq!((calls(&mut redis, "evalsha").0, calls(&mut redis, "eval").0), (0, 0));
}

#[tokio::test]
async fn flushed_functions_are_loaded_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    assert!(decides(&store, "before").await);
    if has_functions(&mut redis) {
        cmd("FUNCTION").arg("FLUSH").exec(&mut redis).expect("flushed");
        reset(&mut redis);
        assert!(decides(&store, "after").await);
        assert_eq!((calls(&mut redis, "function|load"), calls(&mut redis, "evalsha").0), ((1, 0), 0));
    }
}

#[tokio::test]
async fn forbidden_functions_are_tried_once_per_connection() {
    // A forbidden `FCALL` needs one attempt. If only loading is forbidden, there are two further calls around that
    // attempt.
    for (rule, attempts) in [("-fcall", 1), ("-function", 3)] {
        let Some(server) = RedisServer::start() else { return };
        let mut redis = server.connection();
        if !has_functions(&mut redis) {
            return;
        }
        forbid(&mut redis, rule);
        reset(&mut redis);
        let store = server.replay_store();
        assert!(decides(&store, "first").await && decides(&store, "second").await, "{rule}");
        let (called, rejected) = calls(&mut redis, "fcall");
        assert_eq!(called + rejected, attempts, "{rule}: {called} and {rejected}");
        assert_eq!((calls(&mut redis, "evalsha").0, calls(&mut redis, "eval").0), (6, 1), "{rule}");
    }
}

#[tokio::test]
async fn flushed_script_is_loaded_again() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    if has_functions(&mut redis) {
        forbid(&mut redis, "-fcall");
    }
    assert!(decides(&store, "before").await);
    cmd("SCRIPT").arg("FLUSH").exec(&mut redis).expect("flushed");
    assert!(decides(&store, "after").await);
}

/// The error for an unknown command repeats its arguments, some of which are binary. Short names leave room for more of
/// them.
#[tokio::test]
async fn redis_without_functions_uses_scripts_immediately() {
    let Some(server) = RedisServer::start_without_functions() else { return };
    let (store, mut redis) = (server.replay_store(), server.connection());
    for name in [
        "l",
        "a name that is longer than the part of the arguments that Redis repeats in its error, which is 128 bytes",
    ] {
        assert!(decides(&store, name).await, "{name}");
    }
    assert_eq!((calls(&mut redis, "evalsha").0, calls(&mut redis, "eval").0), (6, 1));
}
