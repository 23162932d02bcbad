//! The store in Redis: decisions are made by a script, many of them in a call, over a connection for each worker.
//!
//! A decision has one deadline, over waiting for a connection and for the answer together. A call that may have run is
//! never sent again.

mod address;
mod answers;
mod batch;
mod breaker;
mod buckets;
mod connection;
mod dispatcher;
mod eviction;
mod keys;
mod limiters;
mod locator;
mod membership;
mod outages;
mod queue;
mod script;
mod sentinel;
mod slots;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use deadpool_redis::redis::{Cmd, FromRedisValue, RedisError, cmd};
use tokio::time::Instant;

use self::buckets::Buckets;
use self::connection::{Connection, Node};
use self::dispatcher::{Dispatcher, DispatcherContext};
use self::keys::SharedSecret;
use self::membership::Membership;
use self::script::failure;
use super::StoreError;
use super::adopted::AdoptedFailures;
use super::clock_offset::ClockOffset;
use super::fallback::Fallback;
use super::negative_cache::Remote;
use super::settings::{KeySecret, RedisSettings, RedisUrl};
use crate::clock::Timestamp;
use crate::limit::{Charge, Granted, Outcome};
use crate::metrics::Metrics;

/// Buckets in Redis.
#[derive(Debug)]
pub struct Redis {
    context: Arc<DispatcherContext>,
    node: Arc<Node>,
    secret: Arc<SharedSecret>,
    adopted: Arc<AdoptedFailures>,
    /// How many connections to have.
    pool_size: usize,
    /// Started with the first decision, on the runtime that it is made on.
    dispatchers: OnceLock<Box<[Dispatcher]>>,
    turn: AtomicUsize,
}

impl Redis {
    /// A store that connects when it is first used.
    ///
    /// # Errors
    /// The URL is none that leads to a Redis.
    pub fn new(settings: &RedisSettings, metrics: Arc<Metrics>) -> Result<Self, RedisError> {
        let secret = Arc::new(SharedSecret::new(settings));
        let membership = Membership::new(Arc::new(Fallback::new()), &settings.prefix, Arc::clone(&metrics));
        let node = Arc::new(Node::new(settings, Arc::clone(&secret), membership)?);
        let random = AtomicU64::new(random_start());
        let context = DispatcherContext { timeout: settings.timeout, clock: ClockOffset::default(), random, metrics };
        let pool_size = settings.pool_size.max(1);
        let (context, adopted, turn) = (Arc::new(context), Arc::default(), AtomicUsize::new(0));
        Ok(Self { context, node, secret, adopted, pool_size, dispatchers: OnceLock::new(), turn })
    }

    /// The same buckets over connections of its own, which live on the runtime that uses them first: so that the requests
    /// of a worker never change threads.
    pub fn for_worker(&self) -> Self {
        let (context, node, secret) = (Arc::clone(&self.context), Arc::clone(&self.node), Arc::clone(&self.secret));
        let (adopted, pool_size, turn) = (Arc::clone(&self.adopted), self.pool_size, AtomicUsize::new(0));
        Self { context, node, secret, adopted, pool_size, dispatchers: OnceLock::new(), turn }
    }

    /// What stands for a client's value; nothing before Redis was there for the first time.
    pub(crate) fn key_of(&self, value: &[u8]) -> Option<u128> {
        Some(self.secret.known()?.hash(value))
    }

    /// What decides while it does not.
    pub(crate) fn fallback(&self) -> &Fallback {
        self.node.fallback()
    }

    /// Its address.
    pub(crate) fn url(&self) -> &RedisUrl {
        self.node.url()
    }

    /// With sentinels, where the master was last.
    pub(crate) fn master(&self) -> Option<String> {
        self.node.master()
    }

    /// Why it cannot be reached, if it is known that it cannot.
    pub(crate) fn outage(&self) -> Option<String> {
        self.node.outage()
    }

    /// Opens the connections before the first decision needs them.
    pub fn connect(&self) {
        self.dispatchers();
    }

    /// Does Redis answer?
    pub async fn is_up(&self) -> bool {
        self.query::<String>(&cmd("PING")).await.is_ok()
    }

    async fn decide(
        &self,
        charges: &[Charge],
        now: Option<Timestamp>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let Some(first) = charges.first() else {
            return Ok(Outcome::decided(now.unwrap_or_else(|| self.context.clock.redis_now()), Vec::new(), true));
        };
        let since = Instant::now();
        let decided = self.dispatcher_of(&first.limiter.name).take(charges, now, deadline).await;
        if decided.is_ok() {
            self.context.metrics.store_answered(since.elapsed());
        }
        self.adopted.note(charges, decided.as_ref().err());
        decided
    }

