//! Weaknesses of Redisson's scripts that Tidegate's scripts do not have. Each test describes what Redisson does.

use deadpool_redis::redis::{Commands, cmd};

use crate::support::redis::RedisServer;
use crate::support::redisson::{Peer, answer, member, request, script};

const T: u64 = 1_700_000_000_000;

/// Tidegate's scripts on one OVERALL limiter, at any time.
struct OwnScripts {
    peer: Peer,
    calls: u128,
    _server: RedisServer,
}

/// The decision of `acquire`.
#[derive(Debug, PartialEq, Eq)]
struct Acquired {
    granted: bool,
    remaining: i64,
    wait: i64,
}

impl OwnScripts {
    fn start(rate: u64, interval: u64, keep_alive: u64) -> Option<Self> {
        let server = RedisServer::start()?;
        let mut own = Self { peer: Peer::new(server.connection(), "lim", "me"), calls: 0, _server: server };
        assert_eq!(own.set_rate("try", rate, interval, keep_alive), 1);
        Some(own)
    }

    fn call<T: deadpool_redis::redis::FromRedisValue>(&mut self, arguments: &[&[u8]]) -> T {
        let keys = self.peer.script_keys();
        let mut call = cmd("EVAL");
        call.arg(script()).arg(keys.len()).arg(&keys[..]).arg(arguments);
        call.query(self.peer.redis()).expect("a reply")
    }

    fn set_rate(&mut self, how: &str, rate: u64, interval: u64, keep_alive: u64) -> i64 {
        let [rate, interval, keep_alive] = [rate, interval, keep_alive].map(|number| number.to_string());
        let usage = if how == "set" { "reset" } else { "keep" };
        let arguments = ["set_rate", &T.to_string(), how, &rate, &interval, "0", &keep_alive, usage];
        self.call(&arguments.map(str::as_bytes))
    }

    fn acquire(&mut self, permits: u32, now: u64) -> Acquired {
        self.calls += 1;
        self.acquire_as(self.calls << 64, permits, now)
    }

    fn acquire_as(&mut self, random: u128, permits: u32, now: u64) -> Acquired {
        let (now, request, random) = (now.to_string(), request(permits), random.to_be_bytes());
        let arguments = [b"admit", &b"redisson library    1 "[..], &request, &random, now.as_bytes()];
        let [_, granted, remaining, wait, ..] = answer(&self.call::<Vec<u8>>(&arguments));
        Acquired { granted: granted == 1, remaining, wait }
    }

    fn available(&mut self, now: u64) -> i64 {
        self.acquire(0, now).remaining
    }

    fn release(&mut self, permits: u32, now: u64) -> i64 {
        self.call(&[b"release", now.to_string().as_bytes(), permits.to_string().as_bytes()])
    }

    /// Returns the times to live of hash, counter and log.
    fn ttls(&mut self) -> [i64; 3] {
        let keys = [0, 1, 3].map(|index| self.peer.keys()[index].clone());
        keys.map(|key| self.peer.redis().pttl(key).expect("a time"))
    }

    fn set_ttls(&mut self, millis: i64) {
        for key in self.peer.keys().clone() {
            self.peer.redis().pexpire::<_, ()>(key, millis).expect("an expiry");
        }
    }
}

/// Redisson writes the entry once and lowers the counter twice, so the counter stays too low forever.
#[test]
fn repeated_acquire_takes_its_permits_once() {
    let Some(mut own) = OwnScripts::start(10, 1_000, 0) else { return };
    for now in [T, T + 3] {
        assert!(own.acquire_as(7, 2, now).granted);
        assert_eq!((own.peer.counter(), own.peer.log().len()), (Some(8), 1));
    }
    assert_eq!(own.available(T + 1_000), 10);
    // Permits that a repeated call of Redisson has leaked become available again with Tidegate's next call.
    for _ in 0..2 {
        assert_eq!(own.peer.acquire_as(9, 2, T + 2_000), Ok(None));
    }
    assert_eq!(own.peer.counter(), Some(6));
    assert_eq!(own.acquire(1, T + 2_001).remaining, 7);
    assert_eq!(own.peer.counter(), Some(7));
}

/// In Redisson, permits return when they are released and again after their interval: 15 of 10 in one window.
#[test]
fn released_permit_does_not_return_twice() {
    let Some(mut own) = OwnScripts::start(10, 1_000, 0) else { return };
    assert!(own.acquire(5, T).granted);
    assert_eq!(own.release(5, T), 5);
    assert!(own.acquire(5, T + 500).granted);
    let refused = own.acquire(10, T + 1_000);
    assert_eq!(refused, Acquired { granted: false, remaining: 5, wait: 500 });
    assert_eq!(own.peer.counter(), Some(5));
}

