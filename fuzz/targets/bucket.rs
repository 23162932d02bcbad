//! Buckets in Redis: decides on buckets with damaged content. Every decision must succeed, and the bucket must keep its
//! limit, its time to live and its maximum size.

use std::cell::RefCell;
use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{AsyncCommands, AsyncConnectionConfig, Client, InfoDict, cmd};
use tidegate::Timestamp;
use tidegate::internals::ReplayStore;
use tidegate::internals::for_each_redis_key;
use tidegate::redisson::Mode;
use tidegate_limit::algorithm::leaky_bucket::Queue;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, Quota, Wait, examples};
use tidegate_rules::charge::{Charge, Decision, Limiter};
use tidegate_rules::settings::store::KeySecret;

use crate::support::redis::RedisServer;

/// The start of a minute, so that fixed windows of a minute begin here.
const NOW: u64 = 1_700_000_040_000;
const INTERVAL: u64 = 60_000;

/// The permits of the requests of one moment, from the permits left and the capacity. The script repairs a damaged count
/// before it rejects. So the first request is one that is rejected, or takes a single permit from a full bucket.
const PARTS: [fn(u32, u32) -> u32; 3] =
    [|left, full| u32::from(left == full), |left, _| left + 1, |left, _| left.div_ceil(2)];

/// The first byte selects the limit, the second the number of grants in its bucket. The other bytes select the damage. If
/// there are no grants, they are the bucket.
pub fn bucket(data: &[u8]) {
    thread_local!(static FIXTURE: Option<Fixture> = Fixture::start());
    let [subject, grants, rest @ ..] = data else { return };
    FIXTURE.with(|fixture| {
        let Some(fixture) = fixture else { return };
        let subject = &fixture.subjects[usize::from(*subject) % fixture.subjects.len()];
        let value = match grants {
            0 => rest.to_vec(),
            grants => damage(fixture.filled_bucket(subject, *grants), rest),
        };
        fixture.check_bucket(subject, &value);
    });
}

/// A Redis, and the limits that are tested in it.
struct Fixture {
    // Dropped first, because it ends the Redis.
    _watchdog: Child,
    _server: RedisServer,
    runtime: tokio::runtime::Runtime,
    store: ReplayStore,
    // Asynchronous, because libFuzzer's timer signal interrupts blocking reads, and redis-rs does not repeat them.
    redis: MultiplexedConnection,
    subjects: Vec<Subject>,
    filled: RefCell<HashMap<(String, u8), Vec<u8>>>,
}

/// A limit under test.
struct Subject {
    quota: Quota,
    limiter: Arc<Limiter>,
    key: String,
    /// Permits of each grant that fills the bucket, and the milliseconds between two grants.
    fill: (u32, u64),
}

impl Fixture {
    /// Returns `None` if there is no Redis.
    fn start() -> Option<Self> {
        let server = RedisServer::start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = Client::open(server.url()).expect("a valid URL");
        // By default, a reply has to come within 500 ms.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut redis = runtime.block_on(connection).expect("a connection");
        let info: InfoDict = runtime.block_on(cmd("INFO").arg("server").query_async(&mut redis)).expect("INFO");
        let watchdog = start_watchdog(info.get("process_id").expect("a process id"));
        let (store, subjects) = (server.replay_store(), subjects());
        Some(Self { _watchdog: watchdog, _server: server, runtime, store, redis, subjects, filled: RefCell::default() })
    }

    fn take(&self, subject: &Subject, permits: u32, now: u64) -> Decision {
        let charge = Charge::new(Arc::clone(&subject.limiter), None, permits);
        let outcome = self.runtime.block_on(self.store.take_at(&[charge], Timestamp::from_millis(now)));
        outcome.unwrap_or_else(|error| panic!("{}: {error}", subject.key)).decisions[0]
    }

    /// Returns the content of a bucket after a number of grants.
    fn filled_bucket(&self, subject: &Subject, grants: u8) -> Vec<u8> {
        if let Some(bucket) = self.filled.borrow().get(&(subject.key.clone(), grants)) {
            return bucket.clone();
        }
        let mut redis = self.redis.clone();
        self.runtime.block_on(redis.del::<_, ()>(&subject.key)).expect("DEL");
        let (permits, step) = subject.fill;
        for grant in (0..u64::from(grants)).rev() {
            self.take(subject, permits, NOW - grant * step);
        }
        let bucket: Vec<u8> = self.runtime.block_on(redis.get(&subject.key)).expect("GET");
        self.filled.borrow_mut().insert((subject.key.clone(), grants), bucket.clone());
        bucket
    }

