//! Sixteen limits of all algorithms on one request: one decision, and one Redis call.

use deadpool_redis::redis::{Connection, cmd};
use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::{Algorithm, Quota, examples};
use tidegate_rules::charge::Charge;

use crate::laws::{START, Stores};
use crate::support::charge_of;
use crate::support::redis::{RedisServer, fresh_name};

/// Returns sixteen charges, one of which needs the last permit of its bucket.
fn sixteen(name: &str, scarce: usize) -> Vec<Charge> {
    let algorithms: Vec<Algorithm> = examples(9).collect();
    let charge = |number: usize| {
        let algorithm = match number == scarce {
            true => Algorithm::TokenBucket,
            false => algorithms[number % algorithms.len()],
        };
        let rate = if number == scarce { 1 } else { 9 };
        let quota = Quota::new(rate, 60_000, algorithm).expect("a quota");
        let client = (number % 2 == 1).then_some(&b"client"[..]);
        charge_of(&format!("{name}:{number}"), client, quota, 1)
    };
    (0..16).map(charge).collect()
}

#[test]
fn sixteen_limits_are_charged_together_or_not_at_all() {
    Stores::start().each(|name, take| {
        for scarce in [0, 7, 15] {
            let charges = sixteen(&format!("{name}:{scarce}"), scarce);
            let granted = take(&charges, START);
            assert!(granted.granted());
            let refused = take(&charges, START + 1);
            let said: Vec<bool> = refused.decisions.iter().map(|decision| decision.granted).collect();
            assert_eq!(said, (0..16).map(|number| number != scarce).collect::<Vec<_>>());
            let left = |outcome: &tidegate_rules::charge::Outcome| -> Vec<u32> {
                outcome.decisions.iter().map(|decision| decision.remaining).collect()
            };
            assert_eq!(left(&granted), left(&refused), "a rejected request was charged");
        }
    });
}

/// Returns the number of script calls that Redis has received.
pub(crate) fn calls_of_scripts(redis: &mut Connection) -> u64 {
    let stats: String = cmd("INFO").arg("commandstats").query(redis).expect("statistics");
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    let is_script = |line: &&str| line.starts_with("cmdstat_eval") || line.starts_with("cmdstat_fcall");
    stats.lines().filter(is_script).filter_map(calls).sum()
}

#[tokio::test]
async fn decision_about_sixteen_limits_is_one_redis_call() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let charges = sixteen(&fresh_name(), 16);
    assert!(store.take(&charges).await.expect("a decision").granted());
    let before = calls_of_scripts(&mut redis);
    assert!(store.take(&charges).await.expect("a decision").granted());
    assert_eq!(calls_of_scripts(&mut redis) - before, 1);
}

#[test]
fn leaky_bucket_keeps_its_queue_when_rate_and_clock_change() {
    Stores::start().each(|name, take| {
        let ask = |rate, at| {
            let queue = Queue { length: 100, max_wait: 600_000 };
            let quota = Quota::new(rate, 60_000, Algorithm::LeakyBucket(queue)).expect("a quota");
            take(&[charge_of(name, None, quota, 1)], at).decisions[0]
        };
        assert_eq!([0, 0, 0].map(|_| ask(6, START).delay), [0, 10_000, 20_000]);
        // Three are in the bucket: at twice the rate they leak in half the time.
        assert_eq!(ask(12, START).delay, 15_000);
        // An hour back: the permits in the bucket count as added now, and start to leak.
        let back = START - 3_600_000;
        assert_eq!(ask(12, back).delay, 20_000);
        assert_eq!(ask(12, back + 5_000).delay, 20_000);
        // An hour ahead, all requests have been forwarded.
        assert_eq!(ask(12, START + 3_600_000).delay, 0);
    });
}