#[test]
fn release_frees_the_newest_permits_in_use() {
    let Some(mut own) = OwnScripts::start(10, 1_000, 0) else { return };
    assert!(own.acquire(4, T).granted && own.acquire(4, T + 500).granted);
    assert_eq!(own.release(5, T + 600), 5);
    let log = own.peer.log();
    assert_eq!((log.len(), log[0].1, &log[0].0[17..]), (1, T, &[3, 0, 0, 0][..]));
    assert_eq!(own.release(100, T + 600), 3);
    assert_eq!((own.release(1, T + 600), own.available(T + 600)), (0, 10));
    assert!(own.acquire(4, T + 700).granted);
    assert_eq!(own.release(4, T + 1_700), 0, "permits that have returned are not released");
    assert_eq!(own.peer.counter(), Some(10));
}

/// Redisson counts and grants 13 of 10 permits.
#[test]
fn released_permits_are_not_counted_at_expiry() {
    let Some(mut own) = OwnScripts::start(10, 1_000, 0) else { return };
    assert!(own.acquire(3, T).granted);
    own.peer.release(3);
    assert_eq!(own.available(T + 1_000), 10);
    assert!(own.acquire(10, T + 1_000).granted);
    assert!(!own.acquire(1, T + 1_000).granted);
    // If Redisson has counted too many, Tidegate still grants by the log.
    let Some(mut own) = OwnScripts::start(10, 1_000, 0) else { return };
    assert_eq!(own.peer.acquire(3, T), None);
    own.peer.release(3);
    assert_eq!(own.peer.available(T + 1_000), 13, "the test's peer must behave like Redisson");
    assert_eq!(own.acquire(11, T + 1_000).wait, -1);
    assert_eq!(own.acquire(10, T + 1_000), Acquired { granted: true, remaining: 0, wait: 0 });
    assert_eq!(own.peer.counter(), Some(0));
}

/// Redisson rewrites the counter without its time to live when it counts, so the counter outlives the limiter.
#[test]
fn counting_keeps_ttls_and_orphaned_counters_are_ignored() {
    let Some(mut own) = OwnScripts::start(10, 1_000, 50_000) else { return };
    assert!(own.acquire(5, T).granted);
    own.set_ttls(30_000);
    assert_eq!(own.available(T + 1_000), 10);
    assert!(own.ttls().iter().all(|ttl| (1..=30_000).contains(ttl)), "{:?}", own.ttls());
    for orphan in [5, 100] {
        cmd("FLUSHALL").exec(own.peer.redis()).expect("flushed");
        own.peer.set_counter(orphan);
        assert_eq!(own.set_rate("try", 7, 1_000, 0), 1);
        assert_eq!(own.available(T), 7, "an orphan of {orphan}");
        assert!(own.acquire(7, T).granted && !own.acquire(1, T).granted, "an orphan of {orphan}");
        assert_eq!(own.peer.counter(), Some(0));
    }
}

/// In Redisson, a caller with a fast clock frees permits of others, and a caller with a slow clock waits too long.
/// Tidegate uses Redis's clock. An entry with a later time than Redis's clock holds its permits for one interval.
#[test]
fn peer_with_a_fast_clock_changes_no_decision() {
    let Some(mut own) = OwnScripts::start(10, 1_000, 0) else { return };
    assert!(own.acquire(5, T).granted);
    assert_eq!(own.peer.acquire(5, T + 300), None);
    let refused = own.acquire(6, T);
    assert_eq!((refused.granted, refused.wait), (false, 1_000), "not 1300");
    assert!(!own.acquire(1, T + 999).granted);
    assert!(own.acquire(10, T + 1_000).granted);
}

/// Tidegate's own key says that the newest entry is ahead of the clock, but this entry has been replaced.
#[test]
fn replaced_newest_entry_stops_no_decision() {
    let Some(mut own) = OwnScripts::start(10, 1_000, 0) else { return };
    assert!(own.acquire(1, T).granted && own.acquire(2, T + 500).granted);
    let (newest, _) = own.peer.log().pop().expect("an entry");
    let log = own.peer.keys()[3].clone();
    cmd("ZREM").arg(&log).arg(newest).exec(own.peer.redis()).expect("removed");
    cmd("ZADD").arg(&log).arg(T + 100).arg(member("Bc0I/16", 1, 2)).exec(own.peer.redis()).expect("added");
    assert!(!own.acquire(8, T + 200).granted && own.acquire(7, T + 200).granted);
    assert!(own.acquire(3, T + 1_100).granted);
}

/// In Redisson, each grant is an entry: 100,000 entries take 12 MB, and block Redis for 79 ms when they expire
/// together.
#[test]
fn log_is_bounded_at_any_rate() {
    let Some(mut own) = OwnScripts::start(1_000_000, 60_000, 0) else { return };
    for call in 0..1_500 {
        assert!(own.acquire(100, T + 40 * call).granted);
    }
    let log = own.peer.log();
    assert!(log.len() <= 513, "{} entries", log.len());
    assert_eq!(own.peer.counter(), Some(1_000_000 - 150_000));
    assert_eq!(own.available(T + 200_000), 1_000_000);
}