    /// Requests more than is left, then half of that, at moments within three intervals, and checks every decision.
    fn check_bucket(&self, subject: &Subject, value: &[u8]) {
        // Buckets always have a time to live. A grant at the same moment does not set it again.
        let mut redis = self.redis.clone();
        self.runtime.block_on(redis.pset_ex::<_, _, ()>(&subject.key, value, INTERVAL)).expect("PSETEX");
        let mut granted = Vec::new();
        for after in [0, 1, 15_000, 59_999, 60_000, 75_000, 120_001, 179_000] {
            let now = NOW + after;
            if subject.quota.algorithm().has_time_slots() {
                let decision = self.take(subject, 1, now);
                granted.extend(decision.granted.then_some((now, 1, decision.delay)));
                continue;
            }
            let capacity = subject.quota.capacity();
            let mut left = self.take(subject, 0, now).remaining;
            for part in PARTS {
                let permits = part(left, capacity).min(capacity);
                let decision = self.take(subject, permits, now);
                if !decision.granted {
                    assert!(permits > left, "{permits} of {left} were rejected after {after} ms: {decision:?}");
                    assert!(matches!(decision.wait, Wait::Millis(1..)), "{decision:?}");
                } else if permits > 0 {
                    granted.push((now, permits, 0));
                    self.check_expiry_and_size(subject);
                }
                left = decision.remaining;
            }
        }
        subject.check_limit(&granted);
    }

    fn check_expiry_and_size(&self, subject: &Subject) {
        let mut redis = self.redis.clone();
        let ttl: i64 = self.runtime.block_on(redis.pttl(&subject.key)).expect("PTTL");
        assert!((1..=100 * INTERVAL.cast_signed()).contains(&ttl), "the time to live is {ttl} ms");
        let bytes: usize = self.runtime.block_on(redis.strlen(&subject.key)).expect("STRLEN");
        assert!(bytes < 12_000, "the bucket has {bytes} bytes");
    }
}

impl Subject {
    fn new(name: &str, rate: u64, algorithm: Algorithm, fill: (u32, u64)) -> Self {
        let quota = Quota::new(rate, INTERVAL, algorithm).expect("a quota");
        let limiter = Arc::new(Limiter::new(name.to_owned(), Mode::Overall, quota));
        let charge = Charge::new(Arc::clone(&limiter), None, 1);
        let mut key = String::new();
        for_each_redis_key(&charge, &KeySecret::derive(b"secret"), |name| key = name.to_owned());
        Self { quota, limiter, key, fill }
    }

    /// Checks that the grants, as moment, permits and delay, never exceed the limit.
    fn check_limit(&self, granted: &[(u64, u32, u64)]) {
        let (rate, interval) = (u64::from(self.quota.rate()), self.quota.interval());
        let slots = granted.iter().map(|(at, _, delay)| at + delay).collect::<Vec<_>>();
        let spaced = slots.windows(2).all(|pair| pair[1] - pair[0] + 1 >= interval / rate);
        assert!(spaced || !self.quota.algorithm().has_time_slots(), "time slots are too close: {slots:?}");
        for (first, (start, ..)) in granted.iter().enumerate() {
            let mut sum = 0;
            for (at, permits, _) in &granted[first..] {
                sum += u64::from(*permits);
                let limit = match self.quota.algorithm() {
                    Algorithm::Gcra { burst } => u64::from(burst) + rate * (at - start) / interval,
                    Algorithm::FixedWindow(_) if at / interval != start / interval => break,
                    algorithm if algorithm.has_time_slots() => break,
                    _ if at - start >= interval => break,
                    _ => self.quota.worst_case(),
                };
                assert!(sum <= limit, "{sum} granted between {start} and {at}, limit {limit}: {granted:?}");
            }
        }
    }
}

fn subjects() -> Vec<Subject> {
    let minute = Calendar::utc(Unit::Minute);
    let mut subjects = vec![
        Subject::new("few", 10, Algorithm::TokenBucket, (1, 7_000)),
        Subject::new("many", 1_000_000, Algorithm::TokenBucket, (1_000, 250)),
        Subject::new("segments", 10, Algorithm::SlidingWindow { segments: 6 }, (1, 7_000)),
        Subject::new("window", 10, Algorithm::FixedWindow(minute), (1, 7_000)),
        Subject::new("burst", 10, Algorithm::Gcra { burst: 4 }, (1, 1_000)),
        Subject::new("slots", 10, Algorithm::LeakyBucket(Queue { length: 4, max_wait: INTERVAL }), (1, 1_000)),
    ];
    // The first byte of a file in the corpus is an index into this list, so other algorithms are at its end.
    let known: Vec<&str> = subjects.iter().map(|subject: &Subject| subject.quota.algorithm().name()).collect();
    let others = examples(4).filter(|algorithm| !known.contains(&algorithm.name()));
    subjects.extend(others.map(|algorithm| Subject::new(algorithm.name(), 10, algorithm, (1, 7_000))));
    subjects
}

/// Damages a bucket. Four bytes select each kind of damage and its place.
fn damage(mut bucket: Vec<u8>, edits: &[u8]) -> Vec<u8> {
    for edit in edits.chunks_exact(4) {
        let [kind, low, high, byte] = *edit else { continue };
        let at = usize::from(u16::from_le_bytes([low, high])) % (bucket.len() + 1);
        let until = (at + usize::from(byte)).min(bucket.len());
        match kind % 5 {
            0 => bucket.truncate(at),
            1 => bucket.insert(at, byte),
            2 => _ = bucket.drain(at..until),
            3 => bucket.extend_from_within(at..until),
            _ => bucket[at..].iter_mut().take(1).for_each(|place| *place = byte),
        }
    }
    bucket
}

/// Starts a shell that ends a process when this one ends for any reason, which closes the shell's standard input.
fn start_watchdog(process: u32) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read -r _; kill {process}")]);
    command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell")
}
