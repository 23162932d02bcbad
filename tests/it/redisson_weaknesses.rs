//! Where Redisson's own scripts go wrong, ours do not. Each test tells what happens there.

use deadpool_redis::redis::{Commands, cmd};

use crate::support::redis::RedisServer;
use crate::support::redisson::{Peer, answer, member, request, script};

const T: u64 = 1_700_000_000_000;

/// The scripts of the library on one OVERALL limiter, at any time we like.
struct Ours {
    peer: Peer,
    calls: u128,
    _server: RedisServer,
}

/// What `acquire` says.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    granted: bool,
    remaining: i64,
    wait: i64,
}

impl Ours {
    fn start(rate: u64, interval: u64, keep_alive: u64) -> Option<Self> {
        let server = RedisServer::start()?;
        let mut ours = Self { peer: Peer::new(server.connection(), "lim", "me"), calls: 0, _server: server };
        assert_eq!(ours.set_rate("try", rate, interval, keep_alive), 1);
        Some(ours)
    }

    fn call<T: deadpool_redis::redis::FromRedisValue>(&mut self, arguments: &[&[u8]]) -> T {
        let keys = self.peer.our_keys();
        let mut call = cmd("EVAL");
        call.arg(script()).arg(keys.len()).arg(&keys[..]).arg(arguments);
        call.query(self.peer.redis()).expect("an answer")
    }

    fn set_rate(&mut self, how: &str, rate: u64, interval: u64, keep_alive: u64) -> i64 {
        let [rate, interval, keep_alive] = [rate, interval, keep_alive].map(|number| number.to_string());
        let usage = if how == "set" { "reset" } else { "keep" };
        let arguments = ["set_rate", &T.to_string(), how, &rate, &interval, "0", &keep_alive, usage];
        self.call(&arguments.map(str::as_bytes))
    }

    fn acquire(&mut self, permits: u32, now: u64) -> Said {
        self.calls += 1;
        self.acquire_as(self.calls << 64, permits, now)
    }

    fn acquire_as(&mut self, random: u128, permits: u32, now: u64) -> Said {
        let (now, request, random) = (now.to_string(), request(permits), random.to_be_bytes());
        let arguments = [b"admit", &b"redisson library    1 "[..], &request, &random, now.as_bytes()];
        let [_, granted, remaining, wait, ..] = answer(&self.call::<Vec<u8>>(&arguments));
        Said { granted: granted == 1, remaining, wait }
    }

    fn available(&mut self, now: u64) -> i64 {
        self.acquire(0, now).remaining
    }

    fn release(&mut self, permits: u32, now: u64) -> i64 {
        self.call(&[b"release", now.to_string().as_bytes(), permits.to_string().as_bytes()])
    }

