//! Buckets in Redis: whatever stands at a bucket's key, decisions go on, and soon the bucket is sound again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use deadpool_redis::redis::{Commands, Connection, InfoDict, cmd};
use tidegate::clock::Timestamp;
use tidegate::internals::each_redis_key;
use tidegate::limit::calendar::{Calendar, Unit};
use tidegate::limit::leaky_bucket::Queue;
use tidegate::limit::{Algorithm, Charge, Decision, Limiter, Mode, Quota, Wait};
use tidegate::store::Store;
use tidegate::store::settings::KeySecret;

use crate::support::redis::RedisServer;

/// A minute begins, and long logs are counted before they refuse.
const NOW: u64 = 1_700_000_040_000;
const INTERVAL: u64 = 60_000;

/// How much is asked for at a moment, of what is left and of what there can be. What is counted wrong is set right before it
/// refuses anybody; so nothing is asked for that passes before something was refused, but one permit where all are left.
const PARTS: [fn(u32, u32) -> u32; 3] =
    [|left, full| u32::from(left == full), |left, _| left + 1, |left, _| left.div_ceil(2)];

/// The first byte says whose bucket it is, the second how many grants have made it; the others say how it was damaged, or
/// are all of it if there were none.
pub fn bucket(data: &[u8]) {
    thread_local!(static STAGE: Option<Stage> = Stage::open());
    let [subject, grants, rest @ ..] = data else { return };
    STAGE.with(|stage| {
        let Some(stage) = stage else { return };
        let subject = &stage.subjects[usize::from(*subject) % stage.subjects.len()];
        let value = match grants {
            0 => rest.to_vec(),
            grants => damaged(stage.made_by(subject, *grants), rest),
        };
        stage.lead_a_life(subject, &value);
    });
}

/// A Redis, and the limits that are asked there.
struct Stage {
    // Dropped first, it ends the Redis, as it does when this process dies.
    _watch: Child,
    _server: RedisServer,
    runtime: tokio::runtime::Runtime,
    store: Store,
    redis: RefCell<Connection>,
    subjects: Vec<Subject>,
    made: RefCell<HashMap<(String, u8), Vec<u8>>>,
}

/// A limit.
struct Subject {
    quota: Quota,
    limiter: Arc<Limiter>,
    key: String,
    /// So many permits each, so many milliseconds apart, were the grants that have made the bucket.
    usual: (u32, u64),
}

impl Stage {
    /// Nothing where there is no Redis.
    fn open() -> Option<Self> {
        let server = RedisServer::start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut redis = server.connection();
        let about: InfoDict = cmd("INFO").arg("server").query(&mut redis).expect("what it is");
        let watch = watch(about.get("process_id").expect("a process"));
        let (store, redis) = (server.store(), RefCell::new(redis));
        let subjects = subjects();
        Some(Self { _watch: watch, _server: server, runtime, store, redis, subjects, made: RefCell::default() })
    }

    fn take(&self, subject: &Subject, permits: u32, now: u64) -> Decision {
        let charge = Charge { limiter: Arc::clone(&subject.limiter), client: None, permits, shadow: false };
        let decided = self.runtime.block_on(self.store.take_at(&[charge], Timestamp::from_millis(now)));
        decided.unwrap_or_else(|error| panic!("{}: {error}", subject.key)).decisions[0]
    }

    /// A bucket that so many grants have made.
    fn made_by(&self, subject: &Subject, grants: u8) -> Vec<u8> {
        if let Some(made) = self.made.borrow().get(&(subject.key.clone(), grants)) {
            return made.clone();
        }
        _ = self.redis.borrow_mut().del::<_, ()>(&subject.key);
        let (permits, apart) = subject.usual;
        for grant in (0..u64::from(grants)).rev() {
            self.take(subject, permits, NOW - grant * apart);
        }
        let made: Vec<u8> = self.redis.borrow_mut().get(&subject.key).expect("a string");
        self.made.borrow_mut().insert((subject.key.clone(), grants), made.clone());
        made
    }

    /// Asks for more than is left, then for half of that, at moments of three intervals.
    fn lead_a_life(&self, subject: &Subject, value: &[u8]) {
        // As every bucket it has a time to live, which a grant of the same moment need not tell again.
        self.redis.borrow_mut().pset_ex::<_, _, ()>(&subject.key, value, INTERVAL).expect("set");
        let mut granted = Vec::new();
        for after in [0, 1, 15_000, 59_999, 60_000, 75_000, 120_001, 179_000] {
            let now = NOW + after;
            if subject.has_slots() {
                let decision = self.take(subject, 1, now);
                granted.extend(decision.granted.then_some((now, 1, decision.delay)));
                continue;
            }
            let full = subject.quota.capacity();
            let mut left = self.take(subject, 0, now).remaining;
            for part in PARTS {
                let asked = part(left, full).min(full);
                let decision = self.take(subject, asked, now);
                if !decision.granted {
                    assert!(asked > left, "{asked} of {left} were refused after {after} ms: {decision:?}");
                    assert!(matches!(decision.wait, Wait::Millis(1..)), "{decision:?}");
                } else if asked > 0 {
                    granted.push((now, asked, 0));
                    self.lives(subject);
                }
                left = decision.remaining;
            }
        }
        subject.hold_the_law(&granted);
    }