    /// Asks whichever connection has its turn for something that is not a decision.
    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let ask = async |connection: &mut Connection| {
            command.query_async(&mut connection.redis).await.map_err(|error| failure(&error))
        };
        self.within_deadline("", ask).await
    }

    /// Waits for a connection and for what `call` asks on it, all within the deadline.
    async fn within_deadline<T>(
        &self,
        name: &str,
        call: impl AsyncFnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.dispatcher_of(name).connection().within(self.deadline(), call).await
    }

    fn dispatchers(&self) -> &[Dispatcher] {
        self.dispatchers.get_or_init(|| {
            let start = || Dispatcher::start(Arc::clone(&self.node), Arc::clone(&self.context));
            (0..self.pool_size).map(|_| start()).collect()
        })
    }

    /// Where a limiter of this name is decided: one of the dispatchers of its node. There is one node; of several, the hash tag
    /// of the name will choose ([`hash_tag`](keys::hash_tag)).
    fn dispatcher_of(&self, _name: &str) -> &Dispatcher {
        let dispatchers = self.dispatchers();
        &dispatchers[self.turn.fetch_add(1, Ordering::Relaxed) % dispatchers.len()]
    }
}

impl Remote for Redis {
    fn deadline(&self) -> Instant {
        Instant::now() + self.context.timeout
    }

    async fn take(&self, charges: &[Charge], now: Option<Timestamp>, deadline: Instant) -> Result<Outcome, StoreError> {
        self.decide(charges, now, deadline).await
    }

    async fn give_back(&self, granted: &[Granted], now: Option<Timestamp>) -> Result<(), StoreError> {
        let Some(first) = granted.first() else { return Ok(()) };
        let undo = async |connection: &mut Connection| undo(connection, granted, now).await;
        self.within_deadline(&first.charge.limiter.name, undo).await
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        let time = async |connection: &mut Connection| connection.script.time().await;
        self.within_deadline("", time).await
    }
}

/// Shows `each` the keys of a charge's bucket, written into `key`; for benchmarks.
pub(crate) fn redis_keys(charge: &Charge, secret: &KeySecret, key: &mut String, each: impl FnMut(&str)) {
    keys::each(&charge.limiter, std::slice::from_ref(&charge.client), secret, key, each);
}

/// Undoes a decision.
async fn undo(connection: &mut Connection, granted: &[Granted], now: Option<Timestamp>) -> Result<(), StoreError> {
    let mut buckets = Buckets::default();
    let mut indexed: Vec<_> = granted.iter().map(|one| (buckets.add(&one.charge), one)).collect();
    indexed.sort_by_key(|(index, _)| *index);
    let number = |one: &Granted| format!("{} {}", one.charge.permits, one.at.as_millis());
    let numbers: Vec<String> = indexed.iter().map(|(_, one)| number(one)).collect();
    // Slots lie after the decision, windows do not.
    let near = granted.iter().map(|one| one.at).min().unwrap_or_default();
    let secret = connection.secret;
    let add = |call: &mut Cmd| {
        call.arg(buckets.number_of_keys());
        buckets.each_key(&secret, |key| _ = call.arg(key));
        call.arg("give_back").arg(buckets.limiters(near)).arg(numbers.join(" "));
        call.arg(now.map(|now| now.as_millis().to_string()));
    };
    connection.script.run(add).await.map(|_| ())
}

fn random_start() -> u64 {
    let mut bytes = [0; 8];
    _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::limit::calendar::{Calendar, Unit};
    use crate::limit::{Algorithm, Limiter, Mode, Quota};
    use crate::store::settings::RedisUrl;

    /// A Redis that ends with its owner; nothing where there is none to start.
    struct Server(Child);

    impl Server {
        fn start(port: u16) -> Option<Self> {
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Self)
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    fn charge(name: &str, algorithm: Algorithm) -> Charge {
        let quota = Quota::new(3, 60_000, algorithm).expect("a quota");
        Charge {
            limiter: Arc::new(Limiter::new(name.into(), Mode::Overall, quota)),
            client: None,
            permits: 1,
            shadow: false,
        }
    }

    #[tokio::test]
    async fn a_wrong_guess_of_redis_time_is_set_right_and_charges_nothing_twice() {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a free port").port();
        let Some(_server) = Server::start(port) else {
            assert!(std::env::var_os("REQUIRE_REDIS").is_none(), "redis-server cannot be started");
            return;
        };
        let url = RedisUrl::new(format!("redis://127.0.0.1:{port}"));
        let settings = RedisSettings { timeout: Duration::from_secs(10), ..RedisSettings::new(url) };
        let redis = Redis::new(&settings, Arc::new(Metrics::new())).expect("a store");
        while !redis.is_up().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let day = Algorithm::FixedWindow(Calendar::new(Unit::Day, "Europe/Rome").expect("a calendar"));
        let charges = [charge("bucket", Algorithm::TokenBucket), charge("day", day)];
        for (guess, left) in [(0, 2), (4_000_000_000_000, 1)] {
            redis.context.clock.learn(Timestamp::from_millis(guess));
            let outcome = redis.take(&charges, None, redis.deadline()).await.expect("a decision");
            let told: Vec<_> = outcome.decisions.iter().map(|one| (one.granted, one.remaining)).collect();
            assert_eq!(told, [(true, left); 2]);
            assert!(redis.context.clock.redis_now().millis_since(outcome.now) < 60_000, "it has not learned");
            redis.context.clock.learn(Timestamp::from_millis(guess));
            redis.give_back(&outcome.made(charges[..1].to_vec()), None).await.expect("given back");
            redis.take(&charges[..1], None, redis.deadline()).await.expect("a decision");
        }
    }
}
