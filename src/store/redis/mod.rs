//! The store in Redis: one script call for each decision, over a few shared connections.
//!
//! A decision has one deadline, over waiting for a connection and for the answer together. A call that may have run is
//! never sent again.

mod keys;
mod link;
mod present;
mod script;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use deadpool_redis::redis::{AsyncConnectionConfig, RedisError, cmd};
use deadpool_redis::{Manager, Pool, Runtime};
use tokio::time::timeout;

use self::link::{Link, Live, SharedSecret};
use self::present::Present;
use self::script::{Answer, Call, answer};
use super::StoreError;
use super::settings::RedisSettings;
use crate::clock::{Stopwatch, Timestamp};
use crate::limit::{Charge, Outcome};
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
        Ok(Self { settings, pool, secret, links, turn, random, present: Present::default(), metrics })
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

    /// Gives back what charges took at `granted_at`.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn give_back(
        &self,
        charges: &[Charge],
        granted_at: Timestamp,
        now: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.within_deadline(async |live| {
            let call = Call::give_back(charges, &live.secret, now, granted_at);
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
        let near = now.unwrap_or_else(|| self.present.guess());
        let shown = match self.ask(live, charges, now, near).await? {
            Answer::Decided(outcome) => return Ok(outcome),
            Answer::BoundariesNeeded(shown) => shown,
        };
        // Nothing ran, so asking once more resends nothing.
        self.present.learn(shown);
        match self.ask(live, charges, now, shown).await? {
            Answer::Decided(outcome) => Ok(outcome),
            Answer::BoundariesNeeded(_) => Err(StoreError::Shape),
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
        answer(&numbers, charges.len())
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

fn failure(error: &RedisError) -> StoreError {
    match error.code() {
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
