//! The store in Redis: one script call for each decision, over a few shared connections.
//!
//! A decision has one deadline, over waiting for a connection and for the answer together. A call that may have run is
//! never sent again.

mod keys;
mod limiters;
mod link;
mod present;
mod script;
mod trouble;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use deadpool_redis::redis::{AsyncConnectionConfig, RedisError, cmd};
use deadpool_redis::{Manager, Pool, Runtime};
use tokio::time::timeout;

use self::link::{Link, Live, SharedSecret};
use self::present::Present;
use self::script::{Answer, Call, answer};
use self::trouble::Troubles;
use super::StoreError;
use super::settings::{KeySecret, RedisSettings};
use crate::clock::{Stopwatch, Timestamp};
use crate::limit::{Charge, Granted, Outcome, Wait};
use crate::metrics::Metrics;

/// Buckets in Redis.
#[derive(Debug)]
pub struct Redis {
    settings: RedisSettings,
    pool: Pool,
    secret: Arc<SharedSecret>,
    /// Started with the first decision, on the runtime that it is made on.
    links: OnceLock<Box<[Link]>>,
    turn: AtomicUsize,
    random: AtomicU64,
    present: Present,
    troubles: Troubles,
    metrics: Arc<Metrics>,
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
        let pool = Pool::builder(manager).max_size(settings.pool_size).runtime(Runtime::Tokio1).build();
        let pool =
            pool.map_err(|_| RedisError::from((deadpool_redis::redis::ErrorKind::InvalidClientConfig, "no pool")))?;
        let secret = Arc::new(SharedSecret::new(&settings));
        let random = AtomicU64::new(random_start());
        let (links, turn) = (OnceLock::new(), AtomicUsize::new(0));
        let (present, troubles) = (Present::default(), Troubles::default());
        Ok(Self { settings, pool, secret, links, turn, random, present, troubles, metrics })
    }

    /// Makes all charges or none, at Redis's TIME.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn take(&self, charges: &[Charge]) -> Result<Outcome, StoreError> {
        self.decide(charges, None).await
    }

    /// Makes all charges or none, at `now`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn take_at(&self, charges: &[Charge], now: Timestamp) -> Result<Outcome, StoreError> {
        self.decide(charges, Some(now)).await
    }

    /// Gives back what was granted.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn give_back(&self, granted: &[Granted], now: Option<Timestamp>) -> Result<(), StoreError> {
        self.within_deadline(async |live| {
            let call = Call::give_back(granted, &live.secret, now);
            call.run(&mut live.connection).await.map(|_| ()).map_err(|error| failure(&error))
        })
        .await
    }

    /// Opens the connections before the first decision needs them.
    pub fn connect(&self) {
        self.links();
    }

    /// Does Redis answer?
    pub async fn is_up(&self) -> bool {
        let ping = |mut live: Live| async move { cmd("PING").exec_async(&mut live.connection).await };
        self.within_deadline(async |live| ping(live.clone()).await.map_err(|error| failure(&error))).await.is_ok()
    }

    async fn decide(&self, charges: &[Charge], now: Option<Timestamp>) -> Result<Outcome, StoreError> {
        let stopwatch = Stopwatch::start();
        let decided = self.within_deadline(async |live| self.call(live, charges, now).await).await;
        if decided.is_ok() {
            self.metrics.store_answered(stopwatch.elapsed());
        }
        self.troubles.note(charges, decided.as_ref().err());
        decided
    }

    /// Waits for a connection and for what `call` asks on it, all within the deadline. A connection that failed, or
    /// did not answer in time, is never used again.
    async fn within_deadline<T>(
        &self,
        call: impl AsyncFnOnce(&mut Live) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let link = self.next_link();
        let mut used = None;
        let asked = async { call(used.insert(link.live().await?)).await };
        let answer = timeout(self.settings.timeout, asked).await.unwrap_or(Err(StoreError::Timeout));
        if let (Some(live), Err(error)) = (used, &answer)
            && error.condemns_connection()
        {
            link.report_broken(&live);
        }
        answer
    }

    async fn call(&self, live: &mut Live, charges: &[Charge], now: Option<Timestamp>) -> Result<Outcome, StoreError> {
        let mut near = now.unwrap_or_else(|| self.present.guess());
        let mut asked_anew = false;
        loop {
            match self.ask(live, charges, now, near).await? {
                // Nothing ran, so asking once more resends nothing.
                Answer::BoundariesNeeded(shown) if !asked_anew => {
                    self.present.learn(shown);
                    (near, asked_anew) = (shown, true);
                }
                Answer::BoundariesNeeded(_) => return Err(StoreError::Shape),
                // Refused because of permits that have returned, of which a call removes only so many; it removed some.
                Answer::Decided(outcome) if asks_again(&outcome) => {}
                Answer::Decided(outcome) => return Ok(outcome),
            }
        }
    }

    /// One call, with the boundaries around `near` for limits by the calendar.
    async fn ask(
        &self,
        live: &mut Live,
        charges: &[Charge],
        now: Option<Timestamp>,
        near: Timestamp,
    ) -> Result<Answer, StoreError> {
        // Steps of an odd constant from a random start: no value comes twice, and no two gateways walk alike.
        let random = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let call = Call::admit(charges, &live.secret, now, near, random);
        let numbers = call.run(&mut live.connection).await.map_err(|error| failure(&error))?;
        answer(&numbers, charges)
    }

    fn links(&self) -> &[Link] {
        self.links.get_or_init(|| {
            let start = || Link::start(self.pool.clone(), &self.settings, Arc::clone(&self.secret));
            (0..self.settings.pool_size.max(1)).map(|_| start()).collect()
        })
    }

    fn next_link(&self) -> &Link {
        let links = self.links();
        &links[self.turn.fetch_add(1, Ordering::Relaxed) % links.len()]
    }
}

/// The keys of a charge's bucket; for benchmarks.
pub(crate) fn redis_keys(charge: &Charge, secret: &KeySecret) -> Vec<String> {
    keys::keys(charge, secret)
}

fn asks_again(outcome: &Outcome) -> bool {
    outcome.decisions.iter().any(|decision| decision.wait == Wait::Millis(0))
}

fn failure(error: &RedisError) -> StoreError {
    match error.code() {
        Some("NOTINITIALISED") => StoreError::NotInitialised,
        Some("MODEDIFFERS") => StoreError::ModeDiffers,
        Some(code) => StoreError::Answer(code.to_owned()),
        None if error.is_io_error() || error.is_unrecoverable_error() => StoreError::Broken,
        None => StoreError::Shape,
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
            redis.present.learn(Timestamp::from_millis(guess));
            let outcome = redis.take(&charges).await.expect("a decision");
            let told: Vec<_> = outcome.decisions.iter().map(|one| (one.granted, one.remaining)).collect();
            assert_eq!(told, [(true, left); 2]);
            assert!(redis.present.guess().millis_since(outcome.now) < 60_000, "it has not learned");
            redis.present.learn(Timestamp::from_millis(guess));
            redis.give_back(&outcome.made(charges[..1].to_vec()), None).await.expect("given back");
            redis.take(&charges[..1]).await.expect("a decision");
        }
    }
}
