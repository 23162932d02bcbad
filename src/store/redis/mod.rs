//! The store in Redis: decisions are made by scripts, many of them in a call, over a few connections.
//!
//! A decision has one deadline, over waiting for a connection and for the answer together. A call that may have run is
//! never sent again.

mod answers;
mod batch;
mod buckets;
mod call;
mod driver;
mod keys;
mod lane;
mod library;
mod limiters;
mod link;
mod load;
mod outage;
mod pipeline;
mod present;
mod queue;
mod resp;
mod script;
mod trouble;
mod wire;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use deadpool_redis::redis::{AsyncConnectionConfig, RedisError, cmd};
use deadpool_redis::{Manager, Pool, Runtime};
use tokio::time::Instant;

use self::buckets::Buckets;
use self::lane::{Lane, Shared};
use self::link::{Live, SharedSecret};
use self::present::Present;
use self::script::SCRIPT;
use self::trouble::Troubles;
use super::StoreError;
use super::negative_cache::Remote;
use super::settings::{KeySecret, RedisSettings, RedisUrl};
use crate::clock::Timestamp;
use crate::limit::{Charge, Granted, Outcome};
use crate::metrics::Metrics;

/// Most connections of a gateway, those of all workers together.
const MAX_CONNECTIONS: usize = 4_096;

/// Buckets in Redis.
#[derive(Debug)]
pub struct Redis {
    shared: Arc<Shared>,
    pool: Pool,
    /// Started with the first decision, on the runtime that it is made on.
    lanes: OnceLock<Box<[Lane]>>,
    turn: AtomicUsize,
}

impl Redis {
    /// A store that connects when it is first used.
    ///
    /// # Errors
    /// The URL is none that leads to a Redis.
    pub fn new(settings: RedisSettings, metrics: Arc<Metrics>) -> Result<Self, RedisError> {
        // The deadlines are ours: `timeout` for a decision, the link's for connecting.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let manager = Manager::new_with_config(settings.url.expose(), config)?;
        let pool = Pool::builder(manager).max_size(MAX_CONNECTIONS).runtime(Runtime::Tokio1).build();
        let pool =
            pool.map_err(|_| RedisError::from((deadpool_redis::redis::ErrorKind::InvalidClientConfig, "no pool")))?;
        let secret = Arc::new(SharedSecret::new(&settings));
        let random = AtomicU64::new(random_start());
        let (present, troubles) = (Present::default(), Troubles::default());
        let shared = Arc::new(Shared { settings, secret, outage: Arc::default(), random, present, troubles, metrics });
        Ok(Self { shared, pool, lanes: OnceLock::new(), turn: AtomicUsize::new(0) })
    }

    /// The same buckets over connections of its own, which live on the runtime that uses them first: so that the requests
    /// of a worker never change threads.
    pub fn for_worker(&self) -> Self {
        let (shared, pool) = (Arc::clone(&self.shared), self.pool.clone());
        Self { shared, pool, lanes: OnceLock::new(), turn: AtomicUsize::new(0) }
    }

    /// Makes all charges or none, at `now`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        self.decide(charges, Some(now)).await
    }

    /// What stands for a client's value; nothing before Redis was there for the first time.
    pub(crate) fn key_of(&self, value: &[u8]) -> Option<u128> {
        Some(self.shared.secret.known()?.hash(value))
    }

    /// Its address.
    pub(crate) fn url(&self) -> &RedisUrl {
        &self.shared.settings.url
    }

    /// Why it cannot be reached, if it is known that it cannot.
    pub(crate) fn outage(&self) -> Option<String> {
        self.shared.outage.cause()
    }

    /// Opens the connections before the first decision needs them.
    pub fn connect(&self) {
        self.lanes();
    }

    /// Does Redis answer?
    pub async fn is_up(&self) -> bool {
        let ping = |mut live: Live| async move { cmd("PING").exec_async(&mut live.connection).await };
        self.within_deadline(async |live| ping(live.clone()).await.map_err(|error| failure(&error))).await.is_ok()
    }

    async fn decide(&self, charges: &[Charge], now: Option<Timestamp>) -> Result<Outcome, StoreError> {
        if charges.is_empty() {
            return Ok(Outcome::decided(now.unwrap_or_else(|| self.shared.present.guess()), Vec::new(), true));
        }
        let since = Instant::now();
        let decided = self.next_lane().take(charges, now).await;
        if decided.is_ok() {
            self.shared.metrics.store_answered(since.elapsed());
        }
        self.shared.troubles.note(charges, decided.as_ref().err());
        decided
    }

    /// Waits for a connection and for what `call` asks on it, all within the deadline.
    async fn within_deadline<T>(
        &self,
        call: impl AsyncFnOnce(&mut Live) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.next_lane().link().within(Instant::now() + self.shared.settings.timeout, call).await
    }

    fn lanes(&self) -> &[Lane] {
        self.lanes.get_or_init(|| {
            let start = || Lane::start(self.pool.clone(), Arc::clone(&self.shared));
            (0..self.shared.settings.pool_size.max(1)).map(|_| start()).collect()
        })
    }

    fn next_lane(&self) -> &Lane {
        let lanes = self.lanes();
        &lanes[self.turn.fetch_add(1, Ordering::Relaxed) % lanes.len()]
    }
}