    /// The bucket ends some time, and is no longer than it may be.
    fn lives(&self, subject: &Subject) {
        let mut redis = self.redis.borrow_mut();
        let lives: i64 = redis.pttl(&subject.key).expect("a time to live");
        assert!((1..=100 * INTERVAL.cast_signed()).contains(&lives), "it lives for {lives} ms");
        let bytes: usize = redis.strlen(&subject.key).expect("a length");
        assert!(bytes < 12_000, "{bytes} bytes");
    }
}

impl Subject {
    fn new(name: &str, rate: u64, algorithm: Algorithm, usual: (u32, u64)) -> Self {
        let quota = Quota::new(rate, INTERVAL, algorithm).expect("a quota");
        let limiter = Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota));
        let charge = Charge { limiter: Arc::clone(&limiter), client: None, permits: 1, shadow: false };
        let mut key = String::new();
        each_redis_key(&charge, &KeySecret::derive(b"secret"), |name| key = name.to_owned());
        Self { quota, limiter, key, usual }
    }

    /// Are requests told when to go on, each by itself?
    fn has_slots(&self) -> bool {
        matches!(self.quota.algorithm(), Algorithm::LeakyBucket(_))
    }

    fn hold_the_law(&self, granted: &[(u64, u32, u64)]) {
        let (rate, interval) = (u64::from(self.quota.rate()), self.quota.interval());
        let slots = granted.iter().map(|(at, _, delay)| at + delay).collect::<Vec<_>>();
        let apart = slots.windows(2).all(|pair| pair[1] - pair[0] + 1 >= interval / rate);
        assert!(apart || !self.has_slots(), "slots that are too near: {slots:?}");
        for (first, (start, ..)) in granted.iter().enumerate() {
            let mut sum = 0;
            for (at, permits, _) in &granted[first..] {
                sum += u64::from(*permits);
                let most = match self.quota.algorithm() {
                    Algorithm::Gcra { burst } => u64::from(burst) + rate * (at - start) / interval,
                    Algorithm::FixedWindow(_) if at / interval != start / interval => break,
                    Algorithm::LeakyBucket(_) => break,
                    _ if at - start >= interval => break,
                    _ => rate,
                };
                assert!(sum <= most, "{sum} granted between {start} and {at}, of {most}: {granted:?}");
            }
        }
    }
}

fn subjects() -> Vec<Subject> {
    let minute = Calendar::new(Unit::Minute, "UTC").expect("a calendar");
    vec![
        Subject::new("few", 10, Algorithm::TokenBucket, (1, 7_000)),
        Subject::new("many", 1_000_000, Algorithm::TokenBucket, (1_000, 250)),
        Subject::new("segments", 10, Algorithm::SlidingWindow { segments: 6 }, (1, 7_000)),
        Subject::new("window", 10, Algorithm::FixedWindow(minute), (1, 7_000)),
        Subject::new("burst", 10, Algorithm::Gcra { burst: 4 }, (1, 1_000)),
        Subject::new("slots", 10, Algorithm::LeakyBucket(Queue { length: 4, max_wait: INTERVAL }), (1, 1_000)),
    ]
}

/// A bucket that was damaged, in any of some ways, at any of its bytes.
fn damaged(mut bucket: Vec<u8>, ways: &[u8]) -> Vec<u8> {
    for way in ways.chunks_exact(4) {
        let [what, low, high, byte] = *way else { continue };
        let at = usize::from(u16::from_le_bytes([low, high])) % (bucket.len() + 1);
        let until = (at + usize::from(byte)).min(bucket.len());
        match what % 5 {
            0 => bucket.truncate(at),
            1 => bucket.insert(at, byte),
            2 => _ = bucket.drain(at..until),
            3 => bucket.extend_from_within(at..until),
            _ => bucket[at..].iter_mut().take(1).for_each(|place| *place = byte),
        }
    }
    bucket
}

/// Ends a process when this one ends, however that happens: nobody holds the other end of its input any more.
fn watch(process: u32) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read -r _; kill {process}")]);
    command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell")
}