    /// The times to live of hash, counter and log.
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

/// There the entry is written once and the counter lowered twice; it never recovers.
#[test]
fn an_acquire_that_is_sent_twice_takes_its_permits_once() {
    let Some(mut ours) = Ours::start(10, 1_000, 0) else { return };
    for now in [T, T + 3] {
        assert!(ours.acquire_as(7, 2, now).granted);
        assert_eq!((ours.peer.counter(), ours.peer.log().len()), (Some(8), 1));
    }
    assert_eq!(ours.available(T + 1_000), 10);
    // What a peer's resent call has leaked comes back with ours.
    for _ in 0..2 {
        assert_eq!(ours.peer.acquire_as(9, 2, T + 2_000), Ok(None));
    }
    assert_eq!(ours.peer.counter(), Some(6));
    assert_eq!(ours.acquire(1, T + 2_001).remaining, 7);
    assert_eq!(ours.peer.counter(), Some(7));
}

/// There permits come back when they are released, and once more when their interval is over: 15 of 10 in one window.
#[test]
fn a_released_permit_does_not_return_a_second_time() {
    let Some(mut ours) = Ours::start(10, 1_000, 0) else { return };
    assert!(ours.acquire(5, T).granted);
    assert_eq!(ours.release(5, T), 5);
    assert!(ours.acquire(5, T + 500).granted);
    let refused = ours.acquire(10, T + 1_000);
    assert_eq!(refused, Said { granted: false, remaining: 5, wait: 500 });
    assert_eq!(ours.peer.counter(), Some(5));
}

#[test]
fn release_reduces_the_newest_entries_first_and_puts_back_no_more_than_is_in_use() {
    let Some(mut ours) = Ours::start(10, 1_000, 0) else { return };
    assert!(ours.acquire(4, T).granted && ours.acquire(4, T + 500).granted);
    assert_eq!(ours.release(5, T + 600), 5);
    let log = ours.peer.log();
    assert_eq!((log.len(), log[0].1, &log[0].0[17..]), (1, T, &[3, 0, 0, 0][..]));
    assert_eq!(ours.release(100, T + 600), 3);
    assert_eq!((ours.release(1, T + 600), ours.available(T + 600)), (0, 10));
    assert!(ours.acquire(4, T + 700).granted);
    assert_eq!(ours.release(4, T + 1_700), 0, "what has returned was put back");
    assert_eq!(ours.peer.counter(), Some(10));
}

/// There 13 of 10 are counted, and granted.
#[test]
fn released_permits_are_not_counted_again_when_they_expire() {
    let Some(mut ours) = Ours::start(10, 1_000, 0) else { return };
    assert!(ours.acquire(3, T).granted);
    ours.peer.release(3);
    assert_eq!(ours.available(T + 1_000), 10);
    assert!(ours.acquire(10, T + 1_000).granted);
    assert!(!ours.acquire(1, T + 1_000).granted);
    // And if a peer has counted too many, we still grant by the log.
    let Some(mut ours) = Ours::start(10, 1_000, 0) else { return };
    assert_eq!(ours.peer.acquire(3, T), None);
    ours.peer.release(3);
    assert_eq!(ours.peer.available(T + 1_000), 13, "the peer of these tests is like Redisson");
    assert_eq!(ours.acquire(11, T + 1_000).wait, -1);
    assert_eq!(ours.acquire(10, T + 1_000), Said { granted: true, remaining: 0, wait: 0 });
    assert_eq!(ours.peer.counter(), Some(0));
}

/// There counting rewrites the counter without its time to live, and the orphan outlives the limiter.
#[test]
fn counting_permits_changes_no_time_to_live_and_an_orphaned_counter_harms_nobody() {
    let Some(mut ours) = Ours::start(10, 1_000, 50_000) else { return };
    assert!(ours.acquire(5, T).granted);
    ours.set_ttls(30_000);
    assert_eq!(ours.available(T + 1_000), 10);
    assert!(ours.ttls().iter().all(|ttl| (1..=30_000).contains(ttl)), "{:?}", ours.ttls());
    for orphan in [5, 100] {
        cmd("FLUSHALL").exec(ours.peer.redis()).expect("flushed");
        ours.peer.tamper(orphan);
        assert_eq!(ours.set_rate("try", 7, 1_000, 0), 1);
        assert_eq!(ours.available(T), 7, "an orphan of {orphan}");
        assert!(ours.acquire(7, T).granted && !ours.acquire(1, T).granted, "an orphan of {orphan}");
        assert_eq!(ours.peer.counter(), Some(0));
    }
}

/// There a caller whose clock is ahead frees what others hold, and one behind is told to wait too long. Ours send no
/// time; and what a peer has dated ahead of Redis's clock holds its permits for one interval and no longer.
#[test]
fn a_peer_whose_clock_is_ahead_neither_frees_nor_withholds_permits() {
    let Some(mut ours) = Ours::start(10, 1_000, 0) else { return };
    assert!(ours.acquire(5, T).granted);
    assert_eq!(ours.peer.acquire(5, T + 300), None);
    let refused = ours.acquire(6, T);
    assert_eq!((refused.granted, refused.wait), (false, 1_000), "not 1300");
    assert!(!ours.acquire(1, T + 999).granted);
    assert!(ours.acquire(10, T + 1_000).granted);
}

/// Our note says that the newest entry is ahead of the clock, which has gone back; but it is gone.
#[test]
fn a_newest_entry_that_was_replaced_by_hand_stops_nobody() {
    let Some(mut ours) = Ours::start(10, 1_000, 0) else { return };
    assert!(ours.acquire(1, T).granted && ours.acquire(2, T + 500).granted);
    let (newest, _) = ours.peer.log().pop().expect("an entry");
    let log = ours.peer.keys()[3].clone();
    cmd("ZREM").arg(&log).arg(newest).exec(ours.peer.redis()).expect("removed");
    cmd("ZADD").arg(&log).arg(T + 100).arg(member("Bc0I/16", 1, 2)).exec(ours.peer.redis()).expect("added");
    assert!(!ours.acquire(8, T + 200).granted && ours.acquire(7, T + 200).granted);
    assert!(ours.acquire(3, T + 1_100).granted);
}

/// There every grant is an entry: 100 000 of them are 12 MB, and stop Redis for 79 ms when they expire together.
#[test]
fn a_limiter_of_ours_holds_some_512_entries_whatever_its_rate() {
    let Some(mut ours) = Ours::start(1_000_000, 60_000, 0) else { return };
    for call in 0..1_500 {
        assert!(ours.acquire(100, T + 40 * call).granted);
    }
    let log = ours.peer.log();
    assert!(log.len() <= 513, "{} entries", log.len());
    assert_eq!(ours.peer.counter(), Some(1_000_000 - 150_000));
    assert_eq!(ours.available(T + 200_000), 1_000_000);
}

#[test]
fn a_log_that_others_have_filled_is_removed_512_entries_at_a_time() {
    let Some(mut ours) = Ours::start(100_000, 1_000, 0) else { return };
    for _ in 0..2_000 {
        assert_eq!(ours.peer.acquire(1, T), None);
    }
    assert!(ours.acquire(98_000, T + 999).granted);
    assert!(ours.acquire(50, T + 1_000).granted);
    assert_eq!(ours.peer.log().len(), 2_000 + 2 - 512);
    assert!(!ours.acquire(2_000, T + 1_000).granted && ours.acquire(1_950, T + 1_000).granted);
    // Grants of one slot are one entry; what has returned and is left counts for the counter, which a peer corrects.
    assert_eq!((ours.peer.log().len(), ours.peer.counter()), (2_000 - 3 * 512 + 2, Some(-464)));
    assert!(ours.peer.acquire(1, T + 1_000).is_some());
    assert_eq!((ours.peer.log().len(), ours.peer.counter()), (2, Some(0)));
}

/// There the wait is that of the oldest entry, however many permits are asked for: 800 ms here, and then again.
#[test]
fn wait_for_many_permits_ends_when_enough_have_returned() {
    let Some(mut ours) = Ours::start(100, 1_000, 0) else { return };
    assert!(ours.acquire(5, T).granted && ours.acquire(30, T + 100).granted);
    assert_eq!(ours.acquire(100, T + 200).wait, 900);
    assert!(!ours.acquire(100, T + 1_099).granted);
    assert!(ours.acquire(100, T + 1_100).granted);
}

/// There a limiter that only refuses lives for ever. Ours lives until the wait that it announced is over.
#[test]
fn refusals_keep_nothing_alive_longer_than_their_wait() {
    let Some(mut ours) = Ours::start(1, 5_000, 60_000) else { return };
    assert!(ours.acquire(1, T).granted);
    assert!(ours.ttls().iter().all(|ttl| (50_000..=60_000).contains(ttl)), "{:?}", ours.ttls());
    ours.set_ttls(20_000);
    assert!(!ours.acquire(1, T + 1).granted);
    assert!(ours.ttls().iter().all(|ttl| (11_000..=20_000).contains(ttl)), "{:?}", ours.ttls());
    ours.set_ttls(4_000);
    assert_eq!(ours.acquire(1, T + 1).wait, 4_999);
    assert!(ours.ttls().iter().all(|ttl| (5_000..=9_999).contains(ttl)), "who waits finds it gone: {:?}", ours.ttls());
}

/// There a limiter that expires takes its log along: made again, it grants the same window twice.
#[test]
fn permits_in_use_outlive_a_limiter_that_expires() {
    let Some(mut ours) = Ours::start(5, 30_000, 0) else { return };
    assert!(ours.acquire(5, T).granted);
    assert_eq!(ours.call::<i64>(&[b"expire", T.to_string().as_bytes(), b"40"]), 1);
    assert!(ours.ttls()[1] > 20_000 && ours.ttls()[2] > 20_000, "{:?}", ours.ttls());
    // As if the 40 ms were over.
    cmd("DEL").arg("lim").exec(ours.peer.redis()).expect("deleted");
    assert_eq!(ours.set_rate("try", 5, 30_000, 0), 1);
    assert!(!ours.acquire(1, T + 1).granted);
    assert!(ours.acquire(5, T + 30_000).granted);
    // While it is going to expire, grants do not shorten the life of their log either.
    assert_eq!(ours.call::<i64>(&[b"expire", T.to_string().as_bytes(), b"10000"]), 1);
    assert!(ours.acquire(5, T + 60_000).granted);
    assert!(ours.ttls()[0] <= 10_000 && ours.ttls()[2] > 20_000, "{:?}", ours.ttls());
}

/// There it writes `keepAliveTime` into a limiter of an older client and so lets it expire, while it says no.
#[test]
fn trying_to_set_a_rate_that_is_there_changes_nothing() {
    let Some(mut ours) = Ours::start(5, 1_000, 0) else { return };
    ours.peer.redis().hdel::<_, _, ()>("lim", "keepAliveTime").expect("deleted");
    assert_eq!(ours.set_rate("try", 9, 9_000, 9_000), 0);
    let hash: Vec<(String, String)> = ours.peer.redis().hgetall("lim").expect("a hash");
    let expected = [("rate", "5"), ("interval", "1000"), ("type", "0")];
    assert_eq!(hash.len(), 3);
    assert!(expected.iter().all(|(key, value)| hash.contains(&((*key).into(), (*value).into()))), "{hash:?}");
    assert_eq!(ours.ttls()[0], -1);
}

/// There an old time to live stays, and the limiter vanishes although it was told not to.
#[test]
fn a_rate_without_keep_alive_ends_an_expiry() {
    let Some(mut ours) = Ours::start(5, 1_000, 50_000) else { return };
    assert!(ours.acquire(5, T).granted);
    assert_eq!(ours.set_rate("update", 6, 1_000, 0), 1);
    assert_eq!(ours.ttls(), [-1; 3]);
    assert_eq!(ours.available(T), 1, "usage was kept");
    assert_eq!(ours.set_rate("update", 3, 1_000, 0), 1);
    assert_eq!((ours.available(T), ours.peer.counter()), (0, Some(-2)));
    assert_eq!(ours.set_rate("set", 3, 1_000, 0), 1);
    assert_eq!(ours.available(T), 3);
}
