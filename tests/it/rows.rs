//! Requests in a row that ask for the same token buckets are decided at once; whatever lies in Redis, no bucket is left
//! half charged, and its counter is what its log says.

use deadpool_redis::redis::{Commands, Connection, cmd};
use tidegate::clock::Timestamp;
use tidegate::limit::{Charge, Outcome};
use tidegate::store::Store;

use crate::support::overall;
use crate::support::redis::{RedisServer, fresh_name};

const NOW: u64 = 1_700_000_000_000;

async fn take(store: &Store, charges: &[Charge], now: u64) -> Outcome {
    store.take_at(charges, Timestamp::from_millis(now)).await.expect("a decision")
}

/// What the log of a bucket holds, and what its counter says.
fn stored(redis: &mut Connection, name: &str) -> (u64, Option<String>) {
    let log: Vec<Vec<u8>> = redis.zrange(format!("{name}:permits"), 0, -1).expect("a log");
    let permits = |entry: &Vec<u8>| u64::from(u32::from_le_bytes(entry[17..].try_into().expect("four bytes")));
    (log.iter().map(permits).sum(), redis.get(format!("{name}:value")).expect("a counter"))
}

#[tokio::test]
async fn a_counter_that_is_not_what_its_seal_says_spoils_no_other_limit_of_its_row() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    for (wrong, tampered) in (0..3).flat_map(|wrong| ["", "7", "1000000", "-3", "nonsense"].map(|text| (wrong, text))) {
        let names = [fresh_name(), fresh_name(), fresh_name()];
        let charges = [0, 1, 2].map(|i| overall(&names[i], [10, 600, 100][i], 60_000, 2));
        assert!(take(&store, &charges, NOW).await.granted());
        let key = format!("{}:value", names[wrong]);
        match tampered {
            "" => cmd("DEL").arg(key).exec(&mut redis).expect("gone"),
            text => cmd("SET").arg(key).arg(text).arg("KEEPTTL").exec(&mut redis).expect("set"),
        }
        let outcome = take(&store, &charges, NOW + 1).await;
        let told = outcome.decisions.iter().map(|one| (one.granted, one.remaining)).collect::<Vec<_>>();
        assert_eq!(told, [(true, 6), (true, 596), (true, 96)], "{tampered:?} in {wrong}");
        for (name, left) in names.iter().zip(["6", "596", "96"]) {
            assert_eq!(stored(&mut redis, name), (4, Some(left.to_owned())), "{tampered:?} in {wrong}");
            assert!(redis.pttl::<_, i64>(format!("{name}:value")).expect("a time to live") > 0);
        }
    }
}

#[tokio::test]
async fn however_many_entries_return_together_the_log_and_the_counter_agree() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    for returned in [0, 1, 2, 3, 4, 50, 99, 100, 101, 119, 120] {
        let name = fresh_name();
        let charges = [overall(&name, 512, 60_000, 3)];
        for at in 0..120 {
            assert!(take(&store, &charges, NOW + 10 * at).await.granted());
        }
        let now = if returned == 0 { NOW + 2_000 } else { NOW + 60_000 + 10 * (returned - 1) };
        let outcome = take(&store, &charges, now).await;
        let left = 512 - 3 * (121 - returned);
        assert_eq!(u64::from(outcome.decisions[0].remaining), left, "{returned}");
        let next = if returned == 120 { NOW + 180_000 } else { NOW + 60_000 + 10 * returned };
        let reset = if returned == 120 { 60_000 } else { next - now };
        assert_eq!(outcome.decisions[0].reset, reset, "{returned}");
        assert_eq!(stored(&mut redis, &name), (512 - left, Some(left.to_string())), "{returned}");
        for key in ["permits", "value"] {
            let lives = redis.pttl::<_, i64>(format!("{name}:{key}")).expect("a time to live");
            assert!(lives > 60_000, "{key} lives for {lives} ms, {returned}");
        }
    }
}

#[tokio::test]
async fn an_entry_that_is_not_ours_among_those_that_return_is_counted_by_what_it_holds() {
    let Some(server) = RedisServer::start() else { return };
    let (store, mut redis) = (server.store(), server.connection());
    let name = fresh_name();
    let charges = [overall(&name, 100, 60_000, 1)];
    for at in 0..5 {
        assert!(take(&store, &charges, NOW + at).await.granted());
    }
    // A peer's: of another seal, dated between ours; the counter has no part in it.
    let entry = [&[16][..], &[0xee; 16], &9_u32.to_le_bytes()].concat();
    cmd("ZADD").arg(format!("{name}:permits")).arg(NOW + 1).arg(&entry).exec(&mut redis).expect("added");
    cmd("DECRBY").arg(format!("{name}:value")).arg(9).exec(&mut redis).expect("counted");
    let outcome = take(&store, &charges, NOW + 60_001).await;
    assert_eq!(outcome.decisions[0].remaining, 96);
    assert_eq!(stored(&mut redis, &name), (4, Some("96".to_owned())));
}