#[test]
fn redisson_log_is_removed_512_entries_per_call() {
    let Some(mut own) = OwnScripts::start(100_000, 1_000, 0) else { return };
    for _ in 0..2_000 {
        assert_eq!(own.peer.acquire(1, T), None);
    }
    assert!(own.acquire(98_000, T + 999).granted);
    assert!(own.acquire(50, T + 1_000).granted);
    assert_eq!(own.peer.log().len(), 2_000 + 2 - 512);
    assert!(!own.acquire(2_000, T + 1_000).granted && own.acquire(1_950, T + 1_000).granted);
    // Grants of one merge step share an entry. Expired entries that remain lower the counter until Redisson corrects
    // it.
    assert_eq!((own.peer.log().len(), own.peer.counter()), (2_000 - 3 * 512 + 2, Some(-464)));
    assert!(own.peer.acquire(1, T + 1_000).is_some());
    assert_eq!((own.peer.log().len(), own.peer.counter()), (2, Some(0)));
}

/// Redisson returns the wait of the oldest entry for any number of permits: here 800 ms, and then another wait.
#[test]
fn wait_ends_when_enough_permits_have_returned() {
    let Some(mut own) = OwnScripts::start(100, 1_000, 0) else { return };
    assert!(own.acquire(5, T).granted && own.acquire(30, T + 100).granted);
    assert_eq!(own.acquire(100, T + 200).wait, 900);
    assert!(!own.acquire(100, T + 1_099).granted);
    assert!(own.acquire(100, T + 1_100).granted);
}

/// In Redisson, refusals keep a limiter alive forever. In Tidegate, they keep it alive until their wait ends.
#[test]
fn refusals_extend_ttls_only_by_their_wait() {
    let Some(mut own) = OwnScripts::start(1, 5_000, 60_000) else { return };
    assert!(own.acquire(1, T).granted);
    assert!(own.ttls().iter().all(|ttl| (50_000..=60_000).contains(ttl)), "{:?}", own.ttls());
    own.set_ttls(20_000);
    assert!(!own.acquire(1, T + 1).granted);
    assert!(own.ttls().iter().all(|ttl| (11_000..=20_000).contains(ttl)), "{:?}", own.ttls());
    own.set_ttls(4_000);
    assert_eq!(own.acquire(1, T + 1).wait, 4_999);
    assert!(
        own.ttls().iter().all(|ttl| (5_000..=9_999).contains(ttl)),
        "the limiter must exist until a waiting caller can acquire: {:?}",
        own.ttls()
    );
}

/// In Redisson, the log expires with the limiter. A new limiter then grants the same window twice.
#[test]
fn permits_in_use_outlive_an_expired_limiter() {
    let Some(mut own) = OwnScripts::start(5, 30_000, 0) else { return };
    assert!(own.acquire(5, T).granted);
    assert_eq!(own.call::<i64>(&[b"expire", T.to_string().as_bytes(), b"40"]), 1);
    assert!(own.ttls()[1] > 20_000 && own.ttls()[2] > 20_000, "{:?}", own.ttls());
    // As after the 40 ms.
    cmd("DEL").arg("lim").exec(own.peer.redis()).expect("deleted");
    assert_eq!(own.set_rate("try", 5, 30_000, 0), 1);
    assert!(!own.acquire(1, T + 1).granted);
    assert!(own.acquire(5, T + 30_000).granted);
    // A grant does not shorten the life of the log before the limiter expires.
    assert_eq!(own.call::<i64>(&[b"expire", T.to_string().as_bytes(), b"10000"]), 1);
    assert!(own.acquire(5, T + 60_000).granted);
    assert!(own.ttls()[0] <= 10_000 && own.ttls()[2] > 20_000, "{:?}", own.ttls());
}

/// Redisson's `trySetRate` returns false, but writes `keepAliveTime` to a limiter of an older client, which then
/// expires.
#[test]
fn try_set_rate_changes_no_existing_limiter() {
    let Some(mut own) = OwnScripts::start(5, 1_000, 0) else { return };
    own.peer.redis().hdel::<_, _, ()>("lim", "keepAliveTime").expect("deleted");
    assert_eq!(own.set_rate("try", 9, 9_000, 9_000), 0);
    let hash: Vec<(String, String)> = own.peer.redis().hgetall("lim").expect("a hash");
    let expected = [("rate", "5"), ("interval", "1000"), ("type", "0")];
    assert_eq!(hash.len(), 3);
    assert!(expected.iter().all(|(key, value)| hash.contains(&((*key).into(), (*value).into()))), "{hash:?}");
    assert_eq!(own.ttls()[0], -1);
}

/// In Redisson, the former time to live remains, so the limiter expires although its new rate has no keep-alive.
#[test]
fn rate_without_keep_alive_clears_the_expiry() {
    let Some(mut own) = OwnScripts::start(5, 1_000, 50_000) else { return };
    assert!(own.acquire(5, T).granted);
    assert_eq!(own.set_rate("update", 6, 1_000, 0), 1);
    assert_eq!(own.ttls(), [-1; 3]);
    assert_eq!(own.available(T), 1, "usage was kept");
    assert_eq!(own.set_rate("update", 3, 1_000, 0), 1);
    assert_eq!((own.available(T), own.peer.counter()), (0, Some(-2)));
    assert_eq!(own.set_rate("set", 3, 1_000, 0), 1);
    assert_eq!(own.available(T), 3);
}