impl Remote for Redis {
    async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        self.decide(charges, None).await
    }

    async fn give_back(&self, granted: &[Granted], now: Option<Timestamp>) -> Result<(), StoreError> {
        self.within_deadline(async |live| undo(live, granted, now).await).await
    }

    async fn time(&self) -> Result<Timestamp, StoreError> {
        let ask = |mut live: Live| async move { cmd("TIME").query_async::<(u64, u64)>(&mut live.connection).await };
        let time = async |live: &mut Live| ask(live.clone()).await.map_err(|error| failure(&error));
        let (seconds, micros) = self.within_deadline(time).await?;
        Ok(Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000)))
    }
}

/// Shows `each` the keys of a charge's bucket, written into `key`; for benchmarks.
pub(crate) fn redis_keys(charge: &Charge, secret: &KeySecret, key: &mut String, each: impl FnMut(&str)) {
    keys::each(&charge.limiter, std::slice::from_ref(&charge.client), secret, key, each);
}

/// Undoes a decision.
async fn undo(live: &mut Live, granted: &[Granted], now: Option<Timestamp>) -> Result<(), StoreError> {
    let mut buckets = Buckets::default();
    let mut placed: Vec<_> = granted.iter().map(|one| (buckets.add(&one.charge), one)).collect();
    placed.sort_by_key(|(place, _)| *place);
    let number = |one: &Granted| format!("{} {}", one.charge.permits, one.at.as_millis());
    let numbers: Vec<String> = placed.iter().map(|(_, one)| number(one)).collect();
    // Slots lie after the decision, windows do not.
    let near = granted.iter().map(|one| one.at).min().unwrap_or_default();
    let command = |name: &str, script: &str| {
        let mut call = cmd(name);
        call.arg(script);
        call.arg(buckets.number_of_keys());
        buckets.each_key(&live.secret, |key| _ = call.arg(key));
        call.arg("give_back").arg(buckets.limiters(near)).arg(numbers.join(" "));
        call.arg(now.map(|now| now.as_millis().to_string()));
        call
    };
    SCRIPT.run(&mut live.connection, command).await.map_err(|error| failure(&error))
}

fn failure(error: &RedisError) -> StoreError {
    match error.code() {
        Some(word) => answered_with(word, error.detail().unwrap_or_default()),
        None if error.is_io_error() || error.is_unrecoverable_error() => StoreError::Broken,
        None => StoreError::Shape,
    }
}

/// What an error means, by its first word. Up to version 6, what went wrong within a script is told at the end of another:
/// `ERR Error running script (call to f_…): @user_script:12: @user_script: 12: -READONLY You can't write …`.
fn answered_with(word: &str, rest: &str) -> StoreError {
    let within = rest.strip_prefix("Error running script").and_then(|rest| rest.split_once(": -"));
    match within.map_or(word, |(_, error)| error.split(' ').next().unwrap_or(word)) {
        "NOTINITIALISED" => StoreError::NotInitialised,
        "MODEDIFFERS" => StoreError::ModeDiffers,
        word => StoreError::Answer(word.to_owned()),
    }
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
            limiter: Arc::new(Limiter { name: name.into(), mode: Mode::Overall, quota }),
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
        let settings = RedisSettings {
            url: RedisUrl::new(format!("redis://127.0.0.1:{port}")),
            timeout: Duration::from_secs(10),
            prefix: String::new(),
            pool_size: 1,
            key_secret: None,
        };
        let redis = Redis::new(settings, Arc::new(Metrics::new())).expect("a store");
        while !redis.is_up().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let day = Algorithm::FixedWindow(Calendar::new(Unit::Day, "Europe/Rome").expect("a calendar"));
        let charges = [charge("bucket", Algorithm::TokenBucket), charge("day", day)];
        for (guess, left) in [(0, 2), (4_000_000_000_000, 1)] {
            redis.shared.present.learn(Timestamp::from_millis(guess));
            let outcome = redis.take(&charges).await.expect("a decision");
            let told: Vec<_> = outcome.decisions.iter().map(|one| (one.granted, one.remaining)).collect();
            assert_eq!(told, [(true, left); 2]);
            assert!(redis.shared.present.guess().millis_since(outcome.now) < 60_000, "it has not learned");
            redis.shared.present.learn(Timestamp::from_millis(guess));
            redis.give_back(&outcome.made(charges[..1].to_vec()), None).await.expect("given back");
            redis.take(&charges[..1]).await.expect("a decision");
        }
    }
}
